"""Early stopping of sweeps: how they are stopped, what was decided, and why nobody decides. Part of the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa

from labcore.store import changes
from labcore.store.cells import payload_of
from labcore.store.database import Database
from labcore.store.rows import ACTIVE, Decision
from labcore.store.schema import events, runs, sweeps


class EarlyStopping(Database):
    """See the module."""

    def halvings(self, sweep: str | None = None) -> dict[str, str]:
        """How sweeps are stopped early: of one sweep, or of all that have runs which wait or go."""
        active = sa.exists().where(runs.c.sweep == sweeps.c.id, runs.c.state.in_(ACTIVE))
        query = sa.select(sweeps.c.id, sweeps.c.halving).where(active if sweep is None else sweeps.c.id == sweep)
        with self._reading() as connection:
            return {row.id: row.halving for row in connection.execute(query)}

    def standing(self, sweep: str) -> dict[str, tuple[str, int]]:
        """The state and the step of each run of a sweep, in their order."""
        query = sa.select(runs.c.id, runs.c.state, runs.c.step).where(runs.c.sweep == sweep).order_by(runs.c.number)
        with self._reading() as connection:
            return {row.id: (row.state, row.step) for row in connection.execute(query)}

    def decisions(self, sweep: str) -> tuple[int, list[Decision]]:
        """How many decisions were made of the runs of a sweep, and those of the runs that are there, in order."""
        turn = sa.select(sweeps.c.decisions).where(sweeps.c.id == sweep)
        query = sa.select(events.c.id, events.c.run_id, events.c.step, events.c.payload).join(
            runs, runs.c.id == events.c.run_id).where(runs.c.sweep == sweep, events.c.kind == "rung")
        with self._reading() as connection:
            return connection.scalar(turn) or 0, [
                Decision(row.id, row.run_id, row.step, payload_of(row.payload, "rung"))
                for row in connection.execute(query.order_by(events.c.id))]

    def decide(self, sweep: str, turn: int, run_id: str, step: int, payload: Mapping[str, Any]) -> Decision | None:
        """Note a decision; None where it does not know of others: there are more than `turn` already."""
        mine = sweeps.update().where(sweeps.c.id == sweep, sweeps.c.decisions == turn)
        with self._writing() as connection:
            if not connection.execute(mine, {"decisions": turn + 1}).rowcount:
                return None
            return Decision(changes.log(connection, run_id, "rung", payload, step), run_id, step, dict(payload))

    def unjudged(self, sweep: str | None = None) -> dict[str, str]:
        """Why nobody decides, in a few words: of one sweep, or of all; only those of which it was said."""
        query = sa.select(sweeps.c.id, sweeps.c.fault).where(sweeps.c.fault.is_not(None))
        with self._reading() as connection:
            return {row.id: row.fault for row in connection.execute(
                query if sweep is None else query.where(sweeps.c.id == sweep))}

    def set_unjudged(self, these: Collection[str], why: str | None) -> None:
        """Say of sweeps why nobody decides; None: somebody does again. Writes only what is new."""
        there = self.unjudged()
        if new := [sweep for sweep in these if there.get(sweep) != why]:
            with self._writing() as connection:
                connection.execute(sweeps.update().where(sweeps.c.id.in_(new)), {"fault": why})
