"""Levels of difficulty: of tasks that make prompts of several sizes, and of rows of the user's file."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from labcore.catalog.knob import Value
from labcore.errors import LabError

FIELDS = ("level", "difficulty")  # of a row
HIGHEST = 20
_NUMBER = re.compile(r"(?:level\s*)?(\d+)", re.IGNORECASE)


def levels(knobs: Mapping[str, Value], size: str, least: int) -> range | None:
    """The levels of a task's prompts, up to its knob `size`; None where all have the same size. Raises LabError if the
    easiest level is above `size` or below `least`."""
    low, high = int(knobs.get("easiest", 0)), int(knobs[size])
    if not low:
        return None
    if not least <= low <= high:
        raise LabError(f"`easiest` is {low}, and the levels of this task go from {least} to `{size}`, which is {high}: "
                       f"set it to {least} … {high}, or to 0.")
    return range(low, high + 1)


def drawn(found: range | None, count: int, rng: np.random.Generator) -> list[int | None]:
    """The level of each of `count` prompts, all levels alike; no random number is drawn without levels."""
    return [None] * count if found is None else rng.integers(found.start, found.stop, count).tolist()


def level_of(row: Mapping[str, object]) -> int | None:
    """The level that a row of a file has, in its field level or difficulty: a number, or "Level 3".

    >>> level_of({"level": "Level 5"}), level_of({"difficulty": 2}), level_of({"level": "hard"}), level_of({})
    (5, 2, None, None)
    """
    value = next((row[name] for name in FIELDS if row.get(name) is not None), None)
    found = _NUMBER.fullmatch(str(value).strip()) if isinstance(value, int | str) else None
    return int(found[1]) if found and int(found[1]) <= HIGHEST else None
