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
from labcore.runs.files import tables, untrusted
from labcore.runs.files.jsonl import LIMIT, Fault, Place, Row, gathered, objects, read_bytes

PARQUET = b"PAR1"
DELIMITED = {".csv": ",", ".tsv": "\t"}
_BATCH = 2**12  # rows of a Parquet file that are held at once


def read_rows(path: Path, read: Callable[[Mapping[str, Any], int], Row], left_out: list[Fault] | None = None,
              remedy: str = "") -> list[Row]:
    """Apply `read` to each row and its line; `read` raises LabError where the row cannot be used. Such rows go to
    `left_out`, with their lines, where it is given.

    Raises:
        LabError: the file cannot be read.
        BadRows: rows of it cannot be used, and are not left out, or none is left; it names the first of them, and
            gives the `remedy`.
    """
    return gathered(path.name, _rows(path), read, left_out, remedy)


def first_row(path: Path) -> dict[str, Any]:
    """The first row; an empty one if the row cannot be used, because the function that reads the whole file says why.
    Raises LabError if the file cannot be read, or is empty."""
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
    return _delimited(name, content, DELIMITED[suffix]) if suffix in DELIMITED else objects(name, content)


def _array(name: str, content: bytes) -> Iterator[Place]:
    try:
        found = untrusted.json_of(content)
    except untrusted.NotJSON as error:
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

    try:
        number = size = 0
        for batch in _batches(name, content):
            size += sum(map(_unpacked, batch.columns))
            if size > 2 * LIMIT:
                raise _too_large(name)
            for row in batch.to_pylist():
                number += 1
                yield number, partial(dict, row)
    except (pyarrow.ArrowException, OSError) as error:
        raise LabError(f"{name} is not a whole Parquet file ({first_line(error)}): copy it again.") from error


def _batches(name: str, content: bytes) -> Iterator[Any]:
    """The batches of a Parquet file, texts as dictionaries: one that many rows have is held once, so that the size of
    the rows is known before it is copied into each.

    Arrow cannot read lists so whose dictionary is not that of the whole row group. Those are read a few rows at a time.
    """
    import pyarrow
    from pyarrow.parquet import ParquetFile

    plain = ParquetFile(pyarrow.BufferReader(content))
    sizes = [plain.metadata.row_group(group).total_byte_size for group in range(plain.metadata.num_row_groups)]
    if sum(sizes) > 2 * LIMIT:
        raise _too_large(name)
    columns = map(plain.schema.column, range(len(plain.schema)))
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    shared = ParquetFile(pyarrow.BufferReader(content), read_dictionary=texts)
    for group, size in enumerate(sizes):
        try:
            batches = shared.read_row_group(group, use_threads=False).to_batches(_BATCH)
        except pyarrow.ArrowNotImplementedError:
            few = max(1, min(_BATCH, 2 * LIMIT // max(1, size)))  # no text is longer than all of its row group
            batches = plain.iter_batches(few, row_groups=[group], use_threads=False)
        yield from batches


def _too_large(name: str) -> LabError:
    return LabError(f"{name} unpacks to more than the limit of {2 * LIMIT // 2**20} MB: give a part of it.")


def _unpacked(column: Any) -> int:
    """Bytes of a column of a batch with its texts copied into every row."""
    import pyarrow
    from pyarrow import compute, types

    if types.is_dictionary(column.type):
        lengths = compute.binary_length(column.dictionary.cast(pyarrow.large_binary()))
        return int(compute.sum(lengths.take(column.indices)).as_py() or 0)
    if types.is_struct(column.type):
        return sum(map(_unpacked, column.flatten()))
    if types.is_list(column.type) or types.is_large_list(column.type) or types.is_map(column.type):
        return _unpacked(column.flatten() if not types.is_map(column.type) else column.items) + int(column.nbytes)
    return int(column.nbytes)
