"""The loop of the reward model: learn scores from pairs, and measure on pairs that are never learnt from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labcore.catalog.choices import PAIRS
from labcore.errors import LabError
from labcore.llm.drawing import LABELLED, in_epochs, next_rows
from labcore.llm.loops.preference import encode
from labcore.llm.loops.scoring import record
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.micro_batches import attempts, micro_batches, retried
from labcore.llm.nets.scorer import last_values, scores
from labcore.llm.networks import REWARD_MODEL
from labcore.llm.pairs import next_pairs, of_problems, prepare
from labcore.llm.probes import watched
from labcore.llm.session import LlmSession
from labcore.maths.reward_model import Calibration, bradley_terry, calibration, correlation
from labcore.runs.spec.activity import part_of
from labcore.runs.spec.session import Record
from labcore.tasks.held_out import problems_of
from labcore.tasks.task import AT_RANDOM, Pair, Problem, Turn, draw, has_singles, held_of

SHOWN = 16  # pairs in the sample view
HELD_OUT_SHARE = 5  # one pair of so many is held out where there are no others to come
Split = tuple[list[Pair] | None, list[Pair]]


def run(session: LlmSession) -> Iterator[Record]:
    """Yield a Record per update; held-out pairs are measured after the first and then every so many steps."""
    prepare(session)
    known, held_out = split(session)
    at_end = bool(held_of(session.task))
    while session.step < session.spec.steps:
        pairs = _batch(session, known)
        for attempt in attempts(session):  # once more in smaller micro-batches where memory is short
            with attempt:
                measured = gradients(session, pairs)
        yield record(session, step(session, *measured), lambda seen: evaluate(seen, held_out), at_end)


def split(session: LlmSession) -> Split:
    """Split the pairs into those to train on (None: new ones are sampled all the time) and those for evaluation only.

    Pairs of one prompt are all on one side. What the task holds out of its file is held out: its pairs, or pairs that
    are sampled for its prompts. Other pairs are split by the seed alone, so a resumed run has the same.

    Raises:
        LabError: all pairs are of one prompt, or there are none, only single completions.
    """
    if has_singles(session.task):
        raise LabError("A reward model learns from pairs, and the file has single completions with labels: give a "
                       "file with chosen and rejected.")
    source, count = PAIRS[session.knobs["pairs"]], int(session.knobs["eval_pairs"])
    known = session.pairs if source.once else getattr(session.task, "rows", None) if source.from_file else None
    apart = watched.apart(session, 0)
    if held_out := _of_file(apart, source.from_file, count):
        return known, held_out
    if known is None:
        apart.knobs = {**session.knobs, "pairs_per_step": count, "order": AT_RANDOM}  # not where the epoch stands
        return None, next_pairs(apart).pairs
    sizes = Counter(map(_asked, known))
    if len(sizes) < 2:
        raise LabError("All pairs are of one prompt, so none can be held out to measure the reward model on: give "
                       "pairs of two prompts or more.")
    count, held, taken = min(count, max(1, len(known) // HELD_OUT_SHARE)), set[tuple[str | Turn, ...]](), 0
    prompts = list(sizes)
    for place in np.random.default_rng((session.prompt_seed, len(known))).permutation(len(prompts))[1:]:
        if taken >= count:
            break
        held.add(prompts[place])
        taken += sizes[prompts[place]]
    return ([pair for pair in known if _asked(pair) not in held],
            [pair for pair in known if _asked(pair) in held][:count])


def _of_file(apart: LlmSession, brings_pairs: bool, count: int) -> list[Pair]:
    """At most `count` pairs of the rows that the task holds out of its file; a note where none can be made of them."""
    held = held_of(apart.task)
    if brings_pairs:
        return [row for row in held if isinstance(row, Pair)][:count]
    problems = problems_of(held)[:count]
    with part_of("held-out pairs"):
        pairs = of_problems(apart, problems, count)
    if problems and not pairs:
        apart.say_once(f"None of {len(problems)} held-out prompts got both a better and a worse completion, so the "
                       "reward model is evaluated on pairs of training prompts: hold out more rows, or raise "
                       "`group_size`.")
    return pairs


def _asked(pair: Pair) -> tuple[str | Turn, ...]:
    """A pair's prompt, with the conversation before it: many end with the same question."""
    return pair.prompt, *pair.turns


def _batch(session: LlmSession, known: list[Pair] | None) -> list[Pair]:
    """The pairs of the next update: a share of them are labelled ones, where the run has some."""
    count = int(session.knobs["pairs_per_step"])
    own = round(count * float(session.knobs["labelled_share"])) if session.labelled else 0
    spare = 0 if in_epochs(session) else own  # a run that draws at random draws a whole batch and leaves these out
    if known is not None:
        pairs = next_rows(session, partial(draw, known), count - own + spare)
    else:
        pairs = next_pairs(session, count - own + spare).pairs if own < count + spare else []
    return pairs[spare:] + next_rows(session, partial(draw, session.labelled), own, source=LABELLED) if own else pairs


def update(session: LlmSession, pairs: list[Pair]) -> dict[str, float]:
    """One update on pairs outside of a run, as `run` makes it. Returns the metrics before it."""
    return step(session, *retried(gradients)(session, pairs))


def step(session: LlmSession, loss: float, sides: Tensor, tokens: int) -> dict[str, float]:
    """One optimizer step on the gradient that the reward model holds. Returns the metrics of the update."""
    session.tokens += tokens
    return {"loss": loss, **session.update(REWARD_MODEL, loss), "mean_reward": float(sides.mean()),
            **_agreement(sides)}


@part_of("update")
def gradients(session: LlmSession, pairs: list[Pair]) -> tuple[float, Tensor, int]:
    """Leave the gradient of the loss on pairs in the reward model. The loss, the scores of both sides, (N, 2), and how
    many tokens they have."""
    knobs, model = session.knobs, _model(session)
    prompts, completions = encode(session, pairs)
    loss, found, margins = 0.0, [], _margins(session, pairs)
    for some, rows in micro_batches(model, prompts, completions.ids, session.room):
        given = last_values(model, prompts[some], completions.ids[rows], completions.mask[rows], knobs["dtype"])
        chosen, rejected = given.view(-1, 2).unbind(1)
        part = bradley_terry(chosen, rejected, margins[some], knobs["centering"]).sum() / len(pairs)
        part.backward()
        loss += part.item()
        found.append(given.detach())
    return loss, torch.cat(found).view(-1, 2), int(completions.mask.sum())


def _margins(session: LlmSession, pairs: list[Pair]) -> Tensor:
    """The margin of each pair: its own where it has one, else the run's. (N,) reward"""
    usual = float(session.knobs["margin"])
    return torch.tensor([usual if pair.margin is None else pair.margin for pair in pairs], device=session.device)


@retried
@part_of("held-out pairs")
def evaluate(session: LlmSession, pairs: list[Pair]) -> tuple[dict[str, float], dict[str, Any]]:
    """Evaluate the reward model on held-out pairs: metrics and samples."""
    prompts, completions = encode(session, pairs)
    found = scores(_model(session), prompts, completions, str(session.knobs["dtype"]), session.room)
    sides = found.double().cpu().view(-1, 2)
    calibrated = calibration(sides[:, 0] - sides[:, 1])
    metrics = {f"eval_{key}": value for key, value in _agreement(sides).items()}
    metrics["calibration_error"] = calibrated.error
    gold = _gold(session, pairs)
    if gold is not None and isfinite(related := correlation(sides.flatten(), gold.flatten())):
        metrics["gold_correlation"] = related
    return metrics, {"step": session.step, "calibration": _table(calibrated), "scored": _shown(pairs, sides, gold),
                     "held_out": _held_out(sides, gold)}


def _model(session: LlmSession) -> Critic:
    model = session.models[REWARD_MODEL]
    assert isinstance(model, Critic)
    return model


def _agreement(sides: Tensor) -> dict[str, float]:
    """Share of pairs whose chosen side scores higher, and the mean margin. (N, 2)"""
    margins = sides[:, 0] - sides[:, 1]
    return {"accuracy": float((margins > 0).double().mean()), "margin": float(margins.mean())}


def _gold(session: LlmSession, pairs: list[Pair]) -> Tensor | None:
    """The task's own score of both sides, (N, 2) float64; None where the task has none."""
    if not session.spec.task_row.verifiable:
        return None
    return torch.tensor([[session.task.score(Problem(pair.prompt, pair.answer, pair.line), side).reward
                          for side in (pair.chosen, pair.rejected)] for pair in pairs], dtype=torch.float64)


def _table(found: Calibration) -> list[dict[str, float]]:
    columns = (column.tolist() for column in (found.predicted, found.right, found.pairs))
    return [{"predicted": predicted, "right": right, "pairs": pairs}
            for predicted, right, pairs in zip(*columns, strict=True)]


def _held_out(sides: Tensor, gold: Tensor | None) -> dict[str, list[list[float]]]:
    """The scores of all held-out pairs, [chosen, rejected] of each, and their gold scores where the task has any."""
    columns = {"scores": sides} | ({} if gold is None else {"gold": gold})
    return {name: [[round(value, 4) for value in pair] for pair in column.tolist()] for name, column in columns.items()}


def _shown(pairs: list[Pair], sides: Tensor, gold: Tensor | None) -> list[dict[str, Any]]:
    rows = []
    for index, pair in enumerate(pairs[:SHOWN]):
        chosen, rejected = ({"text": text, "score": round(float(sides[index, side]), 5)}
                            | ({} if gold is None else {"gold": float(gold[index, side])})
                            for side, text in enumerate((pair.chosen, pair.rejected)))
        rows.append({"prompt": pair.prompt, "chosen": chosen, "rejected": rejected})
    return rows
