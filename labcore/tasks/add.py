"""Add two numbers: "47+85=" asks for "132". The reward is exact, or shaped digit by digit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from labcore.catalog.knob import Value
from labcore.tasks.task import Problem, Score


class Add:
    """Sums of two numbers of `knobs["digits"]` digits, without leading zeros (one digit: 0 to 9)."""

    size = None
    characters = "0123456789+="

    def __init__(self, knobs: Mapping[str, Value], data: Path | None = None) -> None:
        self.digits = int(knobs["digits"])
        self.shaped = knobs["reward_shape"] == "shaped"

    def problems(self, count: int, rng: np.random.Generator) -> list[Problem]:
        low = 10 ** (self.digits - 1) if self.digits > 1 else 0
        rows = rng.integers(low, 10**self.digits, size=(count, 2))
        return [Problem(f"{a}+{b}=", str(a + b)) for a, b in rows.tolist()]

    def can_become_right(self, problem: Problem, beginning: str) -> bool:
        return problem.answer.startswith(beginning)

    def score(self, problem: Problem, completion: str) -> Score:
        right = completion == problem.answer
        return Score(digits_right(completion, problem.answer) if self.shaped else float(right), right)


def digits_right(completion: str, answer: str) -> float:
    """The share of places where both agree, of the longer one's places, so that extra text costs.

    >>> digits_right("142", "132"), digits_right("132", "132"), digits_right("1320", "132")
    (0.6666666666666666, 1.0, 0.75)
    """
    same = sum(a == b for a, b in zip(completion, answer, strict=False))
    return same / max(len(completion), len(answer))
