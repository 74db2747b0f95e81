"""Process rewards of sampled completions: the scores of their steps, by a trained model or the task's verifier, and the
rewards that these become at the tokens where steps end.

The rewards of all steps are part of a completion's total. `per_token` says where it is earned: it moves the total from
the last token, where a reward stands, to the ends of the steps, and sums to 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from labcore.catalog import choices
from labcore.errors import LabError
from labcore.llm.batch import Completions, Prompts
from labcore.llm.generation import Generated
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.micro_batches import retried
from labcore.llm.nets.scorer import SEPARATOR
from labcore.llm.nets.text_step_scorer import TextStepScorer
from labcore.llm.networks import SCORER
from labcore.llm.session import LlmSession
from labcore.llm.step_labels import tensors, verified_steps
from labcore.llm.steps import Steps, at_places, encode_steps, step_scores, steps_of_completions
from labcore.maths.call import call, member
from labcore.runs.spec.activity import part_of
from labcore.tasks.steps import StepTask, separator_of
from labcore.tasks.task import Problem

CPU = torch.device("cpu")
StepScorer = Critic | TextStepScorer  # a run's model, or a published one


def answers_of(session: LlmSession, completions: Completions) -> list[Steps]:
    """The steps of completions, as the run cuts them."""
    return steps_of_completions(session.tokenizer, completions, session.rendering.ends, separator_of(session.knobs))


@retried
@part_of("scores of the steps")
def model_scores(session: LlmSession, problems: list[Problem], answers: list[Steps]) -> Tensor:
    """The mean score of each step by the run's process reward models, NaN where there is no step. P problems, P·G
    answers -> (B, K) float64. Raises LabError if a score is not finite."""
    models = cast(Iterable[StepScorer], session.models[SCORER])
    found = torch.stack([scores_by(session, model, problems, answers) for model in models]).mean(0)
    if not all(row[:len(answer.texts)].isfinite().all() for row, answer in zip(found, answers, strict=True)):
        raise LabError(f"The process reward model {session.knobs['reward_model']} gives scores that are not finite: "
                       "take an earlier checkpoint of it, or train it again at a lower learning rate.")
    return found


def scores_by(session: LlmSession, model: StepScorer, problems: list[Problem], answers: list[Steps]) -> Tensor:
    """The score of each step by `model`, NaN where there is no step. P problems, P·G answers -> (B, K) float64"""
    dtype = str(session.knobs["dtype"])
    if isinstance(model, TextStepScorer):
        size = len(answers) // len(problems)
        each = [problem for problem in problems for _ in range(size)]
        return model.scores(each, [answer.texts for answer in answers], dtype)
    read = encode_steps(session.rendering, problems, answers, session.context, session.device)
    return step_scores(model, read, dtype, session.room).double().cpu()


def steps_for(session: LlmSession, model: StepScorer, completions: Completions) -> list[Steps]:
    """The steps of completions, split by the separator that `model` was trained with."""
    separator = (model.separator if isinstance(model, TextStepScorer)
                 else separator_of({"step_separator": getattr(model.config, SEPARATOR)}))
    return steps_of_completions(session.tokenizer, completions, session.rendering.ends, separator)


def totals(scores: Tensor, by: str) -> list[float]:
    """One score per answer: the scores of its steps combined by a `step_reward` such as `lowest`. (B, K) -> (B,)"""
    found: list[float] = rewards_of_steps({"step_reward": by}, scores).sum(1).tolist()
    return found


def verifier_scores(session: LlmSession, problems: list[Problem], generated: Generated, answers: list[Steps]) -> Tensor:
    """1 for each step after which the answer can still become right, else 0; NaN where there is no step. (B, K)
    float64"""
    labels = verified_steps(session, problems, generated, answers)
    most = max(map(len, labels))
    steps = tensors([[1.0] * len(row) for row in labels], most, CPU) > 0
    return tensors(labels, most, CPU).double().masked_fill(~steps, torch.nan)


def gold_scores(session: LlmSession, problems: list[Problem], generated: Generated,
                answers: list[Steps]) -> Tensor | None:
    """The verifier's scores of the steps; None if the task's verifier judges only whole answers."""
    return verifier_scores(session, problems, generated, answers) if isinstance(session.task, StepTask) else None


def rewards_of_steps(knobs: Mapping[str, Any], scores: Tensor) -> Tensor:
    """The rewards that scores become, 0 where there is no step. (B, K) -> (B, K)"""
    steps = ~scores.isnan()
    found: Tensor = call(member(choices.STEP_REWARD, str(knobs["step_reward"])), knobs,
                         {"scores": scores.nan_to_num(), "steps": steps})
    return found


def moved_to_steps(rewards: Tensor, answers: list[Steps], lengths: Tensor, width: int) -> Tensor:
    """Rewards of steps at their tokens, less their sum at the last token, where the completion's total stands. (B, K)
    -> (B, width), each row of sum 0"""
    placed = at_places(rewards, answers, width)
    return placed.scatter_add(1, (lengths[:, None].cpu() - 1).clamp(min=0), -rewards.sum(1, keepdim=True))


def scores_at(scores: Tensor, answers: list[Steps], width: int) -> Tensor:
    """Scores of steps at the tokens where they end, NaN elsewhere; of several at one token the last. -> (B, width)"""
    placed = torch.full((len(answers), width), torch.nan, dtype=scores.dtype)
    for row, each in enumerate(answers):
        for place, value in zip(each.places, scores[row].tolist(), strict=False):
            placed[row, place] = value
    return placed


def problems_once(problems: list[Problem], prompts: Prompts) -> list[Problem]:
    """One problem for each prompt, of problems that are repeated for the completions of their groups."""
    return problems[::len(problems) // len(prompts)]
