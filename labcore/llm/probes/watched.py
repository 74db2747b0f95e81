"""Watched prompts: the run's answers to a few fixed prompts, and their probabilities before and after a step.

The seed chooses the prompts, and their answers are sampled with separate random numbers. The run's own rules give their
rewards and advantages as for a small batch, so a rule that uses the whole batch uses these answers. The user's reward
function is not called for them. The run never trains on them. Probabilities are those of whole answers with the end
token, at the temperature of the loss: the sampling temperature if the run trains on its samples, otherwise 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isnan
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from labcore.catalog import choices
from labcore.llm.batch import Completions, Prompts
from labcore.llm.experience import answered, rollout_of
from labcore.llm.generation import Generated, Sampling, generate, token_logprobs
from labcore.llm.nets.critic import Network
from labcore.llm.networks import REFERENCE, TEACHER
from labcore.llm.pairs import best_and_worst
from labcore.llm.probes import step_scores, view
from labcore.llm.probes.budget import SAMPLES as SAMPLES_ACCOUNT
from labcore.llm.rendering import Ids, encode_prompts
from labcore.llm.rewards import Rewards, known, verified
from labcore.llm.rollout import credit
from labcore.llm.session import LlmSession
from labcore.llm.teacher_context import NOTHING
from labcore.llm.token_texts import token_texts
from labcore.runs.spec.activity import part_of
from labcore.tasks.environment import Episode
from labcore.tasks.goal import WATCHED_STREAM
from labcore.tasks.task import Pair, PairTask, Problem, draw, has_singles

WATCHED = "watched prompts"
PROMPTS = 4
BATCH_SHARE = 4  # and at most a fourth of the batch's prompts, so that watching costs little where a batch is small
BATCHES = ("prompts_per_step", "pairs_per_step", "sequences_per_step")  # the knob of its size in each loop
SAMPLES = 8  # completions of each, where the run does not compare those of a prompt with each other
REFERENCE_ANSWERS, REFERENCE_SAMPLES = 8, 64  # of its most frequent ones, among so many: or as half a batch has
MOST_ANSWERS = 24  # of a prompt


@dataclass(frozen=True)
class Answer:
    """An answer and its tokens, with the end token if it ended. `own`: the tokens that the model sampled, for an
    episode; empty if it sampled all."""

    text: str
    ids: tuple[int, ...]
    ended: bool = True
    own: tuple[bool, ...] = ()

    @property
    def key(self) -> tuple[str, bool]:
        """The key of equal answers: their text, and whether they ended; not how they were cut into tokens."""
        return self.text, self.ended


@dataclass(frozen=True)
class Watched:
    """A prompt, and the answers whose probability is followed from the first step to the last.

    `pair` are the chosen and the rejected answer, where the run learns from pairs that it has from the start.
    """

    problem: Problem
    known: tuple[Answer, ...]
    pair: tuple[Answer, Answer] | None = None


@dataclass(frozen=True)
class Drawn:
    """The policy's answers: P·G completions group by group, their rewards, and their mean advantages (B,)."""

    generated: Generated
    rewards: Rewards
    advantages: Tensor | None

    def rows(self, place: int, count: int) -> range:
        """The rows of a prompt; `count`: of all prompts."""
        size = len(self.generated.texts) // count
        return range(place * size, (place + 1) * size)


@dataclass(frozen=True)
class Before:
    """The watched prompts under the policy before a step's updates; `after` adds the values after them.

    Each prompt has C answers, after padding; `logprobs` (P, C) are summed, nats.
    """

    groups: list[dict[str, Any]]
    prompts: Prompts
    completions: Completions
    logprobs: Tensor
    temperature: float
    ref_logprobs: Tensor | None = None

    @part_of(WATCHED)
    def after(self, session: LlmSession) -> list[dict[str, Any]]:
        """The watched prompts with the probabilities before and after the updates, as `watched` in a step's samples."""
        new = _sums(session, session.policy, self.prompts, self.completions, self.temperature)
        for place, group in enumerate(self.groups):
            old_row, new_row = self.logprobs[place].tolist(), new[place].tolist()
            for answer, old, now in zip(group["answers"], old_row, new_row, strict=False):  # the rest is padding
                answer |= {"before": _probability(old), "after": _probability(now),
                           "logprob_before": round(old, 5), "logprob_after": round(now, 5)}
            if self.ref_logprobs is not None:
                ref_row = self.ref_logprobs[place].tolist()
                group |= {f"margin_{when}": _margin(group["answers"], row, ref_row, float(session.knobs["beta"]))
                          for when, row in (("before", old_row), ("after", new_row))}
        return self.groups


def of(session: LlmSession) -> tuple[Watched, ...]:
    """The prompts that the session watches: chosen at the first call, and the same ones after a resume."""
    if session.watched is None:
        session.watched = _choose(replace(apart(session), knobs=dict(session.spec.knobs)))
    return session.watched


@torch.no_grad()
@part_of(WATCHED)
def before(session: LlmSession, step: int) -> Before:
    """The policy's answers before the updates of `step`, and how likely each answer is.

    No random number of the session is drawn, and none of its counters moves.
    """
    watched, alone = of(session), apart(session, step)
    drawn = _answers(alone, [each.problem for each in watched])
    groups, candidates = list[dict[str, Any]](), []
    for place, each in enumerate(watched):
        rows = drawn.rows(place, len(watched))
        texts = [_sampled(drawn.generated, row) for row in rows]
        answers = list({answer.key: answer for answer in (*each.known, *_by_count(texts))}.values())[:MOST_ANSWERS]
        pair = each.pair or _pair_of(alone, drawn.rewards, texts, rows)
        candidates.append(answers)
        groups.append({**alone.rendering.shown(each.problem), "answer": each.problem.answer, "answers": [
            _shown(alone, each.problem, answer, pair, drawn, [rows[at] for at, text in enumerate(texts)
                                                              if text.key == answer.key]) for answer in answers]})
    prompts, completions = drawn.generated.prompts, _padded(candidates, session.device)
    temperature = float(session.knobs["temperature"]) if "advantage" in session.knobs else 1.0
    old = _sums(alone, session.policy, prompts, completions, temperature)
    compared = _learns_pairs(session) and REFERENCE in session.models
    reference = _sums(alone, session.reference, prompts, completions, temperature) if compared else None
    if TEACHER in session.models and session.knobs.get("teacher_context", NOTHING) == NOTHING:
        teacher = cast(Network, session.models[TEACHER])
        for group, row in zip(groups, _sums(alone, teacher, prompts, completions, temperature).tolist(), strict=True):
            for answer, found in zip(group["answers"], row, strict=False):  # the rest is padding
                answer["logprob_teacher"] = round(found, 5)
    return Before(groups, prompts, completions, old, temperature, reference)


def timed(session: LlmSession) -> Before:
    """`before` for the step that the session is making, on the account of its samples."""
    with session.probes.spend(SAMPLES_ACCOUNT, session.step + 1):
        return before(session, session.step + 1)


def completed(session: LlmSession, watching: Before | None) -> dict[str, Any]:
    """The watched prompts for the samples of the step just made: nothing where these were not due."""
    if watching is None:
        return {}
    with session.probes.spend(SAMPLES_ACCOUNT, session.step):
        return {"watched": watching.after(session)}


def looked(session: LlmSession, before_step: Mapping[str, Tensor] | None) -> dict[str, Any]:
    """The watched prompts of a step at which no look was due; empty for large networks, or without the parameters from
    before the step."""
    if before_step is None or view.limited(session):
        return {}
    return {"watched": afterwards(session, before_step)}


def afterwards(session: LlmSession, before_step: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """The watched prompts of the step just made, computed from the parameters before it."""
    with view.going_back(session, before_step):
        found = before(session, session.step)
    return found.after(session)


def apart(session: LlmSession, step: int = 0, stream: int = WATCHED_STREAM) -> LlmSession:
    """The session on the same networks with random numbers of its own, of the seed and the step."""
    seeds = np.random.SeedSequence((session.prompt_seed, stream, step)).generate_state(2)
    return replace(session, generator=torch.Generator(session.device).manual_seed(int(seeds[0])),
                   rng=np.random.default_rng(seeds[1]))


# ---- what is watched -------------------------------------------------------------------------------------------


def _choose(alone: LlmSession) -> tuple[Watched, ...]:
    """Distinct prompts among the run's own problems or pairs, with the answers to track for each."""
    asked = _asked(alone, max(1, min(PROMPTS, _batch(alone) // BATCH_SHARE)))
    problems = [problem for problem, _ in asked]
    prompts = encode_prompts(alone.rendering, problems, alone.context - 1, alone.device)
    room = alone.context - prompts.ids.shape[1]  # as the loops cut an answer: beside the longest prompt
    sampled = REFERENCE in alone.models and not view.limited(alone)  # long answers hardly come twice, and cost most
    own = _of_reference(alone, problems) if sampled else [[] for _ in problems]
    watched = []
    for (problem, pair), frequent in zip(asked, own, strict=True):
        chosen, rejected = (pair and pair.sampled) or (None, None)
        sides = pair and (_given(alone, problem, pair.chosen, room, pair.chosen_truncated, chosen),
                          _given(alone, problem, pair.rejected, room, pair.rejected_truncated, rejected))
        right = [_given(alone, problem, problem.answer, room)] if _is_right(alone, problem) else []
        watched.append(Watched(problem, (*(sides or ()), *right, *frequent), sides or None))
    return tuple(watched)


def _batch(session: LlmSession) -> int:
    """Prompts, pairs or sequences in a batch, as the run was started."""
    return next(int(session.spec.knobs[key]) for key in BATCHES if key in session.spec.knobs)


def _asked(alone: LlmSession, count: int) -> list[tuple[Problem, Pair | None]]:
    """`count` problems with different prompts, or fewer where there are no more, and their pairs."""
    many = 4 * count  # drawn, for some may be the same
    found: list[tuple[Problem, Pair | None]]
    from_file = _learns_pairs(alone) and choices.PAIRS[str(alone.knobs["pairs"])].from_file
    if alone.pairs or (from_file and not has_singles(alone.task)):
        pairs = draw(alone.pairs, many, alone.rng) if alone.pairs else cast(PairTask, alone.task).pairs(many, alone.rng)
        found = [(Problem(pair.prompt, pair.answer, pair.line, pair.turns), pair) for pair in pairs]
    else:
        found = [(problem, None) for problem in alone.task.problems(many, alone.rng)]
    return list({(each[0].prompt, *each[0].turns): each for each in reversed(found)}.values())[-count:]


def _of_reference(alone: LlmSession, problems: list[Problem]) -> list[list[Answer]]:
    """The answers that the reference gives most often to each problem, the most frequent first.

    None where no two of many are alike: a long answer is never seen again.
    """
    count = max(_samples(alone), min(REFERENCE_SAMPLES, _batch(alone) * _samples(alone) // (2 * len(problems))))
    generated = generate(alone, alone.reference, problems, count, Sampling.of(alone.spec.knobs))
    return [_frequent([_sampled(generated, row) for row in range(place * count, (place + 1) * count)])
            for place in range(len(problems))]


def _frequent(answers: list[Answer]) -> list[Answer]:
    found = _by_count(answers)
    return [] if REFERENCE_ANSWERS < len(answers) == len(found) else found[:REFERENCE_ANSWERS]


def _samples(session: LlmSession) -> int:
    """The number of completions to sample for a prompt: a whole group if its members are compared, otherwise a few."""
    knobs = session.knobs
    compared = _learns_pairs(session) or ("advantage" in knobs and (
        choices.ADVANTAGE[knobs["advantage"]].group or choices.SELECTION[knobs["selection"]].group))
    size = int(knobs.get("group_size", SAMPLES))
    return size if compared else max(size, SAMPLES)


def _is_right(session: LlmSession, problem: Problem) -> bool:
    """True if the problem's own answer is the right one: a text that continues a file is only one of many."""
    given = bool(problem.answer)
    learnt = "advantage" not in session.knobs and not _learns_pairs(session)
    return given and (learnt or session.task.score(problem, problem.answer).exact)


def _learns_pairs(session: LlmSession) -> bool:
    return "pairs" in session.knobs


def _given(session: LlmSession, problem: Problem, text: str, room: int, truncated: bool = False,
           sampled: Ids = None) -> Answer:
    """An answer as at most `room` tokens, with the end token where it was not cut; the `sampled` ones where it was."""
    _, (ids,) = session.rendering.answers([problem], [text], [not truncated], [sampled])
    own = session.rendering.episode(text)[1] if isinstance(text, Episode) else []
    return Answer(text, tuple(ids[:room]), not truncated, tuple(own[:room]))


# ---- what the policy answers -----------------------------------------------------------------------------------


def _answers(alone: LlmSession, problems: list[Problem]) -> Drawn:
    """Completions of the policy, scored and credited as the run's own; without advantages where the run has none, or
    where the rewards are only those that a function of the user's has given before."""
    asks_user = "reward_source" in alone.knobs and choices.REWARD[str(alone.knobs["reward_source"])].asks_user
    if asks_user or "advantage" not in alone.knobs:
        generated = generate(alone, alone.policy, problems, _samples(alone), Sampling.of(alone.knobs))
        return Drawn(generated, (known if asks_user else verified)(alone, problems, generated), None)
    alone = replace(alone, knobs={**alone.knobs, "group_size": _samples(alone)})
    sampled = answered(alone, problems)
    rollout = credit(alone.knobs, rollout_of(alone, sampled))
    advantages = rollout.credited.sum(1) / sampled.completions.lengths
    return Drawn(Generated(sampled.prompts, sampled.completions, sampled.texts), sampled.rewards, advantages)


def _sampled(generated: Generated, row: int) -> Answer:
    completions = generated.completions
    ids, own = (column[row, :int(completions.extents[row])].tolist() for column in (completions.ids, completions.mask))
    return Answer(generated.texts[row], tuple(ids), not bool(completions.truncated[row]), tuple(own))


def _by_count(answers: list[Answer]) -> list[Answer]:
    """Each of some answers once, the most frequent first; of equals, the earlier one."""
    first = {answer.key: answer for answer in reversed(answers)}
    return [first[key] for key, _ in Counter(answer.key for answer in answers).most_common()]


def _pair_of(alone: LlmSession, rewards: Rewards, answers: list[Answer], rows: range) -> tuple[Answer, Answer] | None:
    """The best and the worst of a prompt's samples, where the run learns from such pairs and they differ."""
    if not _learns_pairs(alone):
        return None
    earned = rewards.total[rows.start: rows.stop].tolist()
    best, worst = best_and_worst(earned)
    return (answers[best], answers[worst]) if earned[best] > earned[worst] else None


def _shown(alone: LlmSession, problem: Problem, answer: Answer, pair: tuple[Answer, Answer] | None, drawn: Drawn,
           rows: list[int]) -> dict[str, Any]:
    """An answer in plain words; `rows`: the samples that gave it, over which reward and advantage are means."""
    judged = alone.spec.task_row.verifiable
    rewards = [float(drawn.rewards.total[row]) for row in rows if judged]
    advantages = [] if drawn.advantages is None else [float(drawn.advantages[row]) for row in rows]
    role = "" if pair is None else {pair[1].key: "rejected", pair[0].key: "chosen"}.get(answer.key, "")
    return {"text": answer.text, "truncated": not answer.ended, "count": len(rows),
            "exact": alone.task.score(problem, answer.text).exact if judged else None,
            "reward": _mean(rewards), "advantage": _mean(advantages), **({"role": role} if role else {}),
            **_steps(alone, answer, drawn.rewards, rows),
            **({"parts": parts} if rewards and (parts := {name: _mean([float(part[row]) for row in rows])
                                                          for name, part in drawn.rewards.parts.items()}) else {})}


def _steps(alone: LlmSession, answer: Answer, rewards: Rewards, rows: list[int]) -> dict[str, Any]:
    """The steps of an answer that was sampled, with their scores; nothing where steps are not scored."""
    if not rows or rewards.step_scores is None:
        return {}
    found = step_scores.at_tokens(rewards, rows[0], len(answer.ids))
    written = [token for token in answer.ids if token not in alone.rendering.ends]
    texts = token_texts(alone.tokenizer, written) + [""] * (len(answer.ids) - len(written))
    return {"steps": step_scores.as_steps(texts, found["step_scores"], found.get("step_gold", []))}


def _mean(values: list[float]) -> float | None:
    """The mean of those that are numbers; None without any."""
    found = [value for value in values if not isnan(value)]
    return round(sum(found) / len(found), 5) if found else None


# ---- how likely it is ------------------------------------------------------------------------------------------


def _padded(candidates: list[list[Answer]], device: torch.device) -> Completions:
    """The candidates of all prompts as rows, group by group: short groups are filled up with their first answer."""
    size = max(map(len, candidates))
    rows = [replace(answer, own=answer.own or (True,) * len(answer.ids)) for group in candidates
            for answer in [*group, *[group[0]] * (size - len(group))]]
    width = max(len(row.ids) for row in rows)
    ids = torch.tensor([[*row.ids, *[0] * (width - len(row.ids))] for row in rows], device=device)
    mask = torch.tensor([[*row.own, *[False] * (width - len(row.own))] for row in rows], device=device)
    return Completions(ids, mask, ~mask.any(1))


def _sums(session: LlmSession, model: Network, prompts: Prompts, completions: Completions,
          temperature: float) -> Tensor:
    """Summed log-probs of the rows of each prompt under `model`. (P, C) float64, nats"""
    at = replace(session, knobs={**session.knobs, "temperature": temperature})
    return token_logprobs(at, model, prompts, completions).double().sum(1).view(len(prompts), -1).cpu()


def _probability(logprob: float) -> float:
    return float(f"{np.exp(logprob):.5g}")


def _margin(answers: list[dict[str, Any]], logprobs: list[float], ref_logprobs: list[float],
            beta: float) -> float | None:
    """β times how much more than the reference the policy prefers chosen to rejected; None without a pair."""
    places = {answer.get("role"): place for place, answer in enumerate(answers)}
    if not {"chosen", "rejected"} <= places.keys():
        return None
    chosen, rejected = (logprobs[place] - ref_logprobs[place] for place in (places["chosen"], places["rejected"]))
    return round(beta * (chosen - rejected), 5)
