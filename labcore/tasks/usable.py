"""Read the usable rows of the user's file. The knob `unusable_rows` decides whether other rows stop the run or are left
out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from labcore.catalog.knob import Value
from labcore.errors import LabError
from labcore.runs.files.jsonl import Fault
from labcore.runs.files.rows import read_rows
from labcore.tasks.held_out import Parts, in_words

MOST_NAMED = 8  # lines in a sentence
STOP, SKIP, CUT = "stop", "skip", "cut"
REMEDY = "Correct them, or leave them out with `unusable_rows=skip`."
OWN = ""  # the run's own file among several
LeftOut = dict[str, list[Fault]]  # by the name of a file in a sentence, such as "the held-out file test.jsonl"
Row = TypeVar("Row")


@runtime_checkable
class OfFile(Protocol):
    """A task whose rows are those of a file: `every` usable row in its two parts, those that are in use, and
    `left_out` with why, of each file."""

    every: Parts[Any]
    rows: list[Any]
    held: list[Any]
    left_out: LeftOut

    def take(self, rows: Sequence[Any], held: Sequence[Any]) -> None: ...


def usable_rows(data: Path, path: Path, read: Callable[[Mapping[str, Any], int], Row], knobs: Mapping[str, Value],
                left_out: LeftOut) -> list[Row]:
    """Apply `read` to each row of `path`, which is the run's own file `data` or its held-out file; if the knob
    `unusable_rows` says so, rows that cannot be used are added to `left_out`. Raises LabError as `read_rows`."""
    name = OWN if path == data else in_words(path)
    faults = left_out.setdefault(name, []) if knobs.get("unusable_rows") == SKIP else None
    try:
        return read_rows(path, read, faults, REMEDY)
    except LabError as error:
        error.args = (f"In {name}: {error}",) if name else error.args
        raise


def lines_named(lines: Sequence[int], count: int = 0) -> str:
    """Rows by their lines, in a sentence; `count` is their number if `lines` are only the first ones.

    >>> lines_named([3]), lines_named([3, 5]), lines_named([1, 2, 3], 30)
    ('line 3', 'lines 3, 5', 'lines 1, 2, 3 and 27 more')
    """
    named = [f"{line:,}" for line in lines]
    if len(named) > MOST_NAMED + 1 or count > len(named):
        named = named[:MOST_NAMED]
    more = max(count, len(lines)) - len(named)
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(named)}" + (f" and {more:,} more" if more else "")


def said_of(left_out: Sequence[Fault], name: str = OWN) -> str:
    """The sentence of an event that says which rows of a file were left out, and why the first of them.

    >>> said_of([(3, "Line 3 of x.jsonl is not JSON: correct it.")])
    'Left out: line 3. Line 3 of x.jsonl is not JSON: correct it.'
    >>> said_of([(3, "Line 3 of y.jsonl is not JSON: correct it.")], "the held-out file y.jsonl")
    'Left out of the held-out file y.jsonl: line 3. Line 3 of y.jsonl is not JSON: correct it.'
    """
    of = f" of {name}" if name else ""
    return f"Left out{of}: {lines_named([line for line, _ in left_out])}. {left_out[0][1]}"
