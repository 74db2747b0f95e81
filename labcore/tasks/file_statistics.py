"""Statistics of the user's file that a person checks before training on it. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from labcore.tasks.numbers import plain
from labcore.tasks.task import Pair, Problem, Single, TextTask
from labcore.tasks.verifiers import letter

_MARKED = re.compile(r"####\s*\S*\d")  # how GSM8K ends a solution: "#### 18"
# What only mathematics can compare: TeX and fractions.
_MATHS = re.compile(r"\\(?:boxed|[dt]?frac|sqrt|pi|times|cdot|text|left|circ|pm|infty|begin|log|ln|sin|cos|tan)"
                    r"(?![a-z])"
                    r"|\A\s*[-−–+]?[0-9]+\s*/\s*[0-9]+\s*\Z|####\s*[-−–+]?[0-9]+\s*/\s*[0-9]+\s*\Z")

_LETTER = re.compile(r"\s*\(?[A-J]\)?\s*")


@dataclass(frozen=True)
class FileStatistics:
    """Statistics of the lines of a file of prompts or pairs.

    Lengths are in characters; of a pair the chosen side is the answer. `longest` is the longest prompt; `answers` has
    the shortest, the median and the longest answer, and `lengths` all of them. `marked` answers end in "#### number",
    `empty` ones have no text, and `fits` is the verifier that reads every answer right. `repeated` prompts stood
    before, `disagreeing` ones of these with another answer.
    """

    lines: int
    longest: int
    answers: tuple[int, int, int]
    lengths: tuple[int, ...]
    marked: int
    fits: str
    empty: int
    repeated: int
    disagreeing: int


def statistics_of(task: TextTask) -> FileStatistics | None:
    """The statistics of a task's file; None where it has no lines of prompts and answers."""
    return statistics_of_rows(list(getattr(task, "rows", ())))


def statistics_of_rows(rows: Sequence[Problem | Pair | Single]) -> FileStatistics | None:
    """The statistics of these rows; None without any."""
    if not rows:
        return None
    answers = [answer_of(row) for row in rows]
    lengths = [len(answer.strip()) for answer in answers]
    seen: dict[str, str] = {}
    repeated = disagreeing = 0
    for row, answer in zip(rows, answers, strict=True):
        repeated += row.prompt in seen
        disagreeing += seen.setdefault(row.prompt, answer) != answer
    return FileStatistics(len(rows), max(len(row.prompt) for row in rows),
                          (min(lengths), int(median(lengths)), max(lengths)), tuple(lengths),
                          sum(bool(_MARKED.search(answer)) for answer in answers), fitting_verifier(answers),
                          lengths.count(0), repeated, disagreeing)


def answer_of(row: Problem | Pair | Single) -> str:
    """The answer of a row: of a pair the chosen side."""
    return row.chosen if isinstance(row, Pair) else row.completion if isinstance(row, Single) else row.answer


def fitting_verifier(answers: Sequence[str]) -> str:
    r"""The verifier for a file with these answers: none of them is misread by it.

    numeric where each is a whole plain number, or ends in one after "####"; math where some have TeX or are fractions
    and the rest are such numbers; choice where each is a letter, A to J; else exact.

    >>> [fitting_verifier(answers) for answers in (["18", "#### 1,018"], ["18", "3/4"], ["A", "(B)"], ["18", "eggs"])]
    ['numeric', 'math', 'choice', 'exact']
    """
    if all(map(plain, answers)):
        return "numeric"
    if all(_MATHS.search(answer) or plain(answer) for answer in answers):
        return "math"
    return "choice" if all(_LETTER.fullmatch(answer) and letter(answer) for answer in answers) else "exact"
