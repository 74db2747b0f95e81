"""Countdown: "2,7,3:13=" asks for "2*3+7", the target from all of the numbers by +, − and ×.

The problems come from a solver that knows all values that some numbers reach, so each of them can be solved. The
verifier reads an expression itself: nothing that a model writes is ever run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np

from labcore.catalog.knob import Value
from labcore.tasks import levels
from labcore.tasks.countdown_steps import DEEPEST, TOKEN, can_reach
from labcore.tasks.task import Problem, Score

LARGEST, TARGETS = 9, range(10, 100)


class Countdown:
    """`knobs["numbers"]` numbers from 1 to 9 and a target from 10 to 99. `answer` is one solution. A prompt's level is
    how many numbers it has."""

    size = None
    characters = "0123456789,:=+-*()"

    def __init__(self, knobs: Mapping[str, Value], data: Path | None = None) -> None:
        self.count = int(knobs["numbers"])
        self.levels = levels.levels(knobs, "numbers", 2)

    def problems(self, count: int, rng: np.random.Generator) -> list[Problem]:
        return [self._problem(rng, level) for level in levels.drawn(self.levels, count, rng)]

    def _problem(self, rng: np.random.Generator, level: int | None) -> Problem:
        while True:
            numbers = rng.integers(1, LARGEST + 1, level or self.count).tolist()
            found = solutions(tuple(sorted(numbers)))
            if found:
                target = sorted(found)[rng.integers(len(found))]
                return Problem(f"{','.join(map(str, numbers))}:{target}=", found[target], level=level)

    def can_become_right(self, problem: Problem, beginning: str) -> bool:
        return can_reach(beginning, *_asked(problem))

    def feedback(self, problem: Problem, completion: str) -> str:
        """The value of a wrong expression, or the numbers that it uses if they are wrong; "" if it is no expression.

        >>> task = Countdown({"numbers": 3})
        >>> task.feedback(Problem("2,7,3:13=", ""), "2*7-3"), task.feedback(Problem("2,7,3:13=", ""), "7+6")
        ('2*7-3=11', '7,6')
        """
        tokens, (numbers, _) = TOKEN.findall(completion), _asked(problem)
        found = value(tokens) if "".join(tokens) == completion else None
        if found is None:
            return ""
        used = [token for token in tokens if token.isdigit()]
        return f"{completion}={found}" if Counter(map(int, used)) == Counter(numbers) else ",".join(used)

    def score(self, problem: Problem, completion: str) -> Score:
        right = solves(completion, *_asked(problem))
        return Score(float(right), right)


def _asked(problem: Problem) -> tuple[list[int], int]:
    """The numbers and the target of a prompt."""
    numbers, target = problem.prompt.rstrip("=").split(":")
    return [int(number) for number in numbers.split(",")], int(target)


def solves(expression: str, numbers: list[int], target: int) -> bool:
    """True if the expression has the target's value and each of the numbers exactly once.

    >>> solves("2*3+7", [2, 7, 3], 13), solves("6+7", [2, 7, 3], 13), solves("(7-2)*3", [2, 7, 3], 13)
    (True, False, False)
    """
    tokens = TOKEN.findall(expression)
    if "".join(tokens) != expression:
        return False
    used = Counter(int(token) for token in tokens if token.isdigit())
    return used == Counter(numbers) and value(tokens) == target


def value(tokens: list[str]) -> int | None:
    """The value of an expression of whole numbers, +, -, * and brackets; None where it is none.

    >>> value(["2", "*", "(", "3", "-", "7", ")"]), value(["2", "+"]), value(["(", "2"])
    (-8, None, None)
    """
    reader = _Reader(tokens)
    found = reader.sum(0)
    return found if reader.at == len(tokens) else None


class _Reader:
    """A recursive descent over tokens: sum = product {(+|-) product}, product = atom {* atom}, atom = number | (sum).

    `at` is the next token. Each method gives the value of what it has read, or None where it is not what it should be.
    """

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at = tokens, 0

    def _next(self, *wanted: str) -> str:
        """The next token where it is one of these, which is then read; else empty."""
        token = self.tokens[self.at] if self.at < len(self.tokens) else ""
        self.at += token in wanted
        return token if token in wanted else ""

    def sum(self, depth: int) -> int | None:
        total = self._product(depth)
        while total is not None and (sign := self._next("+", "-")):
            further = self._product(depth)
            total = None if further is None else total + further if sign == "+" else total - further
        return total

    def _product(self, depth: int) -> int | None:
        total = self._atom(depth)
        while total is not None and self._next("*"):
            further = self._atom(depth)
            total = None if further is None else total * further
        return total

    def _atom(self, depth: int) -> int | None:
        if self._next("("):
            inner = self.sum(depth + 1) if depth < DEEPEST else None
            return inner if self._next(")") else None
        token = self.tokens[self.at] if self.at < len(self.tokens) else ""
        self.at += token.isdigit()
        return int(token) if token.isdigit() else None


@lru_cache(maxsize=4096)
def solutions(numbers: tuple[int, ...]) -> dict[int, str]:
    """Every target that all of the numbers reach, with an expression for each.

    >>> solutions((1, 9))
    {10: '9+1'}
    """
    every = (1 << len(numbers)) - 1
    reached: dict[int, dict[int, tuple[str, bool]]] = {}  # by subset: value -> expression, whether it is a sum
    for subset in range(1, every + 1):
        if subset & (subset - 1) == 0:
            number = numbers[subset.bit_length() - 1]
            reached[subset] = {number: (str(number), False)}
            continue
        found: dict[int, tuple[str, bool]] = {}
        part = (subset - 1) & subset
        while part:
            for left, (text, is_sum) in reached[part].items():
                for right, (other, other_is_sum) in reached[subset - part].items():
                    bracketed = f"({other})" if other_is_sum else other
                    found.setdefault(left + right, (f"{text}+{other}", True))
                    found.setdefault(left - right, (f"{text}-{bracketed}", True))
                    found.setdefault(left * right, (f"({text})*{bracketed}" if is_sum else f"{text}*{bracketed}",
                                                    False))
            part = (part - 1) & subset
        reached[subset] = found
    return {target: text for target, (text, _) in reached[every].items() if target in TARGETS}
