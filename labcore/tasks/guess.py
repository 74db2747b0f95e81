"""Guess a number: "1-7?" asks for one, and each guess is answered by "higher", "lower" or "correct".

With 7 numbers and 3 guesses halving always finds it; a player who does not listen finds it in 3 of 7 episodes at best.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from labcore.catalog.knob import Value
from labcore.tasks.environment import Environment, EnvironmentTask, Player, Row, Step
from labcore.tasks.task import Chance

HIGHER, LOWER, CORRECT, INVALID = "higher", "lower", "correct", "no number"
HEARD = 0.5  # share of the hints that the simple player hears


class NumberGame:
    """One episode: `row` has the secret number and the largest one."""

    def reset(self, row: Row) -> str:
        self.secret, self.highest = int(row["secret"]), int(row["highest"])
        return f"1-{self.highest}?"

    def step(self, text: str) -> Step:
        if not (text.isdecimal() and text.isascii() and len(text) < 10 and 1 <= int(text) <= self.highest):
            return Step(INVALID, 0.0, False)
        if int(text) == self.secret:
            return Step(CORRECT, 1.0, True)
        return Step(HIGHER if int(text) < self.secret else LOWER, 0.0, False)


class Guess(EnvironmentTask):
    """Numbers from 1 to `knobs["largest"]`."""

    name = "guess"
    characters = "0123456789-? []" + "".join(sorted(set(HIGHER + LOWER + CORRECT + INVALID)))

    def __init__(self, knobs: Mapping[str, Value], data: Path | None = None) -> None:
        super().__init__(knobs)
        self.numbers = int(knobs["largest"])

    def environment(self) -> Environment:
        return NumberGame()

    def draw_rows(self, count: int, rng: Chance) -> list[Row]:
        assert isinstance(rng, np.random.Generator), "it has no file"
        return [{"secret": int(secret), "highest": self.numbers} for secret in rng.integers(1, self.numbers + 1, count)]

    def player(self, rng: np.random.Generator) -> Player:
        return Forgetful(self.numbers, rng)


class Forgetful:
    """Guesses at random among the numbers that the hints leave over, and misses a hint now and then."""

    def __init__(self, numbers: int, rng: np.random.Generator) -> None:
        self.low, self.high, self.guess, self.rng = 1, numbers, 0, rng

    def __call__(self, observation: str) -> str:
        heard = self.rng.random() < HEARD
        if observation == HIGHER and heard:
            self.low = self.guess + 1
        elif observation == LOWER and heard:
            self.high = self.guess - 1
        self.guess = int(self.rng.integers(self.low, self.high + 1))
        return str(self.guess)
