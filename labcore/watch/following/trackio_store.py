"""Trackio's SQLite files, `PROJECT.db`: the metrics and settings of its runs, opened read-only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from labcore.errors import LabError, first_line
from labcore.runs.files.untrusted import NotJSON, json_of, opened
from labcore.watch.following.calls import Call, Named, Row, Settings
from labcore.watch.following.reader import Reader

MAGIC = b"SQLite format 3\0"
_AT_ONCE = 1000  # rows
_WORDS = {"NaN", "Infinity", "-Infinity"}  # in trackio.utils.serialize_values


class TrackioStore(Reader):
    """Reads the rows after the last one read. If that row has changed, the file was replaced, so it is read from the
    start."""

    def look(self, settled: bool) -> Iterator[Call]:
        """New settings and rows of every run in the file."""
        try:
            with closing(_open(self.path)) as store:
                columns = {row[1] for row in store.execute("pragma table_info(metrics)")}
                if not {"run_name", "step", "metrics"} <= columns:
                    return  # the file of another program, or an incomplete one
                of = "run_id" if "run_id" in columns else "run_name"
                yield from self._settings(store, of)
                yield from self._rows(store, of)
        except sqlite3.OperationalError as error:
            if settled:  # otherwise it may be locked, or a table may be missing yet
                raise LabError(f"{self.path.name} cannot be read ({first_line(error)}).") from error
        except sqlite3.DatabaseError as error:
            raise LabError(f"{self.path.name} is damaged ({first_line(error)}).") from error

    def _settings(self, store: sqlite3.Connection, of: str) -> Iterator[Call]:
        if not [*store.execute("pragma table_info(configs)")]:
            return
        seen = self.memory.setdefault("settings", [])
        for number, run, name, text in store.execute(f"select id, {of}, run_name, config from configs order by id"):
            if number not in seen and isinstance(values := _json(text), dict):
                yield Named(str(name), str(run))
                yield Settings({key: value for key, value in values.items() if not key.startswith("_")}, str(run))
                seen.append(number)

    def _rows(self, store: sqlite3.Connection, of: str) -> Iterator[Call]:
        last = self.memory.get("last", 0)
        written = store.execute("select timestamp from metrics where id = ?", (last,)).fetchone()
        if last and (written is None or written[0] != self.memory.get("written")):
            last = 0
        query = f"select id, {of}, run_name, step, timestamp, metrics from metrics where id > ? order by id limit ?"
        while rows := store.execute(query, (last, _AT_ONCE)).fetchall():
            for last, run, name, step, time, text in rows:
                if isinstance(values := _json(text), dict):
                    yield Named(str(name), str(run))
                    yield Row({"step": step, **{key: _number(each) for key, each in values.items()}}, _clock(time),
                              str(run))
                else:
                    self.say(f"has rows that are not JSON and are skipped; the first is row {last:,}")
                self.memory.update(last=last, written=time)


def _open(path: Path) -> sqlite3.Connection:
    """Open the file read-only. In WAL mode without a writer there is no WAL file; SQLite would create it, unless the
    file is opened as immutable."""
    with opened(path) as file:
        wal = file.read(19)[18:] == b"\x02"
    still = wal and not path.with_name(f"{path.name}-wal").exists()
    store = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if still else ''}", uri=True,
                            timeout=0.5)
    store.execute("pragma trusted_schema = off")
    return store


def _json(text: Any) -> Any:
    try:
        return json_of(text, constants=True) if isinstance(text, str | bytes) else None
    except NotJSON:
        return None


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and value in _WORDS else value


def _clock(time: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return None
