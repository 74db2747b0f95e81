"""Events and controls of runs, which are only appended. Part of the store."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa

from labcore.errors import LabError, quoted
from labcore.runs.store import changes
from labcore.runs.store.cells import payload_of
from labcore.runs.store.database import Database
from labcore.runs.store.rows import ACTIVE, COMMANDS, ENDED, RESUMABLE, Control, Decision, Event
from labcore.runs.store.schema import controls, events, runs, sweeps


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


# ---------------------------------------------------------------- controls
# What was asked of runs, and what became of it. Part of the store.

_ASKED = sa.select(controls.c.id, controls.c.command, controls.c.payload).where(
    controls.c.run_id == sa.bindparam("run"), controls.c.state == "asked").order_by(controls.c.id)


class Controls(Database):
    """See the module."""

    def ask(self, run_id: str, command: str, payload: Mapping[str, Any] | None = None) -> int:
        """Request a control of a run: pause, resume, step, stop, or set {knob, value}. Returns the control's id. The
        payload of a stop may have `why`, a sentence, and `early`, if early stopping requests it.

        A queued run is stopped on the spot; everything else waits for the worker, which applies it in order. Raises
        LabError if there is no such command, or the run has ended.
        """
        payload = dict(payload or {})
        if command not in COMMANDS:
            raise LabError(f"There is no command {quoted(command)}: use one of {', '.join(COMMANDS)}.")
        if command == "set" and set(payload) != {"knob", "value"}:
            raise LabError("The command set needs a knob and its value: for example set beta=0.1.")
        with self._writing() as connection:
            state = changes.known(connection, run_id)
            changes.check_ours(connection, run_id)
            if state in ENDED:
                advice = "resume it or start a new one" if state in RESUMABLE else "start a new one"
                asked = "a changed knob" if command == "set" else command
                raise LabError(f"The run {run_id} is {state}, so {asked} has no effect: {advice} first.")
            control_id = changes.ask(connection, run_id, command, payload)
            if payload.get("early"):
                connection.execute(runs.update().where(runs.c.id == run_id), {"stops_early": True})
            if command == "stop" and state == "queued":
                step = changes.step(connection, run_id)
                connection.execute(controls.update().where(controls.c.id == control_id),
                                   {"state": "applied", "settled": time.time(), "step": step})
                why = payload.get("why", "")
                changes.move(connection, run_id, "stopped", why or "The run was stopped before it started.")
                changes.log(connection, run_id, "stopped", {"text": why} if why else {}, step)
            return control_id

    def asked(self, run_id: str) -> list[Control]:
        """The controls of the run that are not settled yet, in order."""
        with self._reading() as connection:
            rows = connection.execute(_ASKED, {"run": run_id})
            return [Control(row.id, row.command, payload_of(row.payload, row.command)) for row in rows]

    def settle(self, control_id: int, step: int, refused: str | None = None, *, superseded: bool = False,
               log: tuple[str, dict[str, Any]] | None = None) -> None:
        """Note the result of a control, with an event `log` (kind, payload) in the same transaction. Raises NotOwner if
        the run belongs to another process, which has to apply the control."""
        state = "refused" if refused else "superseded" if superseded else "applied"
        with self._writing() as connection:
            run_id = connection.execute(sa.select(controls.c.run_id).where(controls.c.id == control_id)).scalar_one()
            changes.check_owner(connection, run_id)
            connection.execute(controls.update().where(controls.c.id == control_id, controls.c.state == "asked"),
                               {"state": state, "settled": time.time(), "step": step, "refused": refused})
            if log:
                changes.log(connection, run_id, *log, step)

    def controls(self, run_id: str) -> list[Control]:
        """All controls ever requested of the run, with their results."""
        names = Control.__dataclass_fields__
        query = sa.select(*(controls.c[name] for name in names)).where(
            controls.c.run_id == run_id).order_by(controls.c.id)
        with self._reading() as connection:
            return [Control(**{**row._mapping, "payload": payload_of(row.payload, row.command)})
                    for row in connection.execute(query)]


# ---------------------------------------------------------------- early stopping
# Early stopping of sweeps: how they are stopped, what was decided, and why nobody decides. Part of the store.

class EarlyStopping(Database):
    """See the module."""

    def halvings(self, sweep: str | None = None) -> dict[str, str]:
        """The early stopping of one sweep, or of all sweeps with queued or running runs, by sweep."""
        active = sa.exists().where(runs.c.sweep == sweeps.c.id, runs.c.state.in_(ACTIVE))
        query = sa.select(sweeps.c.id, sweeps.c.halving).where(
            sweeps.c.halving != "", active if sweep is None else sweeps.c.id == sweep)
        with self._reading() as connection:
            return {row.id: row.halving for row in connection.execute(query)}

    def standing(self, sweep: str) -> dict[str, tuple[str, int]]:
        """The state and the step of each run of a sweep, oldest first."""
        query = sa.select(runs.c.id, runs.c.state, runs.c.step).where(runs.c.sweep == sweep).order_by(
            runs.c.created, runs.c.id)
        with self._reading() as connection:
            return {row.id: (row.state, row.step) for row in connection.execute(query)}

    def decisions(self, sweep: str) -> tuple[int, list[Decision]]:
        """The number of decisions on the runs of a sweep, and the decisions on runs that still exist, in order."""
        turn = sa.select(sweeps.c.decisions).where(sweeps.c.id == sweep)
        query = sa.select(events.c.id, events.c.run_id, events.c.step, events.c.payload).join(
            runs, runs.c.id == events.c.run_id).where(runs.c.sweep == sweep, events.c.kind == "rung")
        with self._reading() as connection:
            return connection.scalar(turn) or 0, [
                Decision(row.id, row.run_id, row.step, payload_of(row.payload, "rung"))
                for row in connection.execute(query.order_by(events.c.id))]

    def decide(self, sweep: str, turn: int, run_id: str, step: int, payload: Mapping[str, Any]) -> Decision | None:
        """Note a decision. Returns None if the sweep no longer has `turn` decisions, because this one was then made
        without knowing all others."""
        mine = sweeps.update().where(sweeps.c.id == sweep, sweeps.c.decisions == turn)
        with self._writing() as connection:
            if not connection.execute(mine, {"decisions": turn + 1}).rowcount:
                return None
            return Decision(changes.log(connection, run_id, "rung", payload, step), run_id, step, dict(payload))

    def unjudged(self, sweep: str | None = None) -> dict[str, str]:
        """The stored reasons why early stopping does not work, of one sweep or of all; only sweeps with a reason."""
        query = sa.select(sweeps.c.id, sweeps.c.fault).where(sweeps.c.fault.is_not(None))
        with self._reading() as connection:
            return {row.id: row.fault for row in connection.execute(
                query if sweep is None else query.where(sweeps.c.id == sweep))}

    def set_unjudged(self, these: Collection[str], why: str | None) -> None:
        """Store why the early stopping of sweeps does not work; None: it works again. Writes only what is new."""
        there = self.unjudged()
        if new := [sweep for sweep in these if there.get(sweep) != why]:
            with self._writing() as connection:
                connection.execute(sweeps.update().where(sweeps.c.id.in_(new)), {"fault": why})
