"""Sources of step labels for a process reward model: a choice of the run, named by the family STEP_LABELS.

A source is a function here of the session that gives the labelled answers of one update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from labcore.catalog import choices
from labcore.errors import LabError
from labcore.llm.drawing import next_rows
from labcore.llm.generation import Generated, Sampling, continued, generate
from labcore.llm.session import LlmSession
from labcore.llm.steps import Steps, given_steps, steps_of_completions
from labcore.maths.call import call, member
from labcore.runs.spec.activity import part_of
from labcore.tasks.steps import StepTask, labelled_steps, separator_of
from labcore.tasks.task import Problem, draw
from labcore.tasks.usable import OfFile


@dataclass(frozen=True)
class Labelled:
    """P problems and P·G answers to them, split into steps. `labels` rate each step from 0 (wrong) to 1 (right). `gold`
    is the verifier's verdict on the steps, if the labels have another source and the task has such a verifier. `right`:
    which sampled answers are right."""

    problems: list[Problem]
    answers: list[Steps]
    labels: list[list[float]]
    gold: list[list[float]] | None = None
    right: list[bool] | None = None


def next_answers(session: LlmSession) -> Labelled:
    """The labelled answers of the next update."""
    found: Labelled = call(member(choices.STEP_LABELS, session.knobs["step_labels"]), session.knobs,
                           {"session": session})
    return found


def dataset(session: LlmSession, prompts_per_step: int) -> Labelled:
    """The labels of the user's file, as many rows as an update has prompts."""
    assert isinstance(session.task, OfFile), "its labels are in the user's file"
    return of_rows(session, next_rows(session, partial(draw, session.task.rows), int(prompts_per_step)))


def step_verifier(session: LlmSession, prompts_per_step: int, group_size: int) -> Labelled:
    """y_k = 1 where some answer that begins with steps 1 … k is right; of the last step of an answer that has ended,
    where the answer is right. Answers are the policy's own."""
    problems, generated, answers = _sampled(session, prompts_per_step, group_size)
    return Labelled(problems, answers, verified_steps(session, problems, generated, answers),
                    right=_right(session, problems, generated))


def monte_carlo(session: LlmSession, prompts_per_step: int, group_size: int, label_rollouts: int,
                hard_labels: bool) -> Labelled:
    """y_k = mean_j r(y_1 … y_k, ỹ_j) over K completions ỹ_j that the policy samples from the end of step k; with hard
    labels 1 where any of them is right. Of the last step of an answer that has ended, whether the answer is right. One
    that the length limit cuts off has no outcome and is not right: it counts among the K, with r = 0.

    Source: Wang et al. 2023, arXiv:2312.08935, eqs. 3 and 4 (Math-Shepherd: soft and hard estimation, where only a
    decoded answer a_j can equal the right one); Luo et al. 2024, arXiv:2406.06592, section 3.1 (OmegaPRM: the share of
    right rollouts among all).
    """
    problems, generated, answers = _sampled(session, prompts_per_step, group_size)
    shares = _continued(session, problems, generated, answers, int(label_rollouts))
    labels = [[float(share > 0) for share in row] for row in shares] if hard_labels else shares
    gold = verified_steps(session, problems, generated, answers) if isinstance(session.task, StepTask) else None
    return Labelled(problems, answers, labels, gold, _right(session, problems, generated))


def of_rows(session: LlmSession, rows: Sequence[Problem]) -> Labelled:
    """Rows of the user's file with their own labels. Raises LabError if `step_separator` is empty, so that each token
    is a step, and a row has a step of several tokens."""
    separator, found = separator_of(session.knobs), [labelled_steps(row) for row in rows]
    answers = [given_steps(session.tokenizer, texts, separator) for texts, _ in found]
    for row, each in zip(rows, answers, strict=True):
        longest = max(map(len, each.ids))
        if not separator and longest > 1:
            raise LabError(f"Line {row.line} has a step of {longest} tokens, and `step_separator` is empty, so each "
                           "token is a step: set `step_separator` to the text that ends a step, such as \\n.")
    return Labelled([*rows], answers, [labels for _, labels in found])


def verified_steps(session: LlmSession, problems: Sequence[Problem], generated: Generated,
                   answers: Sequence[Steps]) -> list[list[float]]:
    """The label of each step by the task's own verifier: 1 where the answer can still become right, or is right. Raises
    LabError where it judges whole answers only."""
    if not isinstance(session.task, StepTask):
        raise LabError(f"The verifier of the task {session.spec.task!r} judges whole answers only: set "
                       "`step_labels=monte_carlo`, or give a file with labels and set `step_labels=dataset`.")
    task, size, found = session.task, len(answers) // len(problems), []
    ended = (~generated.completions.truncated).tolist()
    for row, each in enumerate(answers):
        problem, last = problems[row // size], len(each.texts) - 1
        found.append([float(session.task.score(problem, generated.texts[row]).exact if step == last and ended[row]
                            else task.can_become_right(problem, each.beginning(step)))
                      for step in range(last + 1)])
    return found


@part_of("answers to label")
def _sampled(session: LlmSession, prompts_per_step: int,
             group_size: int) -> tuple[list[Problem], Generated, list[Steps]]:
    problems = next_rows(session, session.task.problems, int(prompts_per_step))
    generated = generate(session, session.policy, problems, int(group_size), Sampling.of(session.knobs))
    return problems, generated, steps_of_completions(session.tokenizer, generated.completions, session.rendering.ends,
                                                     separator_of(session.knobs))


def _right(session: LlmSession, problems: list[Problem], generated: Generated) -> list[bool]:
    """The answers that have ended and are right."""
    size, cut = len(generated.texts) // len(problems), generated.completions.truncated.tolist()
    return [not cut[row] and session.task.score(problems[row // size], text).exact
            for row, text in enumerate(generated.texts)]


@part_of("rollouts from each step")
def _continued(session: LlmSession, problems: Sequence[Problem], generated: Generated, answers: Sequence[Steps],
               count: int) -> list[list[float]]:
    """The share of `count` completions from the end of each step that end and are right; for the last step of an ended
    answer, whether the answer is right."""
    size, ids = len(answers) // len(problems), generated.completions.ids.tolist()
    ended = (~generated.completions.truncated).tolist()
    found = [[0.0] * len(each.places) for each in answers]
    open_steps: dict[tuple[int, tuple[int, ...]], list[tuple[int, int]]] = {}  # equal beginnings are asked once
    for row, each in enumerate(answers):
        for step, place in enumerate(each.places):
            if step == len(each.places) - 1 and ended[row]:
                score = session.task.score(problems[row // size], generated.texts[row])
                found[row][step] = float(score.exact)
            else:
                open_steps.setdefault((row // size, tuple(ids[row][:place + 1])), []).append((row, step))
    if not open_steps:
        return found
    drawn = continued(session, session.policy, [problems[of] for of, _ in open_steps], [beginning for _, beginning in
                      open_steps], count, Sampling.of(session.knobs))
    for place, ((of, _), steps) in enumerate(open_steps.items()):
        right = [over and session.task.score(problems[of], text).exact
                 for text, over in drawn[place * count: (place + 1) * count]]
        for row, step in steps:
            found[row][step] = sum(right) / count
    return found


def tensors(rows: Sequence[Sequence[float]], most: int, device: torch.device) -> torch.Tensor:
    """Numbers of steps as a tensor, 0 behind the last. (B, K)"""
    return torch.tensor([[*row, *[0.0] * (most - len(row))] for row in rows], device=device)
