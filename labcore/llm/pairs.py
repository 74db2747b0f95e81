"""Sources of preference pairs: a choice of the run, named by the family PAIRS.

A source is a function here of the session that gives the pairs of one update. Pairs that are made once, before the
first step, are made by `prepare` and kept in the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isnan

import torch
from transformers import PreTrainedModel

from labcore.catalog import choices
from labcore.errors import LabError
from labcore.llm.drawing import next_rows
from labcore.llm.evaluation import group_shares, kl_to_reference, score_metrics
from labcore.llm.generation import Generated, Sampling, generate
from labcore.llm.networks import REFERENCE
from labcore.llm.rewards import Rewards, verified
from labcore.llm.session import LlmSession
from labcore.maths.call import call, member
from labcore.runs.spec.activity import part_of, report
from labcore.tasks.task import Pair, PairTask, Problem, Single, SingleTask, draw, has_singles

SAMPLED_AT_ONCE = 64  # prompts


@dataclass(frozen=True)
class Pairs:
    """The pairs of one update, or the `singles` of a file without pairs. Pairs that were sampled for the update also
    have `metrics` and their samples."""

    pairs: list[Pair]
    metrics: dict[str, float] = field(default_factory=dict)
    sampled: tuple[list[Problem], Generated, Rewards] | None = None
    singles: list[Single] = field(default_factory=list)


def prepare(session: LlmSession) -> None:
    """Prepare the pairs that a source needs before the first step. Raises LabError if no prompt got both a better and a
    worse completion."""
    if choices.PAIRS[session.knobs["pairs"]].once and not session.pairs:
        with part_of("pairs from the reference model"):
            session.pairs = sample_once(session)
        session.probes.begin()  # only now: the pairs are no part of the first step


def next_pairs(session: LlmSession, count: int | None = None) -> Pairs:
    """The pairs of the next update; `count` overrides their usual number."""
    knobs = session.knobs if count is None else {**session.knobs, "pairs_per_step": count}
    pairs: Pairs = call(member(choices.PAIRS, session.knobs["pairs"]), knobs, {"session": session})
    return pairs


def dataset(session: LlmSession, pairs_per_step: int) -> Pairs:
    """Pairs of the task's own; of a file without pairs as many single completions."""
    if isinstance(session.task, SingleTask) and has_singles(session.task):
        return Pairs([], singles=next_rows(session, session.task.singles, int(pairs_per_step)))
    assert isinstance(session.task, PairTask), "its row of the catalog says so"
    return Pairs(next_rows(session, session.task.pairs, int(pairs_per_step)))


def reference_once(session: LlmSession, pairs_per_step: int) -> Pairs:
    """Pairs of the reference's completions, made before the first step."""
    return Pairs(next_rows(session, partial(draw, session.pairs), int(pairs_per_step)))


def policy_each_step(session: LlmSession, pairs_per_step: int, group_size: int) -> Pairs:
    """A pair for each of fresh prompts: the best and the worst of the policy's own completions, as it is now.

    Where all of a prompt's completions have the same reward the first is the chosen one and the last the rejected.
    Those that could not be scored take no part; with fewer than two others a completion is paired with itself, and
    says nothing.

    Source: Guo et al. 2024, arXiv:2402.04792 (OAIF).
    """
    problems = next_rows(session, session.task.problems, int(pairs_per_step))
    generated = generate(session, session.policy, problems, int(group_size), Sampling.of(session.knobs))
    completions, rewards = generated.completions, verified(session, problems, generated)
    session.tokens += int(completions.mask.sum())
    groups = rewards.total.view(len(problems), -1)
    pairs = []
    for index, row in enumerate(groups.tolist()):
        best, worst = best_and_worst(row)
        pairs.append(_pair(problems[index], generated, index * len(row) + best, index * len(row) + worst))
    metrics = score_metrics(rewards, completions) | group_shares(groups, rewards.exact)
    return Pairs(pairs, metrics | kl_to_reference(session, generated), (problems, generated, rewards))


def policy_and_reference(session: LlmSession, pairs_per_step: int) -> Pairs:
    """One pair for each new prompt: a completion of the current policy and one of the reference. The completion with
    the higher reward is chosen. If the rewards are equal or one of them could not be computed, the pair is a tie, and
    the chosen side is drawn at random. In TRL 1.9.0's XPOTrainer the policy's completion wins every tie; with rewards
    of 0 and 1 this pushes the policy further and further away from the reference.

    Source: Xie et al. 2024, arXiv:2405.21046, algorithm 1 (XPO).
    """
    problems = next_rows(session, session.task.problems, int(pairs_per_step))
    ours, theirs = (generate(session, model, problems, 1, Sampling.of(session.knobs))
                    for model in (session.policy, session.reference))
    rewards, other = (verified(session, problems, each) for each in (ours, theirs))
    session.tokens += int(ours.completions.mask.sum()) + int(theirs.completions.mask.sum())
    coins = session.rng.random(len(problems)) < 0.5
    ties = ~((rewards.total > other.total) | (rewards.total < other.total))  # also where one is NaN
    lost = torch.where(ties, torch.from_numpy(coins), other.total > rewards.total).tolist()
    pairs = [replace(_between(problem, (ours, theirs), row, lost[row]), tie=tie)
             for row, (problem, tie) in enumerate(zip(problems, ties.tolist(), strict=True))]
    win = (rewards.total - other.total).sigmoid().nanmean()
    metrics = score_metrics(rewards, ours.completions) | kl_to_reference(session, ours)
    return Pairs(pairs, metrics | ({} if win.isnan() else {"win_rate": float(win)}), (problems, ours, rewards))


def best_and_worst(rewards: list[float]) -> tuple[int, int]:
    """The first of the highest and the last of the lowest of the rewards that are numbers."""
    scored = [index for index, reward in enumerate(rewards) if not isnan(reward)] or [0]
    return (max(scored, key=lambda index: (rewards[index], -index)),
            min(scored, key=lambda index: (rewards[index], -index)))


def sample_once(session: LlmSession) -> list[Pair]:
    """Sample completions from the reference, verify them, and pair better with worse completions of the same prompt. A
    run without a reference samples from its initial policy.

    Completions cut at the length limit take part without an end token: were they left out, every rejected answer
    would have ended, and the policy would learn not to end. Raises LabError if no prompt got both a better and a worse
    completion.
    """
    pairs, asked, begun = list[Pair](), int(session.knobs["pair_prompts"]), session.drawn
    for start in range(0, asked, SAMPLED_AT_ONCE):
        report("{} of {} prompts", start, asked)
        problems = next_rows(session, session.task.problems, min(SAMPLED_AT_ONCE, asked - start))
        pairs += _better_and_worse(session, problems)
    session.drawn = begun  # the first epoch of training begins with the first step
    if not pairs:
        raise LabError(f"None of {asked} prompts got both a better and a worse completion from the base, so there "
                       "are no pairs to learn from: raise `pair_prompts` or `group_size`, or start from another base.")
    return pairs


def of_problems(session: LlmSession, problems: Sequence[Problem], most: int) -> list[Pair]:
    """At most `most` pairs of the reference's completions of these problems, made as in `sample_once`."""
    pairs: list[Pair] = []
    for start in range(0, len(problems), SAMPLED_AT_ONCE):
        if len(pairs) < most:
            pairs += _better_and_worse(session, list(problems[start:start + SAMPLED_AT_ONCE]))
    return pairs[:most]


def _better_and_worse(session: LlmSession, problems: list[Problem]) -> list[Pair]:
    """The best of the reference's completions of each problem with its worst, the second best with the second worst
    and so on, where their rewards differ."""
    group_size, pairs = int(session.knobs["group_size"]), []
    generated = generate(session, _reference(session), problems, group_size, Sampling.of(session.knobs))
    rewards = verified(session, problems, generated).total.tolist()
    for index, problem in enumerate(problems):
        rows = range(index * group_size, (index + 1) * group_size)
        scored = (row for row in rows if generated.texts[row] and not isnan(rewards[row]))
        ordered = sorted(scored, key=rewards.__getitem__)
        extremes = zip(reversed(ordered), ordered[: len(ordered) // 2], strict=False)
        pairs += [_pair(problem, generated, high, low) for high, low in extremes if rewards[high] > rewards[low]]
    return pairs


def _reference(session: LlmSession) -> PreTrainedModel:
    """The reference; where none is held the policy, which then does not learn."""
    return session.models.get(REFERENCE, session.policy)


def _pair(problem: Problem, generated: Generated, chosen: int, rejected: int) -> Pair:
    """The pair of two rows of completions of a problem."""
    return _of_sides(problem, (generated, chosen), (generated, rejected))


def _between(problem: Problem, sides: tuple[Generated, Generated], row: int, lost: bool) -> Pair:
    """A pair of a completion of the policy and one of the reference. The policy's completion is the rejected side if it
    `lost`."""
    ours, theirs = ((side, row) for side in sides)
    return replace(_of_sides(problem, theirs, ours), theirs="chosen") if lost else replace(
        _of_sides(problem, ours, theirs), theirs="rejected")


def _of_sides(problem: Problem, *sides: tuple[Generated, int]) -> Pair:
    """The pair of two completions, which are rows of `generated`: the chosen and the rejected one."""
    chosen, rejected = (generated.texts[row] for generated, row in sides)
    done = [(generated.completions, row) for generated, row in sides]
    first, second = (bool(each.truncated[row]) for each, row in done)
    return Pair(problem.prompt, chosen, rejected, problem.line, first, second, problem.answer, problem.turns,
                tuple(tuple(each.ids[row][each.mask[row]].tolist()) for each, row in done))
