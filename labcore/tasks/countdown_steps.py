"""Whether the beginning of an expression can still reach countdown's target with the numbers that are left.

The beginning is read once; then every way to go on is tried. A bracket that is opened later encloses some of the
numbers that are left, so it stands for one of the values that they reach: no bracket is opened in the search itself.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

DEEPEST = 16  # brackets within brackets
TOKEN = re.compile(r"0|[1-9][0-9]{0,2}|[-+*()]")
Numbers = tuple[int, ...]  # in order


class Level(NamedTuple):
    """A sum within one pair of brackets, as far as it has been read: `total` ± `product`, to be followed by a factor or
    a sign."""

    total: int
    sign: int
    product: int

    def value(self) -> int:
        return self.total + self.sign * self.product


State = tuple[Level, ...]  # the outermost brackets first
_EMPTY = Level(0, 1, 1)


def can_reach(beginning: str, numbers: list[int], target: int) -> bool:
    """True if some expression that begins so uses each of the numbers once and has the target's value.

    >>> can_reach("2*", [2, 7, 3], 13), can_reach("7*", [2, 7, 3], 13), can_reach("2*3+7", [2, 7, 3], 13)
    (True, False, True)
    """
    tokens = TOKEN.findall(beginning)
    if "".join(tokens) != beginning:
        return False
    *before, last = tokens or [""]
    # The last number may be unfinished: "1" may become 13.
    ends = [str(number) for number in set(numbers) if str(number).startswith(last)] if last.isdigit() else [last]
    return any(_goes_on(tuple(filter(None, (*before, end))), numbers, target) for end in ends)


def _goes_on(tokens: tuple[str, ...], numbers: list[int], target: int) -> bool:
    state: State = (_EMPTY,)
    needs_atom, left = True, Counter(numbers)
    for token in tokens:
        if needs_atom != (token.isdigit() or token == "("):
            return False
        if token == "(":
            state = (*state, _EMPTY)
        elif token.isdigit():
            left[int(token)] -= 1
            state, needs_atom = _with_atom(state, int(token)), False
        elif token == ")":
            if len(state) == 1:
                return False
            state = _closed(state)
        else:
            state, needs_atom = _with_sign(state, token), True
        if len(state) - 1 > DEEPEST:
            return False
    if min(left.values(), default=0) < 0:
        return False
    return _reaches(state, needs_atom, tuple(sorted(left.elements())), target)


def _with_atom(state: State, value: int) -> State:
    *outer, level = state
    return (*outer, level._replace(product=level.product * value))


def _with_sign(state: State, sign: str) -> State:
    *outer, level = state
    return state if sign == "*" else (*outer, Level(level.value(), 1 if sign == "+" else -1, 1))


def _closed(state: State) -> State:
    *outer, level = state
    return _with_atom(tuple(outer), level.value())


@lru_cache(maxsize=2**16)
def _reaches(state: State, needs_atom: bool, left: Numbers, target: int) -> bool:
    if not needs_atom:
        if len(state) == 1 and not left and state[0].value() == target:
            return True
        if len(state) > 1 and _reaches(_closed(state), False, left, target):
            return True
        return bool(left) and any(_reaches(_with_sign(state, sign), True, left, target) for sign in "+-*")
    return any(_reaches(_with_atom(state, value), False, rest, target)
               for some, rest in _parts(left) for value in _values(some))


@lru_cache(maxsize=4096)
def _parts(numbers: Numbers) -> frozenset[tuple[Numbers, Numbers]]:
    """Every choice of some of the numbers, and those that are left."""
    found = set()
    for chosen in range(1, 1 << len(numbers)):
        sides: tuple[list[int], list[int]] = ([], [])
        for place, number in enumerate(numbers):
            sides[chosen >> place & 1].append(number)
        found.add((tuple(sides[1]), tuple(sides[0])))
    return frozenset(found)


@lru_cache(maxsize=4096)
def _values(numbers: Numbers) -> frozenset[int]:
    """Every value that all of the numbers reach by +, −, × and brackets."""
    if len(numbers) == 1:
        return frozenset(numbers)
    return frozenset(value for some, rest in _parts(numbers) if rest for a in _values(some) for b in _values(rest)
                     for value in (a + b, a - b, a * b))
