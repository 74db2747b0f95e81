"""A run's stored completions, and their scores from a verifier, the user's function or a judge.

The files of the steps store a part of each batch, groups with signal first. Reward models read tokens, so they are in
`labcore.llm.probes.reward_model_scores`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labcore.catalog import reward_terms
from labcore.catalog.knob import Value
from labcore.errors import LabError
from labcore.runs.files import step_files
from labcore.runs.spec.activity import report
from labcore.tasks import reward_call, verifiers
from labcore.tasks.judge import Judge
from labcore.tasks.task import Problem, TextTask, Turn

SCORING = "scoring {} of {} completions"


@dataclass(frozen=True)
class Stored:
    """A completion: `reward` is the run's reward, NaN if there is none; `group` is the index of its prompt in the
    step's file. `cut`: it was truncated at the length limit."""

    step: int
    group: int
    problem: Problem
    text: str
    reward: float
    cut: bool


Scores = Callable[[Sequence[Stored]], list[float]]  # one per completion, NaN if it cannot be scored


def read(run_id: str, steps: Sequence[int], task: TextTask | None) -> Iterator[Stored]:
    """Read the completions in the files of these steps. Rows of the task's file are identified by prompt and answer.

    Of a completion with several messages, the text is the last one of the model. Raises Damaged if a file was not
    written by a worker.
    """
    rows = {(row.prompt, row.answer): row for row in getattr(task, "rows", ()) if isinstance(row, Problem)}
    for done, step in enumerate(steps):
        report("reading step {} of {}", done, len(steps))
        content = step_files.read(step_files.path_of(run_id, "samples", step), "delete it, then try again")
        for place, group in enumerate(content.get("groups") or ()):
            prompt, answer = str(group.get("prompt", "")), str(group.get("answer") or "")
            turns = _turns(group.get("messages"))
            problem = rows.get((prompt, answer)) or Problem(prompt, answer, turns=turns if len(turns) > 1 else (),
                                                            talk=bool(turns))
            for each in group["completions"]:
                yield Stored(step, place, problem, str(each.get("final", each["text"])), _number(each.get("reward")),
                             bool(each.get("truncated")))


def _turns(messages: object) -> tuple[Turn, ...]:
    """The turns of a conversation that another tool sent (`labcore.watch.converting.chat`); none of a text."""
    return tuple(Turn(str(each.get("role", "")), str(each.get("content", ""))) for each in messages
                 if isinstance(each, Mapping)) if isinstance(messages, list) else ()


def _number(reward: object) -> float:
    return float(reward) if isinstance(reward, int | float) and math.isfinite(reward) else math.nan


# ---------------------------------------------------------------- scores

def by_task(task: TextTask) -> Scores:
    """Return the scores of the task's verifier."""
    return lambda rows: [task.score(row.problem, row.text).reward for row in _reported(rows)]


def by_verifier(knobs: Mapping[str, Value]) -> Scores:
    """Return the scores of the verifier that the knobs choose; NaN if an answer cannot be compared. Raises LabError if
    its pattern is invalid; the scores raise it if no answer can be compared."""
    verifier = verifiers.verifier(knobs)

    def scores(rows: Sequence[Stored]) -> list[float]:
        faults = [verifiers.answer_fault(knobs, row.problem.answer) for row in rows]
        if rows and all(faults):
            raise LabError(f"The answer to the first stored prompt {faults[0]}: choose another verifier.")
        return [math.nan if fault else float(verifier(row.text, row.problem.answer))
                for fault, row in zip(faults, _reported(rows), strict=True)]

    return scores


def by_function(key: str, task: TextTask | None, steps: int) -> Scores:
    """Return the scores of the user's reward function, which is called once per step. Raises LabError if this machine
    does not have it, or it needs a value that is not stored."""
    [term] = reward_terms.terms(key)
    columns = reward_call.columns_of(task) if task else []
    reward_call.check_columns([term], columns, without=("completion_ids",))

    def scores(rows: Sequence[Stored]) -> list[float]:
        found: list[float] = []
        for step in dict.fromkeys(row.step for row in rows):
            report(SCORING, len(found), len(rows))
            these = [row for row in rows if row.step == step]
            asked = reward_call.Asked([row.problem for row in these], [row.text for row in these], None, columns, step,
                                      steps)
            found += reward_call.rewards([term], asked)[0]
        return found

    return scores


def by_judge(knobs: Mapping[str, Any]) -> Scores:
    """Return the grades of a judge, from 0 to 1. Raises LabError if this machine may not use it."""
    judge = Judge.of(knobs)
    return lambda rows: judge.scores([row.problem for row in rows], [row.text for row in rows])


def _reported(rows: Sequence[Stored]) -> Iterator[Stored]:
    for done, row in enumerate(rows):
        report(SCORING, done, len(rows))
        yield row
