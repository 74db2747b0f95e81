"""CSV with a comma, a semicolon or a tab, and what tools put around it: comments, Excel's sep=, a header again."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from labcore.errors import LabError
from labcore.runs.files import tables
from labcore.runs.imports.table import Table

_DELIMITERS = ",;\t"
_SEP = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # the first line of a file for Excel
_COMMENT = "#"


@dataclass(frozen=True)
class Head:
    """The beginning of a file: its delimiter, its header, how many lines come before the first row, and whether
    comments are among them."""

    delimiter: str
    header: tuple[str, ...]
    lines: int
    comments: bool


def table(name: str, content: bytes) -> Table:
    """The table in a CSV file, read line by line.

    Raises:
        LabError: it has no header, or no rows. Reading rows raises it where a line is not CSV, or has more or fewer
            cells than the header.
        UnicodeDecodeError: it is not UTF-8.
    """
    head = head_of(name, content)
    notes: list[str] = []

    def rows(places: Sequence[int]) -> Iterator[tuple[int, int, Sequence[str]]]:
        part = count = 0
        for line, cells in _lines(name, content, head, notes):
            if cells == list(head.header):  # another file was appended, header and all
                part, count = part + bool(count), 0
                continue
            count += 1
            yield line, part, [cells[place] for place in places]

    return Table(head.header, rows, {"the lines that begin with #": "comments"} if head.comments else {}, notes)


def _text(content: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), "utf-8", newline="")


def head_of(name: str, content: bytes) -> Head:
    delimiter, comment, count, comments = "", "", 0, 0
    for line in (text := _text(content)):
        plain = line.strip().strip('"')
        if not plain or (found := _SEP.fullmatch(plain)) or plain.startswith(_COMMENT):
            count += 1
            delimiter = found[1] if plain and found else delimiter
            if plain.startswith(_COMMENT):
                comment, comments = plain.lstrip(_COMMENT), comments + 1
            continue
        delimiter = delimiter or max(_DELIMITERS, key=plain.count)
        reader = tables.reader(itertools.chain([line], text), delimiter=delimiter, strict=True)
        try:
            first = next(reader)
        except csv.Error as error:
            raise LabError(f"Line {count + 1} of {name} is not CSV ({error}): export the run again.") from error
        named = comment.split(delimiter)
        # Where a comment names the columns of numbers, as NumPy's savetxt writes it, it is the header.
        if all(map(_is_number, first)) and len(named) == len(first) and not all(map(_is_number, named)):
            return Head(delimiter, _names(named), count, comments > 1)
        return Head(delimiter, _names(first), count + reader.line_num, comments > 0)
    raise LabError(f"{name} is empty: export the run again.")


def _names(cells: Sequence[str]) -> tuple[str, ...]:
    return tuple(tables.plain(cell.strip()) for cell in cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell or "0")
    except ValueError:
        return False
    return True


def _lines(name: str, content: bytes, head: Head, notes: list[str]) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of the rows, and of a header that stands there again. Memory: one line."""
    text, width = _text(content), len(head.header)
    for _ in range(head.lines):
        text.readline()
    reader = tables.reader(text, delimiter=head.delimiter, strict=True)
    try:
        for cells in reader:
            line = head.lines + reader.line_num
            if not any(cell.strip() for cell in cells) or (
                    cells[0].startswith(_COMMENT) and (len(cells) != width or cells[0].startswith(f"{_COMMENT}{{"))):
                continue
            if len(cells) < width and not content.endswith((b"\n", b"\r")) and next(reader, None) is None:
                notes.append(f"Line {line} is cut off and was left out.")  # its writer was stopped, or still writes
                return
            if len(cells) != width:
                raise LabError(f"Line {line} of {name} has {len(cells)} cells and the header {width}: export the run "
                               "again.")
            yield line, [*_names(cells)] if cells[0].strip() == head.header[0] else cells
    except csv.Error as error:
        raise LabError(f"Line {head.lines + reader.line_num} of {name} is not CSV ({error}): export the run again."
                       ) from error
