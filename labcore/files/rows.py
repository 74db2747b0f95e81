"""Rows of the user's data files: JSON lines, a JSON array, CSV or TSV, and Parquet, each compressed by gzip or not.

A row is an object of named fields. What stands where: a line of JSON lines or CSV, else the row's number.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from labcore.errors import LabError, first_line
from labcore.files import given, tables
from labcore.files.jsonl import LIMIT, Place, Row, gathered, objects, read_bytes

PARQUET = b"PAR1"
DELIMITED = {".csv": ",", ".tsv": "\t"}
_BATCH = 2**12  # rows of a Parquet file that are held at once


def read_rows(path: Path, read: Callable[[Mapping[str, Any], int], Row]) -> list[Row]:
    """Apply `read` to each row and its line; `read` raises LabError where the row cannot be used.

    Raises:
        LabError: the file cannot be read, or rows of it cannot be used; it names the first of them.
    """
    return gathered(path.name, _rows(path), read)


def first_row(path: Path) -> dict[str, Any]:
    """The first row; an empty one where it cannot be read: whoever reads the whole file says why.

    Raises:
        LabError: the file cannot be read, or is empty.
    """
    for _, row in _rows(path):
        try:
            return row()
        except LabError:
            break
    return {}


def _rows(path: Path) -> Iterator[Place]:
    content, name = read_bytes(path), path.name
    suffix = Path(name.lower().removesuffix(".gz")).suffix
    if content.startswith(PARQUET):
        return _parquet(name, content)
    if content.lstrip()[:1] == b"[":
        return _array(name, content)
    if suffix in DELIMITED:
        return _delimited(name, content, DELIMITED[suffix])
    return objects(name, content)


def _array(name: str, content: bytes) -> Iterator[Place]:
    try:
        found = given.json_of(content)
    except given.NotJSON as error:
        raise LabError(f"{name} is not JSON ({error}): write a list of objects, or one object on each line.") from error

    def checked(number: int, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise LabError(f"Row {number} of {name} is not an object: write {{\"name\": \"value\"}} for each.")
        return value
    return ((number, partial(checked, number, value)) for number, value in enumerate(found, start=1))


def _delimited(name: str, content: bytes, delimiter: str) -> Iterator[Place]:
    """An empty cell is a field that the row does not have."""
    try:
        reader = tables.reader(io.StringIO(content.decode("utf-8"), newline=""), delimiter=delimiter, strict=True)
        header = [cell.strip() for cell in next(reader)]
        for cells in reader:
            if any(cells):
                yield reader.line_num, partial(_of_cells, name, reader.line_num, header, cells)
    except UnicodeDecodeError as error:
        raise LabError(f"{name} is not UTF-8 (byte 0x{content[error.start]:02x} at place {error.start + 1}): save it "
                       "as UTF-8.") from error
    except csv.Error as error:
        raise LabError(f"{name} is not CSV ({error}): save the table again.") from error


def _of_cells(name: str, line: int, header: list[str], cells: list[str]) -> dict[str, Any]:
    if len(cells) != len(header):
        raise LabError(f"Line {line} of {name} has {len(cells)} cells and the header {len(header)}: put cells with "
                       "commas or line ends in quotes.")
    return {field: tables.plain(cell) for field, cell in zip(header, cells, strict=True) if cell}


def _parquet(name: str, content: bytes) -> Iterator[Place]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(pyarrow.BufferReader(content))
        size = sum(file.metadata.row_group(place).total_byte_size for place in range(file.metadata.num_row_groups))
        if size > 2 * LIMIT:
            raise LabError(f"{name} unpacks to {size / 2**20:.0f} MB, above the limit of {2 * LIMIT // 2**20} MB: give "
                           "a part of it.")
        number = 0
        for batch in file.iter_batches(_BATCH, use_threads=False):
            for row in batch.to_pylist():
                number += 1
                yield number, partial(dict, row)
    except (pyarrow.ArrowException, OSError) as error:
        raise LabError(f"{name} is not a whole Parquet file ({first_line(error)}): copy it again.") from error
