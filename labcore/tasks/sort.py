"""Sort letters: "dbcaef=" asks for "abcdef". The reward is 1 for the whole answer, else 0."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from labcore.catalog.knob import Value
from labcore.tasks import levels
from labcore.tasks.task import Problem, Score

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
VARIETY = 10  # letters to choose from: few enough that a tiny model learns their order in seconds


class Sort:
    """`knobs["letters"]` different letters to be written in alphabetical order; a prompt's level is how many it has."""

    size = None
    characters = ALPHABET + "="

    def __init__(self, knobs: Mapping[str, Value], data: Path | None = None) -> None:
        self.letters = int(knobs["letters"])
        self.levels = levels.levels(knobs, "letters", 2)

    def problems(self, count: int, rng: np.random.Generator) -> list[Problem]:
        variety = ALPHABET[: max(VARIETY, self.letters)]
        found = levels.drawn(self.levels, count, rng)
        words = ["".join(rng.permutation(list(variety))[: level or self.letters]) for level in found]
        return [Problem(word + "=", "".join(sorted(word)), level=level)
                for word, level in zip(words, found, strict=True)]

    def can_become_right(self, problem: Problem, beginning: str) -> bool:
        return problem.answer.startswith(beginning)

    def score(self, problem: Problem, completion: str) -> Score:
        right = completion == problem.answer
        return Score(float(right), right)
