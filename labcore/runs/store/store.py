"""The store: every run, its steps, its events and the controls asked of it, in one database.

SQLite in WAL mode by default, PostgreSQL by `RL_LAB_STORE` (`dialects` says where they differ). Every change is one
transaction, and a step is never overwritten. A run belongs to the process that claimed it: a worker that lost its run
cannot overwrite the data of its successor. A deleted run is in the trash, where no list shows it and nothing can be
asked of it, until it is restored or purged.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import sqlalchemy as sa

from labcore.errors import LabError, NoSuchRun, quoted
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files import storage, uploads
from labcore.runs.files.paths import home, read_only, run_folder
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store import changes, dialects
from labcore.runs.store.events import Controls, EarlyStopping, Events
from labcore.runs.store.keeping import RUNS, Keeping, run_row
from labcore.runs.store.process import Owner, gone
from labcore.runs.store.rows import (
    ACTIVE,
    APART,
    ENDED,
    GOING,
    MOVES,
    NO_PLACE,
    RESUMABLE,
    STATES,
    Control,
    Event,
    RunRow,
    Step,
)
from labcore.runs.store.schema import marks, runs, sweeps
from labcore.runs.store.steps import Steps
from labcore.runs.store.watched import Watched

__all__ = ["ACTIVE", "ENDED", "GOING", "RESUMABLE", "Control", "Event", "RunRow", "Step", "Store", "home"]

_LISTED = RUNS.where(marks.c.deleted.is_(None))


def _newest_of_sweeps(most: int) -> sa.Select[tuple[str]]:
    """The ids of at most so many runs of each sweep, its newest ones."""
    place = sa.func.row_number().over(partition_by=runs.c.sweep, order_by=(runs.c.created.desc(), runs.c.id))
    ranked = sa.select(runs.c.id, place.label("place")).where(runs.c.sweep.is_not(None)).subquery()
    return sa.select(ranked.c.id).where(ranked.c.place <= most)


class Store(Steps, Events, Controls, Keeping, EarlyStopping, Watched):
    """See the module."""

    def create(self, spec: RunSpec, mine: bool = False, sweep: str | None = None, warm_up: bool = False,
               project: str = "") -> str:
        """Add a run. It is queued for a supervisor, or where `mine` is set "starting" in this very process.

        A fork copies the checkpoint that it starts from; a fork that starts before it has copied it reads its parent's.
        `sweep` is the id of the sweep that the run is part of. `warm_up`: run SFT of its base model, with its charts,
        even if that base exists; this is no part of the spec, since the base is the same. `project` is its label.
        Raises LabError if the user's file that it needs was deleted by a clean-up.
        """
        return self.create_all([spec], mine, sweep, warm_up, project=project)[0]

    def create_all(self, specs: Sequence[RunSpec], mine: bool = False, sweep: str | None = None,
                   warm_up: bool = False, halving: str = "", name: str = "", project: str = "") -> list[str]:
        """Add runs in this order, all of them or none; return their ids. See `create`.

        `halving` is how the runs of the sweep are stopped early, as `labcore.runs.halving` writes it, and `name` what
        its owner calls it. `project` is the label that groups the runs with others.
        """
        uploaded = uploads.check({path for spec in specs for path in (spec.data, spec.model) if path})
        with self._writing() as connection:
            uploads.check(uploaded)  # a clean-up may have come in between; from here on none can
            ids = changes.create(connection, specs, sweep, {"warm_up": True} if warm_up else {}, project)
            for run_id in ids if mine else ():
                changes.claim(connection, run_id, Owner.this())
            if sweep and (halving or name):
                changes.set_sweep(connection, sweep, halving=halving, name=name)
        for run_id, spec in zip(ids, specs, strict=True):
            if spec.parent:  # where files cannot be linked this takes its time, for which no writer is to wait
                checkpoint.take_along(run_folder(spec.parent[0]), spec.parent[1], run_folder(run_id))
                with suppress(LabError):  # then the fork finds it at its parent's
                    storage.copy_start(spec.parent[0], checkpoint.name_of(spec.parent[1]), run_id)
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

    def runs(self, *states: str, limit: int | None = None, kind: str | None = None, own: bool = False,
             project: str | None = None, apart: bool = True, begun: bool = False,
             of_sweep: int | None = None) -> list[RunRow]:
        """The runs in any of `states` (all by default), newest first; with `kind` only those of that kind, and `own`
        ones were started one by one: no run of a sweep, a lesson or a study, and no SFT of another's base model.
        `project`: of this project alone; without `apart` none of lessons and studies; `begun` ones have made a step;
        `of_sweep`: of each sweep at most so many, its newest ones."""
        query = _LISTED.order_by(runs.c.created.desc(), runs.c.id).limit(limit)
        if states:
            query = query.where(runs.c.state.in_(states))
        if kind:  # a text in JSON cannot hold these quotes
            query = query.where(runs.c.spec.contains(f'"kind": "{kind}"', autoescape=True))
        if own:
            other = runs.alias()
            query = query.where(runs.c.sweep.is_(None), ~sa.exists().where(other.c.base == runs.c.id))
        if project is not None:
            query = query.where(marks.c.project == project)
        if not apart:
            query = query.where(sa.func.coalesce(marks.c.project, "").not_in(APART))
        if begun:
            query = query.where(runs.c.step > 0)
        if of_sweep is not None:
            query = query.where(runs.c.sweep.is_(None) | runs.c.id.in_(_newest_of_sweeps(of_sweep)))
        with self._reading() as connection:
            return [run_row(row) for row in connection.execute(query)]

    def runs_named(self, run_ids: Sequence[str], in_trash: bool = False) -> dict[str, RunRow]:
        """The runs with these ids, as far as they are there: one query for all. `in_trash`: also deleted ones."""
        query = (RUNS if in_trash else _LISTED).where(runs.c.id.in_(run_ids))
        with self._reading() as connection:
            rows = connection.execute(query) if run_ids else ()
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

    def sweep_names(self) -> dict[str, str]:
        """The names of sweeps by their ids, without unnamed sweeps."""
        with self._reading() as connection:
            return {row.id: row.name for row in connection.execute(
                sa.select(sweeps.c.id, sweeps.c.name).where(sweeps.c.name != ""))}

    def name_sweep(self, sweep: str, name: str) -> None:
        """Name a sweep; an empty name removes the name."""
        with self._writing() as connection:
            changes.set_sweep(connection, sweep, name=name)

    def tally(self, sweep: str | None = None) -> dict[str, int]:
        """The number of runs of a sweep, or of the whole store, in each state."""
        listed = runs.outerjoin(marks, marks.c.id == runs.c.id)
        query = sa.select(runs.c.state, sa.func.count().label("many")).select_from(listed).where(
            marks.c.deleted.is_(None)).group_by(runs.c.state)
        if sweep is not None:
            query = query.where(runs.c.sweep == sweep)
        with self._reading() as connection:
            return {row.state: row.many for row in connection.execute(query)}

    def queued(self, sweep: str | None = None) -> dict[str, float | None]:
        """The queued runs, or those of a sweep, oldest first: id -> when a process last took it."""
        query = sa.select(runs.c.id, runs.c.started).where(runs.c.state == "queued").order_by(runs.c.created)
        if sweep:
            query = query.where(runs.c.sweep == sweep)
        with self._reading() as connection:
            return {row.id: row.started for row in connection.execute(query)}

    def claim(self, run_id: str, pid: int | None = None, host: str | None = None) -> bool:
        """Make the queued run `run_id` this process's (or `pid`'s). False where another one was faster."""
        owner = Owner.this() if pid is None else Owner.of(pid, host)
        with self._writing() as connection:
            return changes.claim(connection, run_id, owner)

    def owns(self, run_id: str) -> bool:
        """True if this process has the run."""
        row = self.run(run_id)
        return row.state in GOING and row.pid == os.getpid() and row.host == platform.node()

    def requeue(self, run_id: str, knobs: Mapping[str, Any] | None = None, mine: bool = False) -> None:
        """Queue an ended run to resume from its newest checkpoint, with `knobs` set there first. Raises LabError if the
        run is active already, or is finished."""
        with self._writing() as connection:
            state = changes.known(connection, run_id)
            changes.check_ours(connection, run_id)
            if state not in RESUMABLE:
                advice = "start a new run" if state == "finished" else "wait until it has ended"
                raise LabError(f"The run {run_id} is {state}, so there is nothing to resume: {advice}.")
            connection.execute(runs.update().where(runs.c.id == run_id), {
                "state": "queued", "message": "", "pid": None, "host": None, "process_started": None, "ended": None,
                "places": None, "stops_early": False})
            changes.log(connection, run_id, "queued", {"resume": True}, changes.step(connection, run_id))
            for key, value in (knobs or {}).items():
                changes.ask(connection, run_id, "set", {"knob": key, "value": value})
            if mine:
                changes.claim(connection, run_id, Owner.this())

    def set_state(self, run_id: str, state: str, message: str = "", *,
                  log: tuple[str, dict[str, Any]] | None = None) -> None:
        """Move the run to `state`, with an event `log` (kind, payload) in the same transaction. Raises LabError if
        `state` cannot follow the run's present state, or the run belongs to another process."""
        with self._writing() as connection:
            before = changes.known(connection, run_id)
            if state != before and (state not in STATES or state not in MOVES[before]):
                raise LabError(f"The run {run_id} is {before} and cannot become {state}.")
            changes.check_owner(connection, run_id)
            if state == before:
                connection.execute(runs.update().where(runs.c.id == run_id), {"message": message})
                return
            changes.move(connection, run_id, state, message)
            if log:
                changes.log(connection, run_id, *log, changes.step(connection, run_id))

    def set_message(self, run_id: str, message: str) -> None:
        """Set the message on what the run is doing or waiting for. Writes only a new message. Raises NotOwner if the
        run belongs to another process."""
        with self._writing_rows() as connection:
            changes.check_owner(connection, run_id)
            connection.execute(runs.update().where(runs.c.id == run_id, runs.c.message != message),
                               {"message": message})

    def set_waiting(self, waiting: Mapping[str, str | int]) -> None:
        """Set the reason why each queued run waits: a sentence, or the number of places, all of which other runs hold.
        Reads the present reasons, and writes once if one is new."""
        query = sa.select(runs.c.id, runs.c.message, runs.c.places).where(runs.c.state == "queued")
        with self._reading() as connection:
            there = {row.id: (row.message, row.places) for row in connection.execute(query)} if waiting else {}
        saying = {run_id: (f"{NO_PLACE} (RL_LAB_MAX_RUNS={why})", why) if isinstance(why, int) else (why, None)
                  for run_id, why in waiting.items()}
        new = [{"run": run_id, "said": said[0], "of": said[1]} for run_id, said in saying.items()
               if there.get(run_id, said) != said]
        if new:
            with self._writing() as connection:  # a run that was taken since says something of its own
                connection.execute(runs.update().where(runs.c.id == sa.bindparam("run"), runs.c.state == "queued")
                                   .values(message=sa.bindparam("said"), places=sa.bindparam("of")), new)

    def set_base(self, run_id: str, base: str, cached: bool) -> None:
        """Note the SFT run that made, or is making, this run's base model."""
        with self._writing() as connection:
            connection.execute(runs.update().where(runs.c.id == run_id), {"base": base})
            changes.log(connection, run_id, "sft", {"base": base, "cached": cached}, 0)

    def beat(self, run_id: str) -> bool:
        """Set the heartbeat of a run that this process has. Returns False if the process does not have it any more."""
        mine = runs.c.state.in_(GOING), runs.c.pid == os.getpid(), runs.c.host == platform.node()
        with self._writing_rows() as connection:
            return connection.execute(runs.update().where(runs.c.id == run_id, *mine),
                                      {"heartbeat": time.time()}).rowcount == 1

    def check_owner(self, run_id: str) -> None:
        """Raise NotOwner unless this process may write to the run."""
        with self._writing_rows() as connection:
            changes.check_owner(connection, run_id)

    def reconcile(self) -> list[str]:
        """Mark the runs whose process is gone as interrupted; return their ids. Queued runs stay queued.

        A lab that is shared for reading leaves this to labs that write.
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
        """Fail a run that is still queued although a worker was started for it; `started` is the value of `queued` at
        that time.

        A run that another process has taken since then stays, because its worker died and it was queued again.
        """
        with self._writing() as connection:
            row = connection.execute(sa.select(runs.c.state, runs.c.started).where(runs.c.id == run_id)).first()
            if row and row.state == "queued" and row.started == started:  # no clocks, which differ between hosts
                changes.move(connection, run_id, "failed", message)
                changes.log(connection, run_id, "failed", {"text": message}, changes.step(connection, run_id))

    def _interrupt(self, run_id: str, pid: int | None, why: str) -> bool:
        with self._writing() as connection:
            row = connection.execute(sa.select(runs.c.state, runs.c.pid, runs.c.step, runs.c.spec).where(
                runs.c.id == run_id)).first()
            if row is None or row.state not in GOING or row.pid != pid:
                return False  # it ended, or was taken over, in the meantime
            elsewhere = RunSpec.from_json(row.spec).kind_row.elsewhere
            then = "it continues here when its trainer sends again" if elsewhere else "resume it"
            message = f"The run was interrupted at step {row.step} ({why}): {then}."
            changes.move(connection, run_id, "interrupted", message)
            changes.log(connection, run_id, "interrupted", {"text": message}, row.step)
            return True
