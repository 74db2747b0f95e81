"""What happened to runs: events, which are only appended. Part of the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from labcore.store import changes
from labcore.store.cells import payload_of
from labcore.store.database import Database
from labcore.store.rows import Event
from labcore.store.schema import events, runs


class Events(Database):
    """See the module."""

    def log(self, run_id: str, kind: str, payload: Mapping[str, Any], step: int) -> int:
        """Add an event; return its id."""
        with self._writing() as connection:
            return changes.log(connection, run_id, kind, payload, step)

    def events_after(self, run_id: str, event_id: int = 0) -> list[Event]:
        """The events of a run beyond `event_id`, in order."""
        return self.events_after_many({run_id: event_id})[run_id]

    def events_after_many(self, after: Mapping[str, int]) -> dict[str, list[Event]]:
        """For each run, its events beyond the given one, in order. One query for all of them."""
        query = sa.select(events.c.run_id, events.c.id, events.c.step, events.c.kind, events.c.payload,
                          events.c.time).where(events.c.run_id.in_(after), events.c.id > min(after.values(), default=0))
        found: dict[str, list[Event]] = {run_id: [] for run_id in after}
        with self._reading() as connection:
            for row in connection.execute(query.order_by(events.c.id)) if after else ():
                if row.id > after[row.run_id]:
                    payload = payload_of(row.payload, row.kind)
                    found[row.run_id].append(Event(row.id, row.step, row.kind, payload, row.time))
        return found

    def moved(self, sweep: str) -> set[str]:
        """The runs of a sweep in which a knob was changed mid-run."""
        query = sa.select(events.c.run_id).distinct().join(runs, runs.c.id == events.c.run_id).where(
            runs.c.sweep == sweep, events.c.kind == "knob")
        with self._reading() as connection:
            return set(connection.scalars(query))
