"""The rewards of completions: where they come from is a choice of the run, as the loss is.

A source is a function here, named by the family REWARD, that gives `Rewards`. It asks for what it needs by its
parameters: `task`, `problems` (B, one for each completion), `texts` (B), `prompts` (P), `completions`, `rng`,
`session`, or a knob. What is rewarded in place of the task's own score is a proxy: its part `gold` is that score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from labcore.catalog import choices
from labcore.errors import LabError
from labcore.llm.batch import Completions, Prompts
from labcore.llm.generation import Generated
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.micro_batches import retried
from labcore.llm.networks import SCORER
from labcore.llm.rendering import encode_answers
from labcore.llm.scoring import scores
from labcore.llm.session import LlmSession
from labcore.maths import ensembles
from labcore.maths.call import call, member
from labcore.spec.activity import part_of, report
from labcore.tasks import own_reward
from labcore.tasks.task import Problem, TextTask

SCORING = "scoring {} of {} completions"


@dataclass(frozen=True)
class Rewards:
    """Rewards of B completions: `total` (B,) float64, NaN where one could not be scored; `exact` (B,) bool, whether it
    is wholly right; `parts`, what the total is made of, logged as `reward/<part>`; `per_token` (B, T), rewards of
    single tokens that come on top of the total, where there are any; `weights`, by which the total is the sum of those
    parts that are named there; empty where it is one reward.
    """

    total: Tensor
    exact: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    per_token: Tensor | None = None
    weights: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, rows: Tensor) -> Rewards:
        return Rewards(self.total[rows], self.exact[rows], {name: part[rows] for name, part in self.parts.items()},
                       None if self.per_token is None else self.per_token[rows], self.weights)


def verifier(task: TextTask, problems: list[Problem], texts: list[str]) -> Rewards:
    """R = what the task's verifier gives. (B,)"""
    scores = []
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
    true = verifier(task, problems, texts)
    flipped = torch.from_numpy(rng.random(len(texts)) < reward_noise)
    return Rewards(torch.where(flipped, 1 - true.total, true.total), true.exact, {"verifier": true.total})


def reward_model(task: TextTask, problems: list[Problem], texts: list[str], prompts: Prompts,
                 completions: Completions, session: LlmSession) -> Rewards:
    """R = r_φ(x, y), the score of the run's reward model, at the last token; of several the mean. (B,)"""
    return _judged(verifier(task, problems, texts), _scores(session, problems, texts, prompts, completions),
                   ensembles.mean)


def worst_case_ensemble(task: TextTask, problems: list[Problem], texts: list[str], prompts: Prompts,
                        completions: Completions, session: LlmSession) -> Rewards:
    """R = min_k r_k(x, y), the lowest score of the run's reward models. (B,)"""
    return _judged(verifier(task, problems, texts), _scores(session, problems, texts, prompts, completions),
                   ensembles.worst_case)


def uncertainty_weighted_ensemble(task: TextTask, problems: list[Problem], texts: list[str], prompts: Prompts,
                                  completions: Completions, session: LlmSession, uncertainty_weight: float) -> Rewards:
    """R = mean_k r_k(x, y) − λ var_k r_k(x, y), over the run's reward models. (B,)"""
    return _judged(verifier(task, problems, texts), _scores(session, problems, texts, prompts, completions),
                   partial(ensembles.uncertainty_weighted, uncertainty_weight=uncertainty_weight))


@retried
@part_of("scores of the reward model")
def _scores(session: LlmSession, problems: list[Problem], texts: list[str], prompts: Prompts,
            completions: Completions) -> Tensor:
    """What each of the run's reward models gives. (K, B) float64

    A chat template may write more behind an answer's end: reward models read conversations as they learnt them.
    """
    if session.rendering.template is not None:
        prompts, completions = encode_answers(session.rendering, problems[::len(texts) // len(prompts)], texts,
                                              session.context, session.device, completions.truncated.tolist())
    members = cast(Iterable[Critic], session.models[SCORER])
    found = torch.stack([scores(member, prompts, completions, str(session.knobs["dtype"]), session.room).double().cpu()
                         for member in members])
    if not found.isfinite().all():
        raise LabError(f"The reward model {session.knobs['reward_model']} gives scores that are not finite: take an "
                       "earlier checkpoint of it, or train it again at a lower learning rate.")
    return found


def _judged(true: Rewards, given: Tensor, combine: Callable[[Tensor], Tensor]) -> Rewards:
    """The scores (K, B) as one reward; of several models also how far they are apart."""
    apart = {"spread": ensembles.spread(given)} if len(given) > 1 else {}
    return Rewards(combine(given), true.exact, {"gold": true.total, **apart})


def order_only(task: TextTask, problems: list[Problem], texts: list[str]) -> Rewards:
    """R = 1 where the letters are in order, whichever they are and however few; else 0. (B,)

    A planted hole for `sort`: nobody looks whether they are the prompt's letters, so a single one will do.
    """
    true = verifier(task, problems, texts)
    ordered = torch.tensor([bool(text) and list(text) == sorted(text) for text in texts], dtype=torch.float64)
    return Rewards(ordered, true.exact, {"gold": true.total})


def steps_and_outcome(task: TextTask, problems: list[Problem], texts: list[str], completions: Completions,
                      session: LlmSession) -> Rewards:
    """R = r at the last token, and 1/T at each character that is the answer's at its place, T those of the answer. (B,)

    A verifier of every step, for tasks with one right answer, as `add`. The part `steps` is the sum of these rewards.
    """
    outcome = verifier(task, problems, texts)
    given = [_step_rewards(session, problem.answer, ids[:length]) for problem, ids, length in zip(
        problems, completions.ids.tolist(), completions.lengths.tolist(), strict=True)]
    width = completions.ids.shape[1]
    per_token = torch.tensor([row + [0.0] * (width - len(row)) for row in given], dtype=torch.float64)
    return Rewards(outcome.total, outcome.exact, {"steps": per_token.sum(1)}, per_token)


def _step_rewards(session: LlmSession, answer: str, ids: list[int]) -> list[float]:
    """The reward of each token: the share of the answer's characters that it writes at their places."""
    place, found = 0, []
    for token in ids:
        text = "" if token in session.rendering.ends else session.tokenizer.decode([token])
        right = sum(a == b for a, b in zip(text, answer[place:], strict=False))
        found.append(right / max(len(answer), 1))
        place += len(text)
    return found


def own_function(task: TextTask, problems: list[Problem], texts: list[str], reward_function: str) -> Rewards:
    """R = what the user's own Python function gives. (B,)

    Raises:
        LabError: this process was not given the function, or what it does is no reward.
    """
    true = verifier(task, problems, texts)
    report(SCORING, 0, len(texts))
    found = own_reward.rewards(reward_function, [problem.prompt for problem in problems], texts,
                               [problem.answer for problem in problems])
    return Rewards(torch.tensor(found, dtype=torch.float64), true.exact, {"gold": true.total})


def known(session: LlmSession, problems: list[Problem], generated: Generated) -> Rewards:
    """What is known of completions whose source a picture must not ask (`Choice.asks_user`): NaN where it never saw
    them. (B,)"""
    true, rows = verified(session, problems, generated), _rows(problems, generated)
    found = own_reward.known(str(session.knobs["reward_function"]), [problem.prompt for problem in rows],
                             generated.texts, [problem.answer for problem in rows])
    return Rewards(torch.tensor(found, dtype=torch.float64), true.exact, {"gold": true.total})


def correct_and_format(task: TextTask, problems: list[Problem], texts: list[str], completions: Completions,
                       correct_weight: float, format_weight: float) -> Rewards:
    """R = w_1 r_correct + w_2 r_format. (B,)

    `correct` is the verifier's reward; `format` is 1 where the completion ended by itself and, where the problem has an
    answer, is as long as that one, else 0. What the verifier could not score has neither.
    """
    true, ended = verifier(task, problems, texts), (~completions.truncated).tolist()
    formed = [ends and len(text) == len(problem.answer or text)
              for problem, text, ends in zip(problems, texts, ended, strict=True)]
    form = torch.tensor(formed, dtype=torch.float64).masked_fill(true.total.isnan(), torch.nan)
    return Rewards(correct_weight * true.total + format_weight * form, true.exact,
                   {"correct": true.total, "format": form},
                   weights={"correct": correct_weight, "format": format_weight})


def reward(session: LlmSession, problems: list[Problem], generated: Generated) -> Rewards:
    """The rewards of the completions of `problems`, from the source that the run chose."""
    knobs = session.knobs
    return call(member(choices.REWARD, knobs["reward_source"]), knobs, {
        "task": session.task, "problems": _rows(problems, generated), "texts": generated.texts,
        "prompts": generated.prompts, "completions": generated.completions, "rng": session.rng, "session": session})


def verified(session: LlmSession, problems: list[Problem], generated: Generated) -> Rewards:
    """What the task's verifier says of the completions of `problems`, whatever the run is rewarded with."""
    return verifier(session.task, _rows(problems, generated), generated.texts)


def _rows(problems: list[Problem], generated: Generated) -> list[Problem]:
    """The problem of each completion. (B,)"""
    size = len(generated.texts) // len(problems)
    return [problem for problem in problems for _ in range(size)]
