"""Watched runs in the store: rows and the read positions in their files, in one transaction. Part of the store.

So each line is stored exactly once, even if a process is killed: rows and read position are written together.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.spec.session import Record
from labcore.runs.store import cells, changes
from labcore.runs.store.database import Database
from labcore.runs.store.process import Owner
from labcore.runs.store.rows import ENDED, Garbled
from labcore.runs.store.schema import runs, steps, watched


class Taking:
    """An open transaction for one watched folder. `place` is its read position, written at the end. This process owns
    the runs while it reads."""

    def __init__(self, connection: sa.Connection, place: dict[str, Any]):
        self._connection, self.place = connection, place
        self._rows: list[dict[str, Any]] = []
        self._reached: dict[str, dict[str, Any]] = {}  # run -> its newest step and seconds

    def create(self, spec: RunSpec, project: str = "") -> str:
        """Add a running run. Returns its id."""
        run_id, = changes.create(self._connection, [spec], None, {}, project)
        changes.claim(self._connection, run_id, Owner.this())
        changes.move(self._connection, run_id, "running", "")
        begun = ("forked", {"run": spec.parent[0], "from": spec.parent[1]}) if spec.parent else ("started", {})
        self.log(run_id, *begun, spec.parent[1] if spec.parent else 0)
        return run_id

    def mine(self, run_id: str) -> bool:
        """Continue a run that ended or that another process owned; only one process reads a home at a time. Returns
        False if the run was deleted permanently. Raises NoSuchRun if it is in the trash."""
        state = changes.state(self._connection, run_id)
        if state is None:
            return False
        changes.check_not_in_trash(self._connection, run_id)
        owner = Owner.this()
        self._connection.execute(runs.update().where(runs.c.id == run_id), {
            "state": "running", "message": "", "ended": None, "pid": owner.pid, "host": owner.host,
            "process_started": owner.started, "heartbeat": time.time()})
        if state in ENDED:
            step = changes.step(self._connection, run_id)
            self.log(run_id, "resumed", {"from": step}, step)
        return True

    def append(self, run_id: str, record: Record, seconds: float, newest: bool = True) -> None:
        """Add a missing step; `newest` is False for a step before the last one."""
        self._rows.append({"run_id": run_id, "step": record.step, "tokens": record.tokens,
                           "env_steps": record.env_steps, "seconds": seconds,
                           "metrics": json.dumps(record.metrics, allow_nan=False)})
        if newest:
            self._reached[run_id] = {"step": record.step, "seconds": seconds}

    def metrics(self, run_id: str, step: int) -> dict[str, float] | None:
        """Return the metrics of a step; None if it does not exist."""
        self.flush()
        text = self._connection.scalar(sa.select(steps.c.metrics).where(steps.c.run_id == run_id, steps.c.step == step))
        return None if text is None else cells.metrics_of([text])[0]

    def amend(self, run_id: str, step: int, more: Mapping[str, float]) -> None:
        """Add metrics that a step lacks; existing ones stay unchanged."""
        there = self.metrics(run_id, step) or {}
        self._connection.execute(steps.update().where(steps.c.run_id == run_id, steps.c.step == step), {
            "metrics": json.dumps({**more, **there}, allow_nan=False)})

    def before(self, run_id: str, step: int) -> int:
        """Return the last step of a run before `step`; 0 if there is none."""
        self.flush()
        return self._connection.scalar(sa.select(sa.func.max(steps.c.step)).where(
            steps.c.run_id == run_id, steps.c.step < step)) or 0

    def log(self, run_id: str, kind: str, payload: Mapping[str, Any], step: int) -> None:
        """Add an event."""
        changes.log(self._connection, run_id, kind, payload, step)

    def end(self, run_id: str, state: str, text: str) -> None:
        """End a run."""
        self.flush()
        if changes.state(self._connection, run_id) not in ENDED:
            changes.move(self._connection, run_id, state, text)
            self.log(run_id, state, {"text": text}, changes.step(self._connection, run_id))

    def flush(self) -> None:
        """Write the collected rows."""
        if self._rows:
            self._connection.execute(steps.insert(), self._rows)
            self._rows = []
        for run_id, reached in self._reached.items():
            self._connection.execute(runs.update().where(runs.c.id == run_id), {"heartbeat": time.time(), **reached})
        self._reached = {}


class Watched(Database):
    """See the module."""

    @contextmanager
    def taking(self, name: str) -> Iterator[Taking]:
        """Open a transaction for the watched folder `name`. Raises LabError if the store cannot be written, for example
        because the disk is full."""
        with self._writing() as connection:
            text = connection.scalar(sa.select(watched.c.place).where(watched.c.id == name))
            taking = Taking(connection, _place(text))
            yield taking
            taking.flush()
            value = json.dumps(taking.place, ensure_ascii=False)
            if text is None:
                connection.execute(watched.insert(), {"id": name, "place": value})
            elif value != text:
                connection.execute(watched.update().where(watched.c.id == name), {"place": value})

    def watched(self) -> dict[str, dict[str, Any]]:
        """Return the read positions of all watched folders, by name."""
        with self._reading() as connection:
            return {row.id: _place(row.place) for row in connection.execute(sa.select(watched))}


def _place(text: str | None) -> dict[str, Any]:
    found: Any = json.loads(text) if text else {}
    if not isinstance(found, dict):
        raise Garbled("the read position of a watched run cannot be read")
    return found
