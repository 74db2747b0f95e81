"""The arithmetic of a choice's number for one token, in words, for the microscope.

A declaration writes the arithmetic once, with a place for each number. The page fills the places with the numbers that
a run recorded, and computes the result from these very words: `labcore.maths` has the only function, and a test
compares the words with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class Numbers(dict[str, float]):
    """The numbers of a token by their names: what was recorded of it, and the values of the run's knobs."""

    def __missing__(self, key: str) -> float:
        raise Unrecorded(key)


class Unrecorded(LookupError):
    """A number that the arithmetic needs was not recorded."""


@dataclass(frozen=True)
class Branch:
    """A number on the way: `name` and `sign` are what it is called. `active` marks the branch that counts, `still`
    one without a gradient; `terms` are keys of the equation's terms."""

    name: str
    sign: str
    numbers: str
    formula: str = ""
    note: str = ""
    active: bool = False
    still: bool = False
    terms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Worked:
    """`formula` in letters, and the same with `numbers`: "{ratio} × {advantage:b}", where b puts a negative number in
    brackets, and g writes few digits. `also` are numbers of its own, `note` is said beside the result."""

    formula: str
    numbers: str
    note: str = ""
    also: Mapping[str, float] = field(default_factory=dict)
    branches: tuple[Branch, ...] = ()
