"""The store: every run, its steps, its events and the controls asked of it, in one database.

SQLite in WAL mode by default, PostgreSQL by `RL_LAB_STORE` (`dialects` says where they differ). Every change is one
transaction, and a step is never overwritten. A run belongs to the process that claimed it: a worker that was given up
cannot write over its successor. A deleted run is in the trash, where no list shows it and nothing can be asked of it,
until it is restored or purged.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import sqlalchemy as sa

from labcore.catalog.metrics import METRICS
from labcore.errors import LabError, NoSuchRun, quoted
from labcore.files import checkpoints as checkpoint
from labcore.files import uploads
from labcore.files.artifacts import fetch
from labcore.files.paths import home, read_only, run_folder
from labcore.spec.record import Record
from labcore.spec.run_spec import RunSpec
from labcore.store import changes, dialects, faults
from labcore.store.keeping import RUNS, Keeping, run_row
from labcore.store.process import Owner, gone
from labcore.store.rows import (
    ACTIVE,
    COMMANDS,
    ENDED,
    GOING,
    MOVES,
    RESUMABLE,
    STATES,
    Control,
    Decision,
    Event,
    Garbled,
    RunRow,
    Step,
)
from labcore.store.schema import controls, events, marks, runs, steps, sweeps

__all__ = ["ACTIVE", "ENDED", "GOING", "RESUMABLE", "Control", "Event", "RunRow", "Step", "Store", "home"]

_LISTED = RUNS.where(marks.c.deleted.is_(None))
_STEPS = sa.select(steps.c.step, steps.c.tokens, steps.c.env_steps, steps.c.seconds, steps.c.metrics).where(
    steps.c.run_id == sa.bindparam("run"), steps.c.step > sa.bindparam("after")).order_by(steps.c.step)
_ASKED = sa.select(controls.c.id, controls.c.command, controls.c.payload).where(
    controls.c.run_id == sa.bindparam("run"), controls.c.state == "asked").order_by(controls.c.id)


def _steps(rows: Sequence[sa.Row]) -> list[Step]:
    """The steps in rows of `_STEPS`. Their metrics are read as one text: faster, and their names are there once."""
    try:
        metrics = json.loads(f"[{','.join(row.metrics for row in rows)}]")
    except TypeError as error:  # bytes where text was
        raise Garbled("the metrics of a step cannot be read") from error
    if len(metrics) != len(rows) or not all(isinstance(each, dict) for each in metrics):
        raise Garbled("the metrics of a step cannot be read")
    return [Step(row[0], row[1], row[2], row[3], each) for row, each in zip(rows, metrics, strict=True)]


class Store(Keeping):
    """See the module."""

    # ---------------------------------------------------------------- runs

    def create(self, spec: RunSpec, mine: bool = False, sweep: str | None = None, warm_up: bool = False) -> str:
        """Add a run. It is queued for a supervisor, or where `mine` is set "starting" in this very process.

        A fork takes along what it starts from. `sweep` is the id of the sweep that the run is part of. `warm_up`: SFT
        of its base model is to be run and seen even where there is one; no part of the spec, since the base is the
        same.

        Raises:
            LabError: the user's file that it needs was deleted by a clean-up.
        """
        return self.create_all([spec], mine, sweep, warm_up)[0]

    def create_all(self, specs: Sequence[RunSpec], mine: bool = False, sweep: str | None = None,
                   warm_up: bool = False, halving: str = "") -> list[str]:
        """Add runs in this order, all of them or none; return their ids. See `create`.

        `halving` is how the runs of the sweep are stopped early, as `labcore.runs.halving` writes it.
        """
        with self._writing() as connection:
            # No clean-up can come in between.
            uploads.check({path for spec in specs for path in (spec.data, spec.model) if path})
            ids = changes.create(connection, specs, sweep, {"warm_up": True} if warm_up else {})
            for run_id, spec in zip(ids, specs, strict=True):
                if spec.parent:  # before any worker may see the run
                    checkpoint.take_along(run_folder(spec.parent[0]), spec.parent[1], run_folder(run_id))
                if mine:
                    changes.claim(connection, run_id, Owner.this())
            if halving:
                connection.execute(sweeps.insert(), {"id": sweep, "halving": halving})
        for run_id, spec in zip(ids, specs, strict=True):
            if spec.parent:
                with suppress(LabError):  # then the fork finds it at its parent's
                    fetch.take_along(spec.parent[0], checkpoint.name_of(spec.parent[1]), run_id)
        return ids

    def add(self, row: RunRow, rows: Sequence[Step], events: Sequence[Event]) -> bool:
        """Add a run that was made elsewhere, with its steps and events. False where its name is taken."""
        with self._writing() as connection:
            free = not changes.state(connection, row.id)
            if free:
                changes.add(connection, row, rows, events)
            return free

    def run(self, run_id: str) -> RunRow:
        """The run `run_id` as it stands. Raises NoSuchRun where there is none, or where it is in the trash."""
        with self._reading() as connection:
            row = connection.execute(RUNS.where(runs.c.id == run_id)).first()
            found = run_row(row) if row else None
        if found is None:
            raise NoSuchRun(f"There is no run {quoted(run_id)} in {dialects.shown(self.url)}: list the runs to see "
                            "their names.")
        if found.deleted is not None:
            raise changes.in_the_trash(run_id)
        return found

    def runs(self, *states: str, limit: int | None = None, kind: str | None = None) -> list[RunRow]:
        """The runs in any of `states` (all by default), newest first; with `kind` only those of that kind."""
        query = _LISTED.order_by(runs.c.created.desc(), runs.c.id).limit(limit)
        if states:
            query = query.where(runs.c.state.in_(states))
        if kind:  # a text in JSON cannot hold these quotes
            query = query.where(runs.c.spec.contains(f'"kind": "{kind}"', autoescape=True))
        with self._reading() as connection:
            return [run_row(row) for row in connection.execute(query)]

    def runs_named(self, run_ids: Sequence[str]) -> dict[str, RunRow]:
        """Those of these runs that are there, by their names: one query for all of them."""
        with self._reading() as connection:
            rows = connection.execute(_LISTED.where(runs.c.id.in_(run_ids))) if run_ids else ()
            return {row.id: run_row(row) for row in rows}

    def children(self, run_id: str) -> list[RunRow]:
        """The forks of a run, oldest first; also of one that was deleted."""
        query = _LISTED.where(runs.c.parent == run_id).order_by(runs.c.created, runs.c.id)
        with self._reading() as connection:
            return [run_row(row) for row in connection.execute(query)]

    def sweep_runs(self, sweep: str | None = None) -> list[RunRow]:
        """The runs of a sweep, or of all sweeps, oldest first."""
        these = runs.c.sweep.is_not(None) if sweep is None else runs.c.sweep == sweep
        with self._reading() as connection:
            return [run_row(row) for row in connection.execute(
                _LISTED.where(these).order_by(runs.c.created, runs.c.id))]

    def tally(self, sweep: str) -> dict[str, int]:
        """How many runs of a sweep are in each state."""
        listed = runs.outerjoin(marks, marks.c.id == runs.c.id)
        query = sa.select(runs.c.state, sa.func.count().label("many")).select_from(listed).where(
            runs.c.sweep == sweep, marks.c.deleted.is_(None)).group_by(runs.c.state)
        with self._reading() as connection:
            return {row.state: row.many for row in connection.execute(query)}

    def queued(self) -> dict[str, float | None]:
        """The queued runs, oldest first: id -> when a process last took it."""
        query = sa.select(runs.c.id, runs.c.started).where(runs.c.state == "queued").order_by(runs.c.created)
        with self._reading() as connection:
            return {row.id: row.started for row in connection.execute(query)}

    def claim(self, run_id: str, pid: int | None = None, host: str | None = None) -> bool:
        """Make the queued run `run_id` this process's (or `pid`'s). False where another one was faster."""
        owner = Owner.this() if pid is None else Owner.of(pid, host)
        with self._writing() as connection:
            return changes.claim(connection, run_id, owner)

    def owns(self, run_id: str) -> bool:
        """Whether this process has the run."""
        row = self.run(run_id)
        return row.state in GOING and row.pid == os.getpid() and row.host == platform.node()

    def requeue(self, run_id: str, knobs: Mapping[str, Any] | None = None, mine: bool = False) -> None:
        """Queue an ended run to resume from its newest checkpoint, with `knobs` set there first.

        Raises:
            LabError: the run is active already, or is finished.
        """
        with self._writing() as connection:
            state = changes.known(connection, run_id)
            if state not in RESUMABLE:
                advice = "start a new run" if state == "finished" else "wait until it has ended"
                raise LabError(f"The run {run_id} is {state}, so there is nothing to resume: {advice}.")
            connection.execute(runs.update().where(runs.c.id == run_id), {
                "state": "queued", "message": "", "pid": None, "host": None, "process_started": None, "ended": None})
            changes.log(connection, run_id, "queued", {"resume": True}, changes.step(connection, run_id))
            for key, value in (knobs or {}).items():
                changes.ask(connection, run_id, "set", {"knob": key, "value": value})
            if mine:
                changes.claim(connection, run_id, Owner.this())

    def set_state(self, run_id: str, state: str, message: str = "", *, log: tuple[str, dict] | None = None) -> None:
        """Move the run to `state`, with an event `log` (kind, payload) in the same transaction.

        Raises:
            LabError: the run cannot go there from its state, or belongs to another process.
        """
        with self._writing() as connection:
            before = changes.known(connection, run_id)
            if before == state:
                connection.execute(runs.update().where(runs.c.id == run_id), {"message": message})
                return
            if state not in STATES or state not in MOVES[before]:
                raise LabError(f"The run {run_id} is {before} and cannot become {state}.")
            changes.check_owner(connection, run_id)
            changes.move(connection, run_id, state, message)
            if log:
                changes.log(connection, run_id, *log, changes.step(connection, run_id))

    def set_message(self, run_id: str, message: str) -> None:
        """Say what the run is doing or waiting for. Writes only where the message is a new one."""
        with self._writing() as connection:
            connection.execute(runs.update().where(runs.c.id == run_id, runs.c.message != message),
                               {"message": message})

    def set_waiting(self, messages: Mapping[str, str]) -> None:
        """Say what queued runs wait for. A look at what they say now, and one write where any of it is new."""
        query = sa.select(runs.c.id, runs.c.message).where(runs.c.state == "queued")
        with self._reading() as connection:
            there = {row.id: row.message for row in connection.execute(query)} if messages else {}
        new = [{"run": run_id, "said": said} for run_id, said in messages.items()
               if there.get(run_id, said) != said]
        if new:
            with self._writing() as connection:  # a run that was taken since says something of its own
                connection.execute(runs.update().where(runs.c.id == sa.bindparam("run"), runs.c.state == "queued")
                                   .values(message=sa.bindparam("said")), new)

    def set_base(self, run_id: str, base: str, cached: bool) -> None:
        """Note the SFT run that made, or is making, this run's base model."""
        with self._writing() as connection:
            connection.execute(runs.update().where(runs.c.id == run_id), {"base": base})
            changes.log(connection, run_id, "sft", {"base": base, "cached": cached}, 0)

    def beat(self, run_id: str) -> None:
        """Show that the worker lives, while it has no step to show."""
        with self._writing() as connection:
            connection.execute(runs.update().where(runs.c.id == run_id), {"heartbeat": time.time()})

    def reconcile(self) -> list[str]:
        """Mark the runs whose process is gone as interrupted; return their ids. Queued runs stay queued.

        A lab that is shared for reading leaves that to those that write.
        """
        if read_only():
            return []
        query = sa.select(runs.c.id, runs.c.pid, runs.c.host, runs.c.process_started, runs.c.heartbeat).where(
            runs.c.state.in_(GOING))
        with self._reading() as connection:
            rows = connection.execute(query).all()
        lost = [row for row in rows
                if row.pid is None or gone(Owner(row.pid, row.host, row.process_started), row.heartbeat)]
        return [row.id for row in lost if self._interrupt(row.id, row.pid, "its process is gone")]

    def lost(self, pid: int, host: str, why: str) -> list[str]:
        """Mark what the process `pid` of a host was running as interrupted; return the ids."""
        query = sa.select(runs.c.id).where(runs.c.state.in_(GOING), runs.c.pid == pid, runs.c.host == host)
        with self._reading() as connection:
            mine = list(connection.execute(query).scalars())
        return [run_id for run_id in mine if self._interrupt(run_id, pid, why)]

    def give_up(self, run_id: str, message: str, started: float | None) -> None:
        """Fail a run that is still queued although a worker was started for it, when `queued` said `started` of it.

        A run that was taken since then stays: others saw its worker die, and have queued it again.
        """
        with self._writing() as connection:
            row = connection.execute(sa.select(runs.c.state, runs.c.started).where(runs.c.id == run_id)).first()
            if row and row.state == "queued" and row.started == started:  # no clocks: those of two hosts differ
                changes.move(connection, run_id, "failed", message)
                changes.log(connection, run_id, "failed", {"text": message}, changes.step(connection, run_id))

    def _interrupt(self, run_id: str, pid: int | None, why: str) -> bool:
        with self._writing() as connection:
            row = connection.execute(sa.select(runs.c.state, runs.c.pid, runs.c.step).where(
                runs.c.id == run_id)).first()
            if row is None or row.state not in GOING or row.pid != pid:
                return False  # it ended, or was taken over, in the meantime
            message = f"The run was interrupted at step {row.step} ({why}): resume it."
            changes.move(connection, run_id, "interrupted", message)
            changes.log(connection, run_id, "interrupted", {"text": message}, row.step)
            return True

    # ---------------------------------------------------------------- steps

    def append(self, run_id: str, record: Record, seconds: float) -> bool:
        """Commit one step. False where that step is there already; then it stays as it is.

        Raises:
            LabError: the run belongs to another process, or the disk is full.
            ValueError: a metric that the catalog does not know, or one that is not finite.
        """
        unknown = [key for key in record.metrics if key not in METRICS]
        if unknown:
            raise ValueError(f"metrics that the catalog does not declare: {sorted(unknown)}")
        values = {"run_id": run_id, "step": record.step, "tokens": record.tokens, "env_steps": record.env_steps,
                  "seconds": seconds, "metrics": json.dumps(record.metrics, allow_nan=False)}
        with self._writing_rows() as connection:
            changes.check_owner(connection, run_id)
            there = connection.execute(sa.select(steps.c.step).where(
                steps.c.run_id == run_id, steps.c.step == record.step)).first()
            if not there:
                connection.execute(steps.insert(), values)
            progress = {} if there else {"step": record.step, "seconds": seconds}
            connection.execute(runs.update().where(runs.c.id == run_id), {"heartbeat": time.time(), **progress})
        return not there

    def steps_after(self, run_id: str, step: int = 0) -> list[Step]:
        """The steps of a run beyond `step`, in order."""
        return self.steps_after_many({run_id: step})[run_id]

    def steps_after_many(self, after: Mapping[str, int]) -> dict[str, list[Step]]:
        """For each run, its steps beyond the given one; all from one snapshot of the store."""
        with self._reading() as connection:
            found = {run_id: connection.execute(_STEPS, {"run": run_id, "after": step}).all()
                     for run_id, step in after.items()}
            self._check_whole(connection, {run_id: [row[0] for row in rows] for run_id, rows in found.items()
                                           if not after[run_id]})
            return {run_id: _steps(rows) for run_id, rows in found.items()}

    def logged(self, run_id: str, after: int = 0) -> set[str]:
        """The metrics that any of a run's rows beyond step `after` has."""
        with self._reading() as connection:
            return changes.logged(connection, run_id, after)

    def columns(self, run_ids: Sequence[str], keys: Sequence[str], after: int = 0) -> dict[str, list[Sequence[Any]]]:
        """For each run step, tokens, environment steps and seconds of the rows beyond `after`, then the metrics `keys`.

        A number that a row does not have is None. From one snapshot, and faster than whole rows.
        """
        with self._reading() as connection:
            found = changes.columns(connection, run_ids, keys, after)
            self._check_whole(connection, {} if after else {run_id: rows[0] for run_id, rows in found.items()})
            return found

    def last_values(self, run_ids: Sequence[str], metric: str, at: int | None = None,
                    window: int | None = None) -> dict[str, list[float]]:
        """A metric's values in the last `window` rows of runs, or of those up to step `at`; in all without a window.

        A row for a step, so as many steps are looked through. One query for all of them.
        """
        with self._reading() as connection:
            return changes.last_values(connection, run_ids, metric, at, window)

    def moved(self, sweep: str) -> set[str]:
        """The runs of a sweep in which a knob was moved by hand."""
        query = sa.select(events.c.run_id).distinct().join(runs, runs.c.id == events.c.run_id).where(
            runs.c.sweep == sweep, events.c.kind == "knob")
        with self._reading() as connection:
            return set(connection.scalars(query))

    def _check_whole(self, connection: sa.Connection, steps: Mapping[str, Sequence[int]]) -> None:
        """Raise LabError where some of these runs lack steps because the file is damaged; `steps` are all of theirs.

        SQLite itself looks for damage only where it is asked to, and that takes as long as reading the whole file.
        """
        if changes.lacking(connection, steps) and (wrong := dialects.of(connection).damage(connection)):
            raise faults.damaged(self.url, f"steps of a run are missing: {wrong}")

    # ---------------------------------------------------------------- early stopping

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
                Decision(row.id, row.run_id, row.step, json.loads(row.payload))
                for row in connection.execute(query.order_by(events.c.id))]

    def decide(self, sweep: str, turn: int, run_id: str, step: int, payload: Mapping[str, Any]) -> Decision | None:
        """Note a decision; None where it does not know of others: there are more than `turn` already."""
        mine = sweeps.update().where(sweeps.c.id == sweep, sweeps.c.decisions == turn)
        with self._writing() as connection:
            if not connection.execute(mine, {"decisions": turn + 1}).rowcount:
                return None
            return Decision(changes.log(connection, run_id, "rung", payload, step), run_id, step, dict(payload))

    # ---------------------------------------------------------------- events and controls

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
                    found[row.run_id].append(Event(row.id, row.step, row.kind, json.loads(row.payload), row.time))
        return found

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
                raise LabError(f"The run {run_id} is {state}, so {command} has no effect: {advice} first.")
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
            return [Control(row.id, row.command, json.loads(row.payload)) for row in rows]

    def settle(self, control_id: int, step: int, refused: str | None = None, *, superseded: bool = False,
               log: tuple[str, dict] | None = None) -> None:
        """Note what became of a control, with an event `log` (kind, payload) in the same transaction."""
        state = "refused" if refused else "superseded" if superseded else "applied"
        with self._writing() as connection:
            connection.execute(controls.update().where(controls.c.id == control_id, controls.c.state == "asked"),
                               {"state": state, "settled": time.time(), "step": step, "refused": refused})
            if log:
                run_id = connection.execute(sa.select(controls.c.run_id).where(controls.c.id == control_id)).scalar()
                changes.log(connection, run_id, *log, step)

    def controls(self, run_id: str) -> list[Control]:
        """Everything that was ever asked of the run, and what became of it."""
        names = Control.__dataclass_fields__
        query = sa.select(*(controls.c[name] for name in names)).where(
            controls.c.run_id == run_id).order_by(controls.c.id)
        with self._reading() as connection:
            return [Control(**{**row._mapping, "payload": json.loads(row.payload)})
                    for row in connection.execute(query)]
