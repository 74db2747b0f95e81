"""A metrics file as a table, whatever kind of file it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

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
