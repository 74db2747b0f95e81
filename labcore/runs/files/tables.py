"""CSV as the lab writes it: a text in a cell is shown by a spreadsheet, and never computed.

`reader` removes the apostrophes again, so that an export is read back as it was.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from labcore.runs.files.untrusted import whole

# What a spreadsheet takes for the begin of a formula, also in the wide letters of East Asia; a tab or a line end in
# front is passed over by some of them. See OWASP, "CSV Injection".
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
QUOTE = "'"
LONGEST = 64 * 2**20  # characters of a cell: completions are long texts


def write(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table as UTF-8. Numbers are given as numbers, and written to the last digit; None is an empty cell.
    Raises OSError if it cannot be written."""
    with path.open("w", newline="", encoding="utf-8") as file:
        _write(file, header, rows)


def written(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """The bytes that `write` would write."""
    text = io.StringIO(newline="")
    _write(text, header, rows)
    return text.getvalue().encode()


def _write(file: Any, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    # csv quotes the line ends that it writes itself: with both characters among them, no text begins a row of its own.
    lines = SimpleNamespace(write=lambda line: file.write(whole(line.removesuffix("\r\n")) + "\n"))
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow(map(shown, header))
    writer.writerows(map(shown, row) for row in rows)


def shown(cell: Any) -> Any:
    """A text that could be a formula, behind an apostrophe; any other cell as it is.

    >>> shown("=1+1"), shown("1+1"), shown(-1.5)
    ("'=1+1", '1+1', -1.5)
    """
    return QUOTE + cell if isinstance(cell, str) and _formula(cell) else cell


def plain(cell: str) -> str:
    """The text that `shown` was given.

    >>> plain("'=1+1"), plain("'tis")
    ('=1+1', "'tis")
    """
    return cell.removeprefix(QUOTE) if _formula(cell) else cell


def _formula(cell: str) -> bool:
    """True if a formula comes first, apostrophes passed over: so one that a text had before comes back too."""
    return cell.startswith((QUOTE, *FORMULA)) and cell.lstrip(QUOTE).startswith(FORMULA)


def reader(lines: Iterable[str], **options: Any) -> Any:
    """csv.reader with these options over `lines`, whose cells may be as long as a file."""
    csv.field_size_limit(LONGEST)  # for the whole process; the default is 128 kB
    return csv.reader(lines, **options)


def cells(lines: Iterable[str]) -> Iterator[list[str]]:
    """The rows of a table that `write` wrote. Raises csv.Error where it is none."""
    return ([plain(cell) for cell in row] for row in reader(lines))
