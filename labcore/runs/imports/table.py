"""A metrics file as a table, whatever kind of file it is."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labcore.errors import LabError, quoted

Rows = Callable[[Sequence[int]], Iterator[tuple[int, int, Sequence[Any]]]]


@dataclass(frozen=True)
class Table:
    """`header` are the names of the columns, as the file has them.

    `rows(places)` reads the file once and yields (line, part, cells): the cells of these columns alone, in their order.
    A cell is a text, a number or None. `part` counts from 0, one more after each header that stands within the file
    again. `left` are parts of the file beside its rows that nobody reads: their name -> why. `notes` say, once all rows
    are read, which of them were left out.
    """

    header: tuple[str, ...]
    rows: Rows
    left: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


# ---------------------------------------------------------------- numbers
# The columns of a table as numbers: what is missing, what is NaN, and which cell is no number at all.

MISSING = frozenset(("", "none", "null", "na", "n/a"))


@dataclass(frozen=True)
class Numbers:
    """N rows of some columns, by their places in the header.

    `values[place]` and `there[place]`, (N,) each: where `there`, the file has a value, which may be NaN or infinite;
    elsewhere the value is NaN. `lines` (N,) are the lines of the rows, `parts` (N,) the parts of the file that they
    are in. `texts[place]` are the N cells of a column that is read as text. `faults[place]` says of a column which
    cell of it is no number.
    """

    lines: np.ndarray
    parts: np.ndarray
    values: dict[int, np.ndarray]
    there: dict[int, np.ndarray]
    texts: dict[int, list[str]]
    faults: dict[int, str]


@dataclass
class _Column:
    values: array[float] = field(default_factory=lambda: array("d"))
    nan: array[int] = field(default_factory=lambda: array("q"))  # rows whose cell says NaN

    def add(self, number: float | None) -> None:
        if number is None:
            number = math.nan
        elif number != number:
            self.nan.append(len(self.values))
        self.values.append(number)

    def there(self) -> np.ndarray:
        found: np.ndarray = ~np.isnan(np.array(self.values))
        found[np.array(self.nan, int)] = True
        return found


def read(name: str, table: Table, places: Sequence[int], texts: Collection[int], lenient: Collection[int],
         most: float) -> Numbers:
    """Read columns of a table. In the columns `lenient` a cell may hold something else than a number; `faults` then
    lists it. Raises LabError if the table has no rows, another column has a cell that is no number, or there are more
    than `most` numbers."""
    columns = {place: _Column() for place in places}
    named: dict[int, list[str]] = {place: [] for place in texts}
    faults: dict[int, str] = {}
    lines, parts = array("q"), array("q")
    wanted = [*columns, *named]
    for line, part, cells in table.rows(wanted):
        lines.append(line)
        parts.append(part)
        for place, cell in zip(wanted, cells, strict=True):
            if place in columns:
                try:
                    columns[place].add(_number(cell))
                except ValueError:
                    fault = (f"Line {line} of {name} has {quoted(_shown(cell))} in the column {table.header[place]}: "
                             "it takes numbers.")
                    if place not in lenient:
                        raise LabError(fault) from None
                    faults.setdefault(place, fault)
                    columns[place].add(None)
            else:
                named[place].append("" if cell is None else str(cell).strip())
        if len(lines) * len(wanted) > most:
            raise LabError(f"{name} has more than {most:,} numbers that the lab would keep: give a part of it, "
                           "for example every tenth row.")
    if not lines:
        raise LabError(f"{name} has a header and no rows: export the run again when it has some.")
    return Numbers(np.array(lines), np.array(parts), {place: np.array(each.values) for place, each in columns.items()},
                   {place: each.there() for place, each in columns.items()}, named, faults)


def _number(cell: Any) -> float | None:
    """A cell as a number, NaN and infinities included; None where it is empty. Raises ValueError for anything else."""
    if cell is None:
        return None
    try:
        return float(cell)
    except (ValueError, TypeError, OverflowError):
        if isinstance(cell, str) and cell.strip().lower() in MISSING:
            return None
        raise ValueError from None


def _shown(cell: Any) -> Any:
    return cell.strip() if isinstance(cell, str) else cell
