"""Metrics as Parquet, read by pyarrow in batches: columns of numbers, and texts that name runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from labcore.errors import LabError, first_line, quoted
from labcore.runs.files.jsonl import LIMIT
from labcore.runs.imports.table import Table

MAGIC = b"PAR1"
_BATCH = 2**14  # rows


def table(name: str, content: bytes) -> Table:
    """The table in a Parquet file. Raises LabError where it is damaged, or unpacks to more than the lab reads."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    def damaged(error: Exception) -> LabError:
        return LabError(f"{name} is not a whole Parquet file ({first_line(error)}): copy or export it again.")

    try:
        schema = ParquetFile(pyarrow.BufferReader(content)).schema_arrow
    except (pyarrow.ArrowException, OSError) as error:
        raise damaged(error) from error
    header = tuple(schema.names)
    if twice := [column for column, count in Counter(header).items() if count > 1]:
        raise LabError(f"{name} has two columns {quoted(twice[0])}: give each its own name.")

    def rows(places: Sequence[int]) -> Iterator[tuple[int, int, Sequence[Any]]]:
        wanted = [header[place] for place in dict.fromkeys(places)]
        texts = [column for column in wanted if pyarrow.types.is_string(schema.field(column).type)
                 or pyarrow.types.is_large_string(schema.field(column).type)]
        line = 0
        try:
            file = ParquetFile(pyarrow.BufferReader(content), read_dictionary=texts)
            if _unpacked(file, set(wanted)) > 2 * LIMIT:
                raise LabError(f"{name} unpacks to more than {2 * LIMIT // 2**20} MB: give a part of it.")
            for batch in file.iter_batches(_BATCH, columns=wanted, use_threads=False):
                columns = {column: _cells(batch.column(column)) for column in wanted}
                for cells in zip(*(columns[header[place]] for place in places), strict=True):
                    line += 1
                    yield line, 0, cells
        except (pyarrow.ArrowException, OSError) as error:
            raise damaged(error) from error

    return Table(header, rows)


def _unpacked(file: Any, columns: set[str]) -> int:
    """Bytes of these columns once they are unpacked, as the file says."""
    groups = [file.metadata.row_group(place) for place in range(file.metadata.num_row_groups)]
    chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
    return sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.partition(".")[0] in columns)


def _cells(column: Any) -> list[Any]:
    """The cells of a column. Texts are made once each, however many rows have them; what is neither text nor number
    is said by its type, which is no number either."""
    import pyarrow

    kind, types = column.type, pyarrow.types
    if types.is_dictionary(kind):
        values = column.dictionary.to_pylist()
        return [None if place is None else values[place] for place in column.indices.to_pylist()]
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return list(column.to_pylist())
    return [str(kind) if there else None for there in column.is_valid().to_pylist()]
