"""The rewards of completions: each run chooses their source, as it chooses its loss.

A source is a function in this module that returns `Rewards`; the family REWARD lists them. Its parameters name its
inputs: `task`, `problems` (B, one for each completion), `texts` (B), `prompts` (P), `completions`, `rng`, `session`, or
a knob. A source other than the task's own score is a proxy; its part `gold` is the task's score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from labcore.catalog import choices, reward_terms
from labcore.errors import LabError
from labcore.llm import process_rewards
from labcore.llm.batch import Completions, Prompts
from labcore.llm.episodes import rewards_at_turns
from labcore.llm.generation import Generated
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.micro_batches import retried
from labcore.llm.nets.scorer import scores
from labcore.llm.nets.text_scorer import TextScorer
from labcore.llm.networks import SCORER
from labcore.llm.rendering import encode_answers
from labcore.llm.session import LlmSession
from labcore.llm.steps import Steps
from labcore.llm.token_texts import token_texts
from labcore.maths import ensembles
from labcore.maths.call import call, member
from labcore.runs.spec.activity import part_of, report
from labcore.tasks import reward_call
from labcore.tasks.judge import Judge
from labcore.tasks.task import Problem, Score, TextTask

KNOWN = 2**17  # completions whose rewards are remembered, the newest
SCORING = "scoring {} of {} completions"
TOTAL = ""  # beside the names of parts


@dataclass(frozen=True)
class Rewards:
    """The rewards of B completions.

    total: (B,) float64; NaN if a completion could not be scored.
    exact: (B,) bool; True if a completion is completely right.
    parts: the rewards that the total consists of, logged as `reward/<part>`.
    weights: the total is the sum of these parts times their weights; empty if it is one reward.
    per_token: (B, T) rewards of single tokens, in addition to the total; None without any.
    step_scores, step_gold: (B, T) the score of each step and the verifier's verdict on it, at its last token; NaN at
        all others.
    of_turns: (B, T) the rewards of an episode's turns, at the last token of each; the total is their sum.
    may_lack: True if the source regularly leaves completions unscored, so that their share is logged.
    """

    total: Tensor
    exact: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    per_token: Tensor | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    may_lack: bool = False
    step_scores: Tensor | None = None
    step_gold: Tensor | None = None
    of_turns: Tensor | None = None

    def __getitem__(self, rows: Tensor) -> Rewards:
        per_token, scores, gold, turns = (None if each is None else each[rows] for each in (
            self.per_token, self.step_scores, self.step_gold, self.of_turns))
        return Rewards(self.total[rows], self.exact[rows], {name: part[rows] for name, part in self.parts.items()},
                       per_token, self.weights, self.may_lack, scores, gold, turns)


def verifier(task: TextTask, problems: list[Problem], texts: list[str], completions: Completions) -> Rewards:
    """R = the score by the task's verifier; for an episode Σ_k r_k, the rewards that the environment gave for its
    turns. (B,)"""
    return replace(verdict(task, problems, texts), of_turns=rewards_at_turns(texts, completions))


def verdict(task: TextTask, problems: list[Problem], texts: list[str]) -> Rewards:
    """The score of the task's verifier for each text, whatever the run is rewarded with. (B,)"""
    scores: list[Score] = []
    for problem, text in zip(problems, texts, strict=True):
        report(SCORING, len(scores), len(texts))
        scores.append(task.score(problem, text))
    return Rewards(torch.tensor([score.reward for score in scores], dtype=torch.float64),
                   torch.tensor([score.exact for score in scores], dtype=torch.bool))


def noisy_verifier(task: TextTask, problems: list[Problem], texts: list[str], reward_noise: float,
                   rng: np.random.Generator) -> Rewards:
    """R = 1 − r with probability `reward_noise`, else r, the verifier's reward. (B,)

    The part `verifier` is r, so that the run shows what it really earned beside what it was given.
    """
    true = verdict(task, problems, texts)
    flipped = torch.from_numpy(rng.random(len(texts)) < reward_noise)
    return Rewards(torch.where(flipped, 1 - true.total, true.total), true.exact, {"verifier": true.total})


def reward_model(task: TextTask, problems: list[Problem], texts: list[str], prompts: Prompts,
                 completions: Completions, session: LlmSession) -> Rewards:
    """R = r_φ(x, y), the score of the run's reward model, at the last token; of several the mean. (B,)"""
    return _judged(verdict(task, problems, texts), _scores(session, problems, texts, prompts, completions),
                   ensembles.mean)


def worst_case_ensemble(task: TextTask, problems: list[Problem], texts: list[str], prompts: Prompts,
                        completions: Completions, session: LlmSession) -> Rewards:
    """R = min_k r_k(x, y), the lowest score of the run's reward models. (B,)"""
    return _judged(verdict(task, problems, texts), _scores(session, problems, texts, prompts, completions),
                   ensembles.worst_case)


def uncertainty_weighted_ensemble(task: TextTask, problems: list[Problem], texts: list[str], prompts: Prompts,
                                  completions: Completions, session: LlmSession, uncertainty_weight: float) -> Rewards:
    """R = mean_k r_k(x, y) − λ var_k r_k(x, y), over the run's reward models. (B,)"""
    return _judged(verdict(task, problems, texts), _scores(session, problems, texts, prompts, completions),
                   partial(ensembles.uncertainty_weighted, uncertainty_weight=uncertainty_weight))


@retried
@part_of("scores of the reward model")
def _scores(session: LlmSession, problems: list[Problem], texts: list[str], prompts: Prompts,
            completions: Completions) -> Tensor:
    """The scores of each of the run's reward models. (K, B) float64

    One of the lab's reads tokens; a chat template may write more behind an answer's end, and it reads conversations as
    it learnt them. One with a tokenizer of its own reads texts.
    """
    dtype, chat = str(session.knobs["dtype"]), session.rendering.template is not None
    members = [*cast(Iterable[Critic | TextScorer], session.models[SCORER])]
    if chat and not all(isinstance(member, TextScorer) for member in members):
        prompts, completions = encode_answers(session.rendering, problems[::len(texts) // len(prompts)], texts,
                                              session.context, session.device, completions.truncated.tolist())
    found = torch.stack([
        (member.scores(problems, texts, chat, dtype) if isinstance(member, TextScorer)
         else scores(member, prompts, completions, dtype, session.room)).double().cpu() for member in members])
    if not found.isfinite().all():
        raise LabError(f"The reward model {session.knobs['reward_model']} gives scores that are not finite: take an "
                       "earlier checkpoint of it, or train it again at a lower learning rate.")
    return found


def _judged(true: Rewards, given: Tensor, combine: Callable[[Tensor], Tensor]) -> Rewards:
    """The scores (K, B) as one reward; of several models also how far they are apart."""
    apart = {"spread": ensembles.spread(given)} if len(given) > 1 else {}
    return Rewards(combine(given), true.exact, {"gold": true.total, **apart})


def order_only(task: TextTask, problems: list[Problem], texts: list[str]) -> Rewards:
    """R = 1 if the letters are in order, whatever they are and however few; else 0. (B,)

    A planted hole for `sort`: nobody looks whether they are the prompt's letters, so a single one will do.
    """
    true = verdict(task, problems, texts)
    ordered = torch.tensor([bool(text) and list(text) == sorted(text) for text in texts], dtype=torch.float64)
    return Rewards(ordered, true.exact, {"gold": true.total})


def steps_and_outcome(task: TextTask, problems: list[Problem], texts: list[str], completions: Completions,
                      session: LlmSession) -> Rewards:
    """R = r at the last token, plus 1/T at each character that equals the answer's character at the same place; T is
    the length of the answer. (B,)

    A verifier of every step, for tasks with one right answer, as `add`. The part `steps` is the sum of these rewards.
    """
    outcome = verdict(task, problems, texts)
    given = [_step_rewards(session, problem.answer, ids[:length]) for problem, ids, length in zip(
        problems, completions.ids.tolist(), completions.lengths.tolist(), strict=True)]
    width = completions.ids.shape[1]
    per_token = torch.tensor([row + [0.0] * (width - len(row)) for row in given], dtype=torch.float64)
    return Rewards(outcome.total, outcome.exact, {"steps": per_token.sum(1)}, per_token)


def _step_rewards(session: LlmSession, answer: str, ids: list[int]) -> list[float]:
    """The reward of each token: the share of the answer's characters that it writes at their places."""
    place, found = 0, []
    written = [token for token in ids if token not in session.rendering.ends]
    for text in token_texts(session.tokenizer, written):
        right = sum(a == b for a, b in zip(text, answer[place:place + len(text)], strict=False))
        found.append(right / max(len(answer), 1))
        place += len(text)
    return found + [0.0] * (len(ids) - len(written))


def process_reward(task: TextTask, problems: list[Problem], texts: list[str], prompts: Prompts,
                   completions: Completions, session: LlmSession, outcome_weight: float) -> Rewards:
    """R = Σ_k r(s_k) + w_o r: rewards computed from the scores of the steps, at the last token of each step, plus the
    verifier's reward at the last token. (B,)

    s_k is the probability that step k is right by the run's process reward model, of several their mean.
    """
    generated, asked = Generated(prompts, completions, texts), process_rewards.problems_once(problems, prompts)
    answers = process_rewards.answers_of(session, completions)
    scores = process_rewards.model_scores(session, asked, answers)
    true = verdict(task, problems, texts)
    made = _of_steps(session, true, completions, answers, scores, outcome_weight)
    gold = process_rewards.gold_scores(session, asked, generated, answers)
    parts = {**made.parts, "gold": true.total}
    if gold is None:
        return replace(made, parts=parts)
    return replace(made, parts={**parts, "steps_right": gold.nanmean(1)},
                   step_gold=process_rewards.scores_at(gold, answers, completions.ids.shape[1]))


def step_verifier(task: TextTask, problems: list[Problem], texts: list[str], prompts: Prompts,
                  completions: Completions, session: LlmSession, outcome_weight: float) -> Rewards:
    """R = Σ_k r(s_k) + w_o r, with s_k = 1 while the answer can still become right, else 0. (B,)"""
    answers = process_rewards.answers_of(session, completions)
    scores = process_rewards.verifier_scores(session, process_rewards.problems_once(problems, prompts),
                                             Generated(prompts, completions, texts), answers)
    return _of_steps(session, verdict(task, problems, texts), completions, answers, scores, outcome_weight)


def _of_steps(session: LlmSession, true: Rewards, completions: Completions, answers: list[Steps], scores: Tensor,
              outcome_weight: float) -> Rewards:
    """The rewards of completions whose steps have these scores (B, K). `step_score` is their mean."""
    rewards, width = process_rewards.rewards_of_steps(session.knobs, scores), completions.ids.shape[1]
    return Rewards(rewards.sum(1) + outcome_weight * true.total, true.exact, {"step_score": scores.nanmean(1)},
                   process_rewards.moved_to_steps(rewards, answers, completions.lengths, width),
                   step_scores=process_rewards.scores_at(scores, answers, width))


def own_function(task: TextTask, problems: list[Problem], texts: list[str], prompts: Prompts,
                 completions: Completions, session: LlmSession, reward_function: str, reward_weights: str) -> Rewards:
    """R = Σ_k w_k r_k over the rewards of the user's own that score the completion; NaN where none does. (B,)

    Each of several is a part; a single one of weight 1 is the reward itself. Raises LabError if this machine does not
    have a function, or the function returns something other than a reward.
    """
    true, named = verdict(task, problems, texts), reward_terms.terms(reward_function)
    report(SCORING, 0, len(texts))
    functions = [term for term in named if term.function]
    parts = dict(zip([term.key for term in functions], reward_call.rewards(
        functions, _asked(session, problems, texts, completions)), strict=True))
    others: dict[str, Callable[[], Tensor]] = {
        reward_terms.VERIFIER: lambda: true.total,
        reward_terms.REWARD_MODEL: lambda: ensembles.mean(_scores(session, problems, texts, prompts, completions)),
        reward_terms.JUDGE: lambda: _grades(Judge.of(session.knobs), problems, texts)}
    found = [others[term.key]() if term.key in others else torch.tensor(parts[term.key], dtype=torch.float64)
             for term in named]
    return _summed(true, dict(zip([term.part for term in named], found, strict=True)),
                   reward_terms.weights(reward_weights, len(named)))


def _summed(true: Rewards, parts: Mapping[str, Tensor], weights: list[float]) -> Rewards:
    """The weighted sum of several rewards, together with the true score."""
    total = ensembles.weighted_sum(torch.stack([*parts.values()]), torch.tensor(weights, dtype=torch.float64))
    if weights == [1.0]:
        return Rewards(total, true.exact, {"gold": true.total}, may_lack=True)
    return Rewards(total, true.exact, {**parts, "gold": true.total}, weights=dict(zip(parts, weights, strict=True)),
                   may_lack=True)


def _asked(session: LlmSession, problems: list[Problem], texts: list[str],
           completions: Completions) -> reward_call.Asked:
    """The arguments of the user's functions."""
    ids = [row[:length] for row, length in zip(completions.ids.tolist(), completions.extents.tolist(), strict=True)]
    each = int(session.knobs["updates_per_batch"]) * int(session.knobs["mini_batches"])
    return reward_call.Asked(problems, texts, ids, reward_call.columns_of(session.task), session.updates,
                             session.spec.steps * each)


def judge(task: TextTask, problems: list[Problem], texts: list[str], judge_url: str, judge_model: str,
          judge_instruction: str) -> Rewards:
    """R = a tenth of the grade that a judge gives, from 0 to 1; NaN where it gives none. (B,). Raises LabError if this
    machine may not ask it, or it grades none of the completions."""
    true = verdict(task, problems, texts)
    grades = _grades(Judge.at(judge_url, judge_model, judge_instruction), problems, texts)
    return Rewards(grades, true.exact, {"gold": true.total}, may_lack=True)


def _grades(asked: Judge, problems: list[Problem], texts: list[str]) -> Tensor:
    return torch.tensor(asked.scores(problems, texts), dtype=torch.float64)


def known(session: LlmSession, problems: list[Problem], generated: Generated) -> Rewards:
    """The rewards of completions that are already known, for a source that must not be called again for a picture
    (`Choice.asks_user`); NaN for all others. (B,)"""
    true, rows = verified(session, problems, generated), _rows(problems, generated)
    found = [session.earned.get(_place(*each), {}) for each in zip(rows, generated.texts, strict=True)]
    names = [TOTAL, *(term.part for term in reward_terms.of(session.knobs))]
    columns = {name: torch.tensor([each.get(name, math.nan) for each in found], dtype=torch.float64) for name in names}
    return Rewards(columns.pop(TOTAL), true.exact, {**columns, "gold": true.total}, may_lack=True)


def _remember(session: LlmSession, problems: list[Problem], texts: list[str], rewards: Rewards) -> None:
    """Store the source's rewards, so that pictures do not call it again."""
    columns = {TOTAL: rewards.total, **rewards.parts}
    for row, place in enumerate(map(_place, problems, texts)):
        session.earned.pop(place, None)
        session.earned[place] = {name: float(column[row]) for name, column in columns.items()}
    while len(session.earned) > KNOWN:
        del session.earned[next(iter(session.earned))]


def _place(problem: Problem, text: str) -> tuple[Hashable, ...]:
    return problem.prompt, tuple(problem.turns), problem.answer, text


def silent(rewards: Rewards, group_size: int) -> list[int]:
    """The prompts none of whose completions has a reward, by their places."""
    return rewards.total.isnan().view(-1, group_size).all(1).nonzero().flatten().tolist()


def say_unscored(session: LlmSession, rewards: Rewards, group_size: int) -> None:
    """Have the next record say that groups to learn from got no reward at all, where the step before had none such."""
    groups, count = len(rewards.total) // group_size, len(silent(rewards, group_size))
    if count and not session.unscored:
        who = reward_terms.scorers(session.knobs)
        session.notes.append(f"At step {session.step + 1:,} {who} scored no completion of {count} of {groups} prompts, "
                             "so these prompts teach nothing: have it return a number instead of None.")
    session.unscored = bool(count)


def correct_and_format(task: TextTask, problems: list[Problem], texts: list[str], completions: Completions,
                       correct_weight: float, format_weight: float) -> Rewards:
    """R = w_1 r_correct + w_2 r_format. (B,)

    `correct` is the verifier's reward; `format` is 1 where the completion ended by itself and, where the problem has an
    answer, is as long as that one, else 0. What the verifier could not score has neither.
    """
    true, ended = verdict(task, problems, texts), (~completions.truncated).tolist()
    formed = [ends and len(text) == len(problem.answer or text)
              for problem, text, ends in zip(problems, texts, ended, strict=True)]
    form = torch.tensor(formed, dtype=torch.float64).masked_fill(true.total.isnan(), torch.nan)
    return Rewards(correct_weight * true.total + format_weight * form, true.exact,
                   {"correct": true.total, "format": form},
                   weights={"correct": correct_weight, "format": format_weight})


def reward(session: LlmSession, problems: list[Problem], generated: Generated) -> Rewards:
    """The rewards of the completions of `problems`, from the source that the run chose."""
    knobs, rows = session.knobs, _rows(problems, generated)
    found: Rewards = call(member(choices.REWARD, knobs["reward_source"]), knobs, {
        "task": session.task, "problems": rows, "texts": generated.texts, "prompts": generated.prompts,
        "completions": generated.completions, "rng": session.rng, "session": session})
    if choices.REWARD[knobs["reward_source"]].asks_user:
        _remember(session, rows, generated.texts, found)
    return found


def shaped(session: LlmSession, rewards: Rewards, completions: Completions) -> Tensor:
    """The rewards after shaping. (B,)"""
    found: Tensor = call(member(choices.SHAPING, session.knobs["shaping"]), session.knobs, {
        "rewards": rewards.total.float().to(session.device), "lengths": completions.lengths})
    return found


def earned(session: LlmSession, problems: list[Problem], generated: Generated) -> Tensor:
    """The total reward of each completion: its shaped reward plus the rewards of its tokens. (B,)"""
    rewards, done = reward(session, problems, generated), generated.completions
    whole = shaped(session, rewards, done)
    return whole if rewards.per_token is None else whole + (
        rewards.per_token.float().to(session.device) * done.mask).sum(1)


def verified(session: LlmSession, problems: list[Problem], generated: Generated) -> Rewards:
    """The task's own verdict on the completions of `problems`, whatever the run is rewarded with."""
    return verdict(session.task, _rows(problems, generated), generated.texts)


def _rows(problems: list[Problem], generated: Generated) -> list[Problem]:
    """The problem of each completion. (B,)"""
    size = len(generated.texts) // len(problems)
    return [problem for problem in problems for _ in range(size)]
