"""A queue of groups between sampling and learning, and a buffer of groups that are learnt from again.

With a staleness of k, a step samples one batch and learns from the one that was sampled k steps ago, as where
sampling runs k steps ahead of training. The queue keeps completions and the log-probs under which they were sampled.
It keeps no weights of old policies, because no correction needs them. With a replay share, a part of each batch is
drawn from groups of earlier steps. Left out: completions that begin under one policy and end under the next (partial
rollouts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from labcore.catalog.conditions import delayed, off_policy
from labcore.catalog.llm.staleness import MIXED
from labcore.llm import experience
from labcore.llm.experience import Batch, Sampled, groups_of, joined, rollout_of, sampled_batch, selective
from labcore.llm.nets.tape import Tape
from labcore.llm.session import LlmSession


@dataclass(frozen=True)
class Lot:
    """Groups that were sampled together, by the policy that had made `updates` updates."""

    sampled: Sampled
    updates: int

    def __len__(self) -> int:
        return len(self.sampled.problems)


def collect(session: LlmSession, tape: Tape | None = None) -> Batch:
    """The batch of the next step: P groups from the queue and from the replay buffer, and as `experience.collect`."""
    if not delayed(session.knobs):
        _say_dropped(session, _count(session.queue))
        session.queue, session.replay = [], []
        batch = experience.collect(session, tape)
        return batch if not off_policy(session.knobs) else replace(batch, rollout=replace(
            batch.rollout, age=torch.zeros_like(batch.rollout.truncated, dtype=torch.long)))
    _drop_other_sizes(session)
    again = min(_share(session), _count(session.replay))  # groups from the replay buffer
    rounds = _fill(session, again)
    taken, session.queue = _taken(session, int(session.knobs["prompts_per_step"]) - again)
    lots = [*taken, *_replayed(session, again)]
    most = int(session.knobs["replay_steps"]) * int(session.knobs["prompts_per_step"])
    session.replay = _newest([*session.replay, *taken], most if session.knobs["replay_share"] else 0)
    sampled = lots[0].sampled if len(lots) == 1 else joined([lot.sampled for lot in lots])
    age = torch.tensor([session.updates - lot.updates for lot in lots for _ in lot.sampled.texts],
                       device=session.device)
    return Batch(sampled, rollout_of(session, sampled, age), rounds, selective(session), delayed=True, again=again)


def _share(session: LlmSession) -> int:
    """The number of groups that the replay buffer should provide; at least one group of a batch is new."""
    prompts = int(session.knobs["prompts_per_step"])
    return min(round(float(session.knobs["replay_share"]) * prompts), prompts - 1)


def _fill(session: LlmSession, again: int) -> list[Sampled]:
    """Sample until the queue has the groups of this step and of the next k steps; returns the new samples.

    A queue that is too long, because k or the batch became smaller, loses its oldest groups first.
    """
    prompts, fresh = int(session.knobs["prompts_per_step"]), int(session.knobs["prompts_per_step"]) - _share(session)
    wanted = int(session.knobs["staleness"]) * fresh + prompts - again
    if (excess := _count(session.queue) - wanted + fresh) > 0:
        session.queue = _newest(session.queue, wanted - fresh)
        _say_dropped(session, excess)
    found: list[Sampled] = []
    while (missing := wanted - _count(session.queue)) > 0:
        number = max(session.step, session.lots)
        rounds, batch = sampled_batch(session, number=number, count=min(fresh, missing))
        session.lots, session.queue = number + 1, [*session.queue, Lot(batch, session.updates)]
        found += rounds
    return found


def _say_dropped(session: LlmSession, count: int) -> None:
    if count:
        session.notes.append(f"{count:,} sampled groups that waited were dropped, because the queue is shorter now.")


def _taken(session: LlmSession, count: int) -> tuple[list[Lot], list[Lot]]:
    """Take `count` groups from the queue, the oldest ones, or random ones of a mixed queue; returns them and the rest.
    """
    total = _count(session.queue)
    mixed = session.knobs["staleness_order"] == MIXED
    chosen = np.sort(session.rng.permutation(total)[:count]) if mixed else np.arange(count)
    return _at(session.queue, chosen), _at(session.queue, np.setdiff1d(np.arange(total), chosen))


def _replayed(session: LlmSession, count: int) -> list[Lot]:
    """`count` different groups of the replay buffer, chosen at random."""
    return _at(session.replay, np.sort(session.rng.permutation(_count(session.replay))[:count])) if count else []


def _newest(lots: Sequence[Lot], most: int) -> list[Lot]:
    """The last `most` groups."""
    total = _count(lots)
    return _at(lots, np.arange(max(0, total - most), total))


def _count(lots: Sequence[Lot]) -> int:
    return sum(map(len, lots))


def _at(lots: Sequence[Lot], places: np.ndarray) -> list[Lot]:
    """The groups at these places, which ascend; a lot of which all groups are chosen stays as it is."""
    found, start = [], 0
    for lot in lots:
        inside = places[(places >= start) & (places < start + len(lot))] - start
        start += len(lot)
        if len(inside) == len(lot):
            found.append(lot)
        elif len(inside):
            device = lot.sampled.shaped.device
            found.append(replace(lot, sampled=groups_of(lot.sampled, torch.as_tensor(inside, device=device))))
    return found


def _drop_other_sizes(session: LlmSession) -> None:
    """Empty the queue and the buffer of groups of another size: batches have groups of one size."""
    size = int(session.knobs["group_size"])
    session.queue, session.replay = ([lot for lot in lots if lot.sampled.group_size == size]
                                     for lots in (session.queue, session.replay))
