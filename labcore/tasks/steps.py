"""The steps of answers: a task that can say of the beginning of an answer whether it may still become right, and the
step labels of a file's rows.

    {"prompt": "…", "completions": ["first step", "second step"], "labels": [true, false]}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from labcore.errors import LabError, quoted
from labcore.tasks.task import Problem

STEPS, LABELS = "completions", "labels"  # the fields of a row, as TRL names them
FROM_FILE = "dataset"  # the source of step labels that needs them


@runtime_checkable
class StepTask(Protocol):
    """A task that judges beginnings of answers."""

    def can_become_right(self, problem: Problem, beginning: str) -> bool:
        """True if some answer that begins so is right, however long it may be."""


def separator_of(knobs: Mapping[str, Any]) -> str:
    """The text that ends a step, with its line breaks and tabs; empty where each token is a step.

    >>> separator_of({"step_separator": "\\\\n"})
    '\\n'
    """
    return str(knobs["step_separator"]).replace("\\n", "\n").replace("\\t", "\t")


def labelled_steps(problem: Problem) -> tuple[list[str], list[float]]:
    """The steps of a row of the user's file, and the label of each, from 0 (wrong) to 1 (right). Raises LabError if the
    row has none, not as many labels as steps, or a label that is none."""
    steps, labels = problem.columns.get(STEPS), problem.columns.get(LABELS)
    place = f"Line {problem.line}" if problem.line else "A row"
    if not isinstance(steps, list) or not steps or not all(isinstance(step, str) and step for step in steps):
        raise LabError(f"{place} has no steps: write {STEPS!r} as a list of texts, with a label for each in "
                       f"{LABELS!r}, or set `step_labels=monte_carlo` for a file of prompts and answers.")
    if not isinstance(labels, list) or len(labels) != len(steps):
        count = f"{len(labels)}" if isinstance(labels, list) else "no list of"
        raise LabError(f"{place} has {len(steps)} steps in {STEPS!r} and {count} labels in {LABELS!r}: give each step "
                       "one label.")
    return steps, [_label(label, place) for label in labels]


def _label(label: object, place: str) -> float:
    if not isinstance(label, (bool, int, float)) or not 0 <= label <= 1:
        raise LabError(f"{place} has the label {quoted(label)} in {LABELS!r}: write true for a right step and false "
                       "for a wrong one, or a number from 0 to 1.")
    return float(label)
