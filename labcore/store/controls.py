"""What was asked of runs, and what became of it. Part of the store."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from labcore.errors import LabError, quoted
from labcore.store import changes
from labcore.store.cells import payload_of
from labcore.store.database import Database
from labcore.store.rows import COMMANDS, ENDED, RESUMABLE, Control
from labcore.store.schema import controls

_ASKED = sa.select(controls.c.id, controls.c.command, controls.c.payload).where(
    controls.c.run_id == sa.bindparam("run"), controls.c.state == "asked").order_by(controls.c.id)


class Controls(Database):
    """See the module."""

    def ask(self, run_id: str, command: str, payload: Mapping[str, Any] | None = None) -> int:
        """Ask something of a run: pause, resume, step, stop, or set {knob, value}. Returns the control's id. Of a stop
        the payload may say `why`, in a sentence.

        A queued run is stopped on the spot; everything else waits for the worker, which applies it in order.

        Raises:
            LabError: there is no such command, or the run has ended.
        """
        payload = dict(payload or {})
        if command not in COMMANDS:
            raise LabError(f"There is no command {quoted(command)}: use one of {', '.join(COMMANDS)}.")
        if command == "set" and set(payload) != {"knob", "value"}:
            raise LabError("The command set needs a knob and its value: for example set beta=0.1.")
        with self._writing() as connection:
            state = changes.known(connection, run_id)
            if state in ENDED:
                advice = "resume it or start a new one" if state in RESUMABLE else "start a new one"
                asked = "a changed knob" if command == "set" else command
                raise LabError(f"The run {run_id} is {state}, so {asked} has no effect: {advice} first.")
            control_id = changes.ask(connection, run_id, command, payload)
            if command == "stop" and state == "queued":
                step = changes.step(connection, run_id)
                connection.execute(controls.update().where(controls.c.id == control_id),
                                   {"state": "applied", "settled": time.time(), "step": step})
                why = payload.get("why", "")
                changes.move(connection, run_id, "stopped", why or "The run was stopped before it started.")
                changes.log(connection, run_id, "stopped", {"text": why} if why else {}, step)
            return control_id

    def asked(self, run_id: str) -> list[Control]:
        """What is asked of the run and not settled yet, in order."""
        with self._reading() as connection:
            rows = connection.execute(_ASKED, {"run": run_id})
            return [Control(row.id, row.command, payload_of(row.payload, row.command)) for row in rows]

    def settle(self, control_id: int, step: int, refused: str | None = None, *, superseded: bool = False,
               log: tuple[str, dict[str, Any]] | None = None) -> None:
        """Note what became of a control, with an event `log` (kind, payload) in the same transaction.

        Raises:
            NotOwner: its run belongs to another process, for which the control is.
        """
        state = "refused" if refused else "superseded" if superseded else "applied"
        with self._writing() as connection:
            run_id = connection.execute(sa.select(controls.c.run_id).where(controls.c.id == control_id)).scalar_one()
            changes.check_owner(connection, run_id)
            connection.execute(controls.update().where(controls.c.id == control_id, controls.c.state == "asked"),
                               {"state": state, "settled": time.time(), "step": step, "refused": refused})
            if log:
                changes.log(connection, run_id, *log, step)

    def controls(self, run_id: str) -> list[Control]:
        """Everything that was ever asked of the run, and what became of it."""
        names = Control.__dataclass_fields__
        query = sa.select(*(controls.c[name] for name in names)).where(
            controls.c.run_id == run_id).order_by(controls.c.id)
        with self._reading() as connection:
            return [Control(**{**row._mapping, "payload": payload_of(row.payload, row.command)})
                    for row in connection.execute(query)]
