"""Arithmetic with a tool: "37*12+5=" is too hard to do in one's head, and `<tool>37*12+5</tool>` gets its value.

A turn with a call gets the tool's answer, and any other turn is the answer to the question. The tool reads an
expression by the parser of `countdown`: nothing that a model writes is run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from labcore.catalog.knob import Value
from labcore.tasks.countdown import value
from labcore.tasks.environment import Environment, EnvironmentTask, Player, Row, Step
from labcore.tasks.task import Chance

LONGEST = 40  # characters of an expression
BAD_CALL, RIGHT, WRONG = "no value", "right", "wrong"
_CALL = re.compile(r"<tool>(.*?)</tool>", re.DOTALL)
_TOKEN = re.compile(r"[0-9]{1,6}|[-+*()]")
CARELESS = 0.5  # share of the questions that the simple player answers without the tool


class Calculator:
    """One episode: `row` has the `question`, an expression."""

    def reset(self, row: Row) -> str:
        self.question = str(row["question"])
        return self.question + "="

    def step(self, text: str) -> Step:
        if call := _CALL.search(text):
            found = calculated(call[1])
            return Step(BAD_CALL if found is None else str(found), 0.0, False)
        right = text.strip() == str(calculated(self.question))
        return Step(RIGHT if right else WRONG, float(right), True)


def calculated(expression: str) -> int | None:
    """The value of a short expression of whole numbers, +, -, * and brackets; None where it is none.

    >>> calculated("37*12+5"), calculated("2**9"), calculated("__import__('os')")
    (449, None, None)
    """
    tokens = _TOKEN.findall(expression)
    return value(tokens) if len(expression) <= LONGEST and "".join(tokens) == expression else None


class Lookup(EnvironmentTask):
    """Questions a*b+c with numbers of `knobs["tool_digits"]` digits at most."""

    name = "lookup"
    characters = "0123456789+-*()=<>/ []" + "".join(sorted(set("tool" + BAD_CALL + RIGHT + WRONG)))

    def __init__(self, knobs: Mapping[str, Value], data: Path | None = None) -> None:
        super().__init__(knobs)
        self.largest = 10 ** int(knobs["tool_digits"])

    def environment(self) -> Environment:
        return Calculator()

    def draw_rows(self, count: int, rng: Chance) -> list[Row]:
        assert isinstance(rng, np.random.Generator), "it has no file"
        return [{"question": f"{a}*{b}+{c}"} for a, b, c in rng.integers(2, self.largest, (count, 3)).tolist()]

    def player(self, rng: np.random.Generator) -> Player:
        calls = rng.random() >= CARELESS

        def play(observation: str) -> str:
            if calls and observation.endswith("="):
                return f"<tool>{observation[:-1]}</tool>"
            return observation if calls else str(rng.integers(2, self.largest**2))
        return play
