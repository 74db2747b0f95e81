"""Metrics as JSON: one object per line, or a list of objects, alone or as the `log_history` of a trainer's state."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from labcore.errors import LabError
from labcore.runs.files import untrusted
from labcore.runs.files.jsonl import LINE_LIMIT
from labcore.runs.imports.layouts import HISTORY, flat
from labcore.runs.imports.table import Table

DOCUMENT = 16 * 2**20  # bytes of JSON other than JSON lines, which takes many times as much memory when read

Objects = Callable[[], Iterator[tuple[int, dict[str, Any]]]]


def table(name: str, content: bytes) -> Table:
    """The table in a JSON file: a column for each name that any of its objects has, in their order.

    Raises:
        LabError: it is not JSON, or holds something else than objects.
        UnicodeDecodeError: it is not UTF-8.
    """
    notes: list[str] = []
    objects, left = _objects(name, content, notes)
    header = tuple(dict.fromkeys(column for _, value in objects() for column in value))
    seen = notes.copy()

    def rows(places: Sequence[int]) -> Iterator[tuple[int, int, Sequence[Any]]]:
        wanted = [header[place] for place in places]
        for line, value in objects():
            yield line, 0, [value.get(column) for column in wanted]
        notes[:] = seen  # the second look found the same

    return Table(header, rows, left, notes)


def _objects(name: str, content: bytes, notes: list[str]) -> tuple[Objects, dict[str, str]]:
    """A function that gives (line, row) of each object, and the values that stand beside them."""
    lines = list(itertools.islice(filter(bytes.strip, io.BytesIO(content)), 2))
    try:
        first = untrusted.json_of(lines[0].decode(), constants=True) if len(lines[0]) <= LINE_LIMIT else None
    except untrusted.NotJSON:
        first = None
    if isinstance(first, dict) and len(lines) > 1:
        return lambda: _of_lines(name, content, notes), {}
    rows, left = _of_document(name, content)
    return lambda: ((place, flat(row)) for place, row in enumerate(rows, start=1)), left


def _of_lines(name: str, content: bytes, notes: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    whole = content.endswith(b"\n")
    last = content.count(b"\n") + 1
    for number, line in enumerate(io.BytesIO(content), start=1):
        if not line.strip():
            continue
        if len(line) > LINE_LIMIT:
            raise LabError(f"Line {number} of {name} is longer than {LINE_LIMIT // 2**20} MB: leave its texts out.")
        try:
            value = untrusted.json_of(line.decode(), constants=True)
        except (untrusted.NotJSON, UnicodeDecodeError) as error:
            if number == last and not whole:
                notes.append(f"Line {number} is cut off and was left out.")  # its writer was stopped, or still writes
                return
            if isinstance(error, UnicodeDecodeError):
                raise
            raise LabError(f"Line {number} of {name} is not JSON ({error}): write one object per line.") from error
        if not isinstance(value, dict):
            raise LabError(f"Line {number} of {name} is no JSON object: write one object per line, for example "
                           '{"step": 1, "reward": 0.5}.')
        yield number, flat(value)


def _of_document(name: str, content: bytes) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The objects of a list of them, of a trainer's state, or the only one; and what stands beside them."""
    if len(content) > DOCUMENT:
        raise LabError(f"{name} is a JSON document of {len(content) / 2**20:.0f} MB, above the limit of "
                       f"{DOCUMENT // 2**20} MB: write its rows as JSON lines, one object per line.")
    try:
        value = untrusted.json_of(content.decode(), constants=True)
    except untrusted.NotJSON as error:
        raise LabError(f"{name} is not JSON ({error}): export the run again.") from error
    rows = value.get(HISTORY, [value]) if isinstance(value, dict) else value
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise LabError(f"{name} has no list of JSON objects: give JSON lines, a list of objects with a step, or a "
                       f"trainer_state.json with its {HISTORY}.")
    beside = value.keys() - {HISTORY}.union(*rows) if isinstance(value, dict) and HISTORY in value else ()
    return rows, dict.fromkeys(sorted(beside), f"no row of {HISTORY}")
