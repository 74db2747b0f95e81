"""Sort letters: "dbcaef=" asks for "abcdef". The reward is 1 for the whole answer, else 0."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from labcore.catalog.knob import Value
from labcore.worlds.task import Problem, Score

ALPHABET = "abcdefghij"


class Sort:
    """`knobs["letters"]` letters, drawn independently, to be written in alphabetical order."""

    size = None
    characters = ALPHABET + "="

    def __init__(self, knobs: Mapping[str, Value], data: Path | None = None) -> None:
        self.letters = int(knobs["letters"])

    def problems(self, count: int, rng: np.random.Generator) -> list[Problem]:
        rows = rng.integers(len(ALPHABET), size=(count, self.letters))
        words = ["".join(ALPHABET[index] for index in row) for row in rows]
        return [Problem(word + "=", "".join(sorted(word))) for word in words]

    def score(self, problem: Problem, completion: str) -> Score:
        right = completion == problem.answer
        return Score(float(right), right)
