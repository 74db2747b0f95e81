"""Read the usable rows of the user's file. The knob `unusable_rows` decides whether other rows stop the run or are left
out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from labcore.catalog.knob import Value
from labcore.files.jsonl import Fault
from labcore.files.rows import read_rows
from labcore.tasks.held_out import Parts

MOST_NAMED = 8  # lines in a sentence
STOP, SKIP, CUT = "stop", "skip", "cut"
REMEDY = "Correct them, or leave them out with unusable_rows=skip."
Row = TypeVar("Row")


@runtime_checkable
class OfFile(Protocol):
    """A task whose rows are those of a file: `every` usable row in its two parts, those that are in use, and
    `left_out` with why."""

    every: Parts[Any]
    rows: list[Any]
    held: list[Any]
    left_out: Sequence[Fault]

    def take(self, rows: Sequence[Any], held: Sequence[Any]) -> None: ...


def usable_rows(path: Path, read: Callable[[Mapping[str, Any], int], Row], knobs: Mapping[str, Value],
                left_out: list[Fault]) -> list[Row]:
    """Apply `read` to each row; rows that cannot be used go to `left_out`, where the knob says so.

    Raises:
        LabError: as `read_rows`.
    """
    return read_rows(path, read, left_out if knobs.get("unusable_rows") == SKIP else None, REMEDY)


def lines_named(lines: Sequence[int], count: int = 0) -> str:
    """Rows by their lines, in a sentence; `count` is how many there are, where `lines` are only the first of them.

    >>> lines_named([3]), lines_named([3, 5]), lines_named([1, 2, 3], 30)
    ('line 3', 'lines 3, 5', 'lines 1, 2, 3 and 27 more')
    """
    named = [f"{line:,}" for line in lines]
    if len(named) > MOST_NAMED + 1 or count > len(named):
        named = named[:MOST_NAMED]
    more = max(count, len(lines)) - len(named)
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(named)}" + (f" and {more:,} more" if more else "")


def said_of(left_out: Sequence[Fault]) -> str:
    """The sentence of an event that says which rows were left out, and why the first of them.

    >>> said_of([(3, "Line 3 of x.jsonl is not JSON: correct it.")])
    'Left out: line 3. Line 3 of x.jsonl is not JSON: correct it.'
    """
    return f"Left out: {lines_named([line for line, _ in left_out])}. {left_out[0][1]}"
