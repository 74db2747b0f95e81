"""Watched runs in the store: what their files say, and how far these were read, in one transaction. Part of the store.

So a line is taken once, whatever is killed in between: rows and place are both there, or neither.
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
    """An open transaction about one watched folder. `place` is how far it was read, as its reader keeps it; it is
    written at the end. Runs are this process's while it reads."""

    def __init__(self, connection: sa.Connection, place: dict[str, Any]):
        self._connection, self.place = connection, place
        self._rows: list[dict[str, Any]] = []
        self._reached: dict[str, dict[str, Any]] = {}  # run -> its newest step and seconds

    def create(self, spec: RunSpec, project: str = "") -> str:
        """Add a run that is going. Returns its id."""
        run_id, = changes.create(self._connection, [spec], None, {}, project)
        changes.claim(self._connection, run_id, Owner.this())
        changes.move(self._connection, run_id, "running", "")
        begun = ("forked", {"run": spec.parent[0], "from": spec.parent[1]}) if spec.parent else ("started", {})
        self.log(run_id, *begun, spec.parent[1] if spec.parent else 0)
        return run_id

    def mine(self, run_id: str) -> bool:
        """Take up a run: after it ended, or after the process that read it did. False where it was deleted for good.

        Raises:
            NoSuchRun: it is in the trash.
            NotOwner: another process reads it.
        """
        state = changes.state(self._connection, run_id)
        if state is None:
            return False
        changes.check_not_in_trash(self._connection, run_id)
        if state in ENDED:
            owner = Owner.this()
            self._connection.execute(runs.update().where(runs.c.id == run_id), {
                "state": "running", "message": "", "ended": None, "pid": owner.pid, "host": owner.host,
                "process_started": owner.started, "heartbeat": time.time()})
            self.log(run_id, "resumed", {"from": changes.step(self._connection, run_id)},
                     changes.step(self._connection, run_id))
        changes.check_owner(self._connection, run_id)
        return True

    def append(self, run_id: str, record: Record, seconds: float, newest: bool = True) -> None:
        """Add a step that is not there; not the `newest` where it is an earlier one."""
        self._rows.append({"run_id": run_id, "step": record.step, "tokens": record.tokens,
                           "env_steps": record.env_steps, "seconds": seconds,
                           "metrics": json.dumps(record.metrics, allow_nan=False)})
        if newest:
            self._reached[run_id] = {"step": record.step, "seconds": seconds}

    def metrics(self, run_id: str, step: int) -> dict[str, float] | None:
        """The metrics of a step; None where it is not there."""
        self.flush()
        text = self._connection.scalar(sa.select(steps.c.metrics).where(
            steps.c.run_id == run_id, steps.c.step == step))
        return None if text is None else cells.metrics_of([text])[0]

    def amend(self, run_id: str, step: int, more: Mapping[str, float]) -> None:
        """Add metrics that a step lacks. What it has stays."""
        there = self.metrics(run_id, step) or {}
        self._connection.execute(steps.update().where(steps.c.run_id == run_id, steps.c.step == step), {
            "metrics": json.dumps({**more, **there}, allow_nan=False)})

    def before(self, run_id: str, step: int) -> int:
        """The last step of a run before `step`; 0 where there is none."""
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
        """Write the rows that were collected."""
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
        """One transaction about the watched folder `name`.

        Raises:
            LabError: the disk is full, say.
        """
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
        """The places of all watched folders, by their names."""
        with self._reading() as connection:
            return {row.id: _place(row.place) for row in connection.execute(sa.select(watched))}


def _place(text: str | None) -> dict[str, Any]:
    found: Any = json.loads(text) if text else {}
    if not isinstance(found, dict):
        raise Garbled("how far a watched run was read cannot be read")
    return found
