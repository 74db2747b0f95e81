"""Logs of lines: JSON lines, CSV, and Stable-Baselines3's monitor. An incomplete line waits."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from typing import Any

from labcore.errors import LabError
from labcore.runs.files import tables
from labcore.runs.files.jsonl import LINE_LIMIT
from labcore.runs.files.untrusted import NotJSON, json_of
from labcore.runs.imports.delimited import head_of
from labcore.runs.imports.layouts import RUN_COLUMNS, flat, plain
from labcore.runs.imports.table import MISSING
from labcore.watch.following.calls import Call, Row
from labcore.watch.following.reader import Damaged, Growing

_NAMING = 5  # columns that name a run and nothing else


class JsonLines(Growing):
    """One JSON object per line; nested members are columns `a/b`."""

    most = LINE_LIMIT

    def take(self, data: bytes, at: int) -> tuple[int, list[Call]]:
        used, found = 0, list[Call]()
        for line in _split(data):
            whole = line.endswith(b"\n")
            if row := self._row(line, whole):
                found.append(row)
            elif not whole:
                break
            used += len(line)
        return used, found

    def _row(self, line: bytes, whole: bool) -> Row | None:
        """Return the row of a line; None if it has none or is incomplete."""
        number = self.memory["lines"] = self.memory.get("lines", 0) + whole
        if not line.strip():
            return None
        try:
            value = json_of(line, constants=True)
        except NotJSON as error:
            if whole:
                self.say(f"has lines that are not JSON and are skipped; the first is line {number:,} ({error})")
            return None
        if not isinstance(value, dict):
            if whole:
                self.say(f"has lines that are not JSON objects and are skipped; the first is line {number:,}")
            return None
        values = flat(value)
        return Row(values, run=run_of(values))


class Csv(Growing):
    """CSV with a header. If the trainer rewrites its log with more columns, as Stable-Baselines3 does, reading
    continues after the rows that were read before: the first row and the last of these are unchanged."""

    def take(self, data: bytes, at: int) -> tuple[int, list[Call]]:
        used, found = 0, list[Call]()
        if "header" not in self.memory:
            used = self._begin(data)
            if not used:
                return 0, []
        for count, line in _whole_rows(data[used:]):
            used += count
            if row := self._row(line):
                found.append(row)
        return used, found

    def again(self, shorter: bool) -> None:
        rows, first = self.memory.get("rows", 0), self.memory.get("first")
        super().again(shorter)
        if rows and not shorter:
            self.memory.update(skip=rows, before=first)

    def _begin(self, data: bytes) -> int:
        whole = data[:data.rfind(b"\n") + 1]
        try:
            head = head_of("The file", whole)
        except UnicodeDecodeError:
            raise Damaged("is not UTF-8 and is not followed") from None
        except LabError:  # no header yet
            return 0
        self.memory.update(header=list(head.header), delimiter=head.delimiter, rows=0, lines=head.lines)
        return sum(map(len, [*_split(whole)][:head.lines]))

    def _row(self, line: bytes) -> Row | None:
        self.memory["lines"] += line.count(b"\n")
        header, text = self.memory["header"], line.decode("utf-8", "replace")
        if not text.strip() or text.startswith("#"):
            return None
        try:
            cells = next(tables.reader([text], delimiter=self.memory["delimiter"], strict=True))
        except csv.Error as error:
            self._left_out(f"is not CSV ({error})")
            return None
        if [cell.strip() for cell in cells] == header:
            return None
        if len(cells) != len(header):
            self._left_out(f"has {len(cells)} cells, but the header has {len(header)}")
            return None
        values = dict(zip(header, map(_cell, cells), strict=True))
        if self.memory["rows"] == 0:
            before = self.memory.pop("before", None)
            if before is not None and any(values.get(column) != cell for column, cell in before.items()):
                self.memory.pop("skip")  # another log
            self.memory["first"] = {column: cell for column, cell in values.items() if cell == cell}
        self.memory["rows"] += 1
        return None if self.memory["rows"] <= self.memory.get("skip", 0) else Row(values, run=run_of(values))

    def _left_out(self, why: str) -> None:
        self.say(f"has rows that are skipped; the first is line {self.memory['lines']:,}, which {why}")


class Monitor(Csv):
    """Stable-Baselines3's monitor: one row per episode, and a new file at each start."""

    def again(self, shorter: bool) -> None:
        self.memory.clear()


def run_of(values: Mapping[str, Any]) -> str:
    """Return the name of a row's run in a log with several runs."""
    return next((value for column, value in values.items()
                 if isinstance(value, str) and plain(column) in RUN_COLUMNS[:_NAMING]), "")


def _split(data: bytes) -> Iterator[bytes]:
    """Yield lines with their line breaks; the last line may have none."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end


def _whole_rows(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (bytes, row) of each complete row; line breaks within quotes do not end a row."""
    row = b""
    for line in _split(data):
        row += line
        if line.endswith(b"\n") and row.count(b'"') % 2 == 0:
            yield len(row), row
            row = b""


def _cell(cell: str) -> Any:
    """Return a cell as a number, otherwise as text; None if it is empty."""
    try:
        return float(cell)
    except ValueError:
        return None if cell.strip().lower() in MISSING else tables.plain(cell)
