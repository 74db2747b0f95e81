"""Add two numbers: "47+85=" asks for "132". The reward is exact, or shaped digit by digit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from labcore.catalog.knob import Value
from labcore.tasks import levels
from labcore.tasks.task import Problem, Score


class Add:
    """Sums of two numbers of `knobs["digits"]` digits, without leading zeros (one digit: 0 to 9). A prompt's level is
    how many digits they have."""

    size = None
    characters = "0123456789+="

    def __init__(self, knobs: Mapping[str, Value], data: Path | None = None) -> None:
        self.digits = int(knobs["digits"])
        self.levels = levels.levels(knobs, "digits", 1)
        self.shaped = knobs["reward_shape"] == "shaped"

    def problems(self, count: int, rng: np.random.Generator) -> list[Problem]:
        found = levels.drawn(self.levels, count, rng)
        if self.levels is None:
            rows = rng.integers(_least(self.digits), 10**self.digits, size=(count, 2)).tolist()
        else:
            rows = [rng.integers(_least(level), 10**level, size=2).tolist() for level in found if level]
        return [Problem(f"{a}+{b}=", str(a + b), level=level) for (a, b), level in zip(rows, found, strict=True)]

    def can_become_right(self, problem: Problem, beginning: str) -> bool:
        return problem.answer.startswith(beginning)

    def score(self, problem: Problem, completion: str) -> Score:
        right = completion == problem.answer
        return Score(digits_right(completion, problem.answer) if self.shaped else float(right), right)


def _least(digits: int) -> int:
    return 10 ** (digits - 1) if digits > 1 else 0


def digits_right(completion: str, answer: str) -> float:
    """The share of places where both agree, of the longer one's places, so that extra text costs.

    >>> digits_right("142", "132"), digits_right("132", "132"), digits_right("1320", "132")
    (0.6666666666666666, 1.0, 0.75)
    """
    same = sum(a == b for a, b in zip(completion, answer, strict=False))
    return same / max(len(completion), len(answer))
