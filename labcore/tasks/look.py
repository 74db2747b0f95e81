"""What the user's file holds, as numbers: what a person would look for before training on it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median

from labcore.tasks.task import Pair, Problem, Single, TextTask
from labcore.tasks.verifiers import number

_MARKED = re.compile(r"####\s*\S*\d")  # how GSM8K ends a solution: "#### 18"


@dataclass(frozen=True)
class Look:
    """Of the lines of a file of prompts or pairs. Lengths are in characters; of a pair the chosen side is the answer.

    `longest` is the prompt with the most characters and `line` where it stands; `answers` has the shortest, the median
    and the longest answer, and `lengths` all of them. `marked` answers end in "#### number", `numbers` are a number
    and nothing else, `empty` ones have no text. `repeated` prompts stood before, `disagreeing` ones of these with
    another answer.
    """

    lines: int
    longest: int
    line: int | None
    answers: tuple[int, int, int]
    lengths: tuple[int, ...]
    marked: int
    numbers: int
    empty: int
    repeated: int
    disagreeing: int


def look(task: TextTask) -> Look | None:
    """What is in the file of a task; None where it has no lines of prompts and answers."""
    rows: list[Problem | Pair | Single] = list(getattr(task, "rows", ()))
    if not rows:
        return None
    answers = [answer_of(row) for row in rows]
    lengths = [len(answer.strip()) for answer in answers]
    longest = max(rows, key=lambda row: len(row.prompt))
    seen: dict[str, str] = {}
    repeated = disagreeing = 0
    for row, answer in zip(rows, answers, strict=True):
        repeated += row.prompt in seen
        disagreeing += seen.setdefault(row.prompt, answer) != answer
    return Look(len(rows), len(longest.prompt), longest.line, (min(lengths), int(median(lengths)), max(lengths)),
                tuple(lengths), sum(bool(_MARKED.search(answer)) for answer in answers),
                sum(_is_number(answer) for answer in answers), lengths.count(0), repeated, disagreeing)


def answer_of(row: Problem | Pair | Single) -> str:
    """What a line answers: of a pair the chosen side."""
    return row.chosen if isinstance(row, Pair) else row.completion if isinstance(row, Single) else row.answer


def _is_number(answer: str) -> bool:
    """Whether an answer is a number and nothing else but a unit's sign."""
    return number(answer) is not None and not re.search(r"[^\W\d_]", answer) and len(answer.split()) == 1
