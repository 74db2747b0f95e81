"""The single changes that the store's transactions are made of. Each runs on an open connection."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Mapping, Sequence
from itertools import count
from secrets import token_hex
from typing import Any

import sqlalchemy as sa

from labcore.errors import LabError, NoSuchRun, NotOwner, quoted
from labcore.runs.files import uploads
from labcore.runs.files.paths import is_import, run_folder
from labcore.runs.spec import run_spec
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store import cells, dialects
from labcore.runs.store.process import Owner
from labcore.runs.store.rows import APART, ENDED, EVENTS, GOING, Event, Garbled, RunRow, Step
from labcore.runs.store.schema import MOST_NAME, controls, events, marks, meta, runs, steps, sweeps

_AT_ONCE = 1000  # rows of a long run that are written by one statement: their texts take as much memory again
_COUNT = re.compile(r"[0-9]{1,9}")  # a number of runs
_OWNER = sa.select(runs.c.pid, runs.c.host, runs.c.state).where(runs.c.id == sa.bindparam("run")).with_for_update()
_APART = 1e-6  # seconds between runs that are made at once: lists are in the order of time


def add(connection: sa.Connection, row: RunRow, rows: Sequence[Step], history: Sequence[Event]) -> None:
    """Write a whole run as it is, with its steps and events. Raises LabError where it cannot be called so."""
    run_folder(row.id)
    _check_length(row.id)
    connection.execute(runs.insert(), {
        "id": row.id, "spec": row.spec.to_json(), "state": row.state, "message": row.message, "created": row.created,
        "started": row.started, "ended": row.ended, "step": row.step, "seconds": row.seconds,
        "number": next_number(connection), "parent": row.spec.parent[0] if row.spec.parent else None})
    mark(connection, row.id, tags=json.dumps(row.tags, ensure_ascii=False), project=row.project)
    for start in range(0, len(rows), _AT_ONCE):
        connection.execute(steps.insert(), [
            {"run_id": row.id, "step": each.step, "tokens": each.tokens, "env_steps": each.env_steps,
             "seconds": each.seconds, "metrics": json.dumps(each.metrics, allow_nan=False)}
            for each in rows[start:start + _AT_ONCE]])
    for start in range(0, len(history), _AT_ONCE):
        connection.execute(events.insert(), [
            {"run_id": row.id, "step": each.step, "kind": each.kind, "time": each.time,
             "payload": json.dumps(each.payload, ensure_ascii=False)} for each in history[start:start + _AT_ONCE]])


def create(connection: sa.Connection, specs: Sequence[RunSpec], sweep: str | None,
           queued: Mapping[str, Any], project: str = "") -> list[str]:
    """Add queued runs in this order, each with its event `queued`; return their ids. A fork without a `project` of its
    own belongs to its parent's, unless that is the lab's."""
    ids, numbers, now = _free_ids(connection, specs), _numbers(connection, len(specs), sweep), time.time()
    connection.execute(runs.insert(), [
        {"id": run_id, "spec": spec.to_json(), "state": "queued", "message": "", "sweep": sweep,
         "created": now + place * _APART, "parent": spec.parent[0] if spec.parent else None, "number": numbers[place]}
        for place, (run_id, spec) in enumerate(zip(ids, specs, strict=True))])
    connection.execute(events.insert(), [
        _event(run_id, "queued", queued, spec.parent[1] if spec.parent else 0)
        for run_id, spec in zip(ids, specs, strict=True)])
    labels = {run_id: project or (_project(connection, spec.parent[0]) if spec.parent else "")
              for run_id, spec in zip(ids, specs, strict=True)}
    if labelled := [{"id": run_id, "project": label} for run_id, label in labels.items() if label]:
        connection.execute(marks.insert(), labelled)
    return ids


def _project(connection: sa.Connection, run_id: str) -> str:
    """The project that the forks of a run belong to."""
    found = connection.scalar(sa.select(marks.c.project).where(marks.c.id == run_id)) or ""
    return "" if found in APART else found


def set_sweep(connection: sa.Connection, sweep: str, **values: Any) -> None:
    """Set columns of a sweep: its name, or how its runs are stopped early."""
    if not connection.execute(sweeps.update().where(sweeps.c.id == sweep), values).rowcount:
        connection.execute(sweeps.insert(), {"id": sweep, "halving": "", **values})


def _free_ids(connection: sa.Connection, specs: Sequence[RunSpec]) -> list[str]:
    """Names for runs that no other run has, and no folder."""
    ids: dict[int, str] = {}
    for digits in count(2):  # in a sweep of thousands some ids are equal, and get a longer one
        ids |= {place: f"{spec.stem}-{token_hex(digits)}" for place, spec in enumerate(specs) if place not in ids}
        taken = set(connection.scalars(sa.select(runs.c.id).where(runs.c.id.in_([*ids.values()]))))
        free = {name: place for place, name in ids.items() if name not in taken and not run_folder(name).exists()}
        ids = {place: name for name, place in free.items()}  # of two equal names one is left
        if len(ids) == len(specs):
            break
    return [ids[place] for place in range(len(specs))]


def _numbers(connection: sa.Connection, many: int, sweep: str | None) -> Sequence[int]:
    """The numbers of so many new runs: the lab's next ones, or below 0 the next places in their sweep.

    So the runs of a lesson or a sweep leave no gap in the numbers of those that are started one by one.
    """
    first = next_number(connection, 0 if sweep else many)  # another writer that adds to the same sweep waits here
    if sweep is None:
        return range(first, first + many)
    last = connection.scalar(sa.select(sa.func.min(runs.c.number)).where(runs.c.sweep == sweep)) or 0
    return range(min(last, 0) - 1, min(last, 0) - 1 - many, -1)


def next_number(connection: sa.Connection, many: int = 1) -> int:
    """The first of `many` numbers for runs that are about to be added. No other run had one of them, or gets one while
    this transaction lasts."""
    of_row = meta.c.key == "number"
    last = connection.scalar(sa.select(meta.c.value).where(of_row).with_for_update())  # SQLite has one writer at a time
    if not isinstance(last, str) or not _COUNT.fullmatch(last):  # the store was edited by hand: count again
        last = max(connection.scalar(sa.select(sa.func.max(runs.c.number))) or 0, 0)
        connection.execute(meta.delete().where(of_row))
        connection.execute(meta.insert(), {"key": "number", "value": str(last)})
    connection.execute(meta.update().where(of_row), {"value": str(int(last) + many)})
    return int(last) + 1


def known(connection: sa.Connection, run_id: str, in_trash: bool = False) -> str:
    """The state of the run. Raises NoSuchRun where there is none, or unless `in_trash` where it is in the trash."""
    found = state(connection, run_id)
    if found is None:
        raise NoSuchRun(f"There is no run {quoted(run_id)}: list the runs to see their names.")
    if not in_trash:
        check_not_in_trash(connection, run_id)
    return found


def markable(connection: sa.Connection, name: str, in_trash: bool = False) -> str | None:
    """As `known`, but None for imported metrics, of which the store has only the marks."""
    if not is_import(name) or state(connection, name) is not None:
        return known(connection, name, in_trash)
    if not in_trash:
        check_not_in_trash(connection, name)
    return None


def check_not_in_trash(connection: sa.Connection, name: str) -> None:
    if connection.scalar(sa.select(marks.c.deleted).where(marks.c.id == name)) is not None:
        raise in_the_trash(name)


def check_ours(connection: sa.Connection, run_id: str) -> None:
    """Raise LabError for a watched run."""
    text = connection.scalar(sa.select(runs.c.spec).where(runs.c.id == run_id))
    if text:
        run_spec.check_ours(RunSpec.from_json(text))


def in_the_trash(name: str) -> NoSuchRun:
    return NoSuchRun(f"The run {name} was deleted and is in the trash: restore it first (python -m labcore restore "
                     f"{name}, or Deleted on the page Runs).")


def mark(connection: sa.Connection, name: str, **values: Any) -> None:
    """Set some of the marks of a run or of imported metrics: columns of the table. Raises LabError where the store has
    nothing of that name yet, and it is too long."""
    if not connection.execute(marks.update().where(marks.c.id == name), values).rowcount:
        if state(connection, name) is None:
            _check_length(name)
        connection.execute(marks.insert(), {"id": name, **values})


def _check_length(name: str) -> None:
    """SQLite would take any length, PostgreSQL does not. What a store has already under a longer name stays usable."""
    if len(name) > MOST_NAME:
        raise LabError(f"The name {quoted(name)} has {len(name)} letters, more than {MOST_NAME}: give a shorter one.")


def trash(connection: sa.Connection, name: str) -> None:
    """Hide a run or imported metrics. Raises LabError while a worker has the run."""
    found = markable(connection, name)
    if found in GOING:
        raise LabError(f"The run {name} is {found}: stop it before you delete it.")
    if found == "queued":
        move(connection, name, "stopped", "The run was deleted before it started.")
    mark(connection, name, deleted=time.time())


def trashed_since(connection: sa.Connection, before: float) -> list[str]:
    """The runs that were put into the trash at `before` or earlier."""
    return list(connection.scalars(sa.select(marks.c.id).where(marks.c.deleted <= before).order_by(marks.c.id)))


def forget(connection: sa.Connection, name: str) -> None:
    """Delete all rows of a run or of imported metrics. Raises LabError while a worker has the run."""
    found = markable(connection, name, in_trash=True)
    if found in GOING:
        raise LabError(f"The run {name} is {found}: stop it before you delete it.")
    for table in (steps, events, controls):
        connection.execute(table.delete().where(table.c.run_id == name))
    for table in (runs, marks):
        connection.execute(table.delete().where(table.c.id == name))
    connection.execute(sweeps.delete().where(~sa.exists().where(runs.c.sweep == sweeps.c.id)))
    connection.execute(runs.update().where(runs.c.base == name), {"base": None})


def files(connection: sa.Connection) -> list[str]:
    """The files and models that any run names."""
    return [path for text in connection.scalars(sa.select(runs.c.spec)) for path in uploads.of_spec(json.loads(text))]


def step(connection: sa.Connection, run_id: str) -> int:
    """The last step that was committed."""
    return connection.execute(sa.select(runs.c.step).where(runs.c.id == run_id)).scalar() or 0


def check_owner(connection: sa.Connection, run_id: str) -> None:
    """Raise NotOwner unless this process may write to the run, whose row is locked until the transaction ends."""
    row = connection.execute(_OWNER, {"run": run_id}).first()
    if row is None:
        raise NotOwner(run_id, f"The run {run_id} was deleted while it was running.")
    if row.pid is not None and (row.pid, row.host) != (os.getpid(), platform.node()):
        raise NotOwner(run_id, f"The run {run_id} belongs to another process now (pid {row.pid} on {row.host}).")
    if row.state in ENDED:
        raise NotOwner(run_id, f"The run {run_id} is {row.state}: nothing can be added to it unless it is resumed.")


def state(connection: sa.Connection, run_id: str) -> str | None:
    return connection.execute(sa.select(runs.c.state).where(runs.c.id == run_id)).scalar()


def claim(connection: sa.Connection, run_id: str, owner: Owner) -> bool:
    now = time.time()
    return connection.execute(runs.update().where(runs.c.id == run_id, runs.c.state == "queued"), {
        "state": "starting", "message": "", "pid": owner.pid, "host": owner.host, "process_started": owner.started,
        "started": now, "heartbeat": now}).rowcount == 1


def move(connection: sa.Connection, run_id: str, state: str, message: str) -> None:
    """Set the state. At the end of a run also clear its process, and refuse commands that no worker will apply."""
    values: dict[str, Any] = {"state": state, "message": message}
    if state in ENDED:
        now = time.time()
        values |= {"ended": now, "pid": None, "process_started": None}  # its host says where its seconds were counted
        connection.execute(controls.update().where(controls.c.run_id == run_id, controls.c.state == "asked"), {
            "state": "refused", "settled": now, "refused": f"The run was {state} first."})
    connection.execute(runs.update().where(runs.c.id == run_id), values)


def log(connection: sa.Connection, run_id: str, kind: str, payload: Mapping[str, Any], step: int) -> int:
    """Add an event; return its id. Raises ValueError where `rows.EVENTS` does not declare it."""
    return _number(connection.execute(events.insert(), _event(run_id, kind, payload, step)))


def _event(run_id: str, kind: str, payload: Mapping[str, Any], step: int) -> dict[str, Any]:
    if unknown := {kind} - EVENTS.keys() or payload.keys() - EVENTS[kind]:
        raise ValueError(f"an event that is not declared: {kind} with {sorted(unknown)}")
    return {"run_id": run_id, "step": step, "kind": kind, "payload": json.dumps(payload, ensure_ascii=False),
            "time": time.time()}


def ask(connection: sa.Connection, run_id: str, command: str, payload: Mapping[str, Any]) -> int:
    return _number(connection.execute(controls.insert(), {
        "run_id": run_id, "command": command, "payload": json.dumps(payload, ensure_ascii=False), "state": "asked",
        "asked": time.time()}))


def _number(inserted: sa.CursorResult[Any]) -> int:
    """The id that the database gave to the row."""
    key = inserted.inserted_primary_key
    assert key is not None, "one row was inserted"
    return int(key[0])


def logged(connection: sa.Connection, run_id: str, after: int = 0) -> set[str]:
    """The metrics that any of a run's rows beyond step `after` has."""
    query = sa.select(steps.c.metrics).where(steps.c.run_id == run_id, steps.c.step > after)
    found: set[str] = set()
    for text in connection.scalars(query):
        if not isinstance(text, str):
            raise Garbled("the metrics of a step cannot be read")
        # All values are numbers, so names alone are quoted; faster than reading. One with other letters is escaped.
        found.update(cells.metrics_of([text])[0] if "\\" in text else text.split('"')[1::2])
    return found


def lacking(connection: sa.Connection, steps: Mapping[str, Sequence[int]]) -> bool:
    """True if any of these runs, whose rows have `steps`, has a gap between them or is further than the last."""
    rows = connection.execute(sa.select(runs.c.id, runs.c.step).where(runs.c.id.in_(steps))).all() if steps else ()
    return any((found[-1] - found[0] >= len(found) or found[-1] < row.step) if (found := steps[row.id]) else row.step
               for row in rows)


def last_values(connection: sa.Connection, run_ids: Sequence[str], metric: str, at: int | None,
                window: int | None) -> dict[str, tuple[list[int], list[float]]]:
    """As the store's `last_values`."""
    picked = dialects.of(connection).picked([metric])
    end = runs.c.step if at is None else at
    query = sa.select(steps.c.run_id, steps.c.step, *([steps.c.metrics] if picked is None else picked)).join(
        runs, runs.c.id == steps.c.run_id).where(runs.c.id.in_(run_ids), steps.c.step <= end)
    if window is not None:
        query = query.where(steps.c.step > end - window)
    found: dict[str, tuple[list[int], list[float]]] = {}
    for run_id, step, value in connection.execute(query.order_by(steps.c.run_id, steps.c.step)) if run_ids else ():
        value = cells.metrics_of([value])[0].get(metric) if picked is None else value
        if value is not None:
            steps_of, values = found.setdefault(run_id, ([], []))
            steps_of.append(step)
            values.append(value)
    for steps_of, values in found.values():
        cells.check_numbers(steps_of, values)
    return found


def columns(connection: sa.Connection, run_ids: Sequence[str], keys: Sequence[str],
            after: int = 0) -> dict[str, list[Sequence[Any]]]:
    """Of each run step, tokens, environment steps and seconds of its rows beyond step `after`, then the metrics `keys`;
    None where there is none. One query for all of them.

    Rows hold many metrics: where the database can pick a few out of the JSON itself, that is three times as fast.
    """
    picked = dialects.of(connection).picked(keys)
    metrics = [steps.c.metrics] if picked is None else picked
    query = sa.select(steps.c.run_id, steps.c.step, steps.c.tokens, steps.c.env_steps, steps.c.seconds, *metrics).where(
        steps.c.run_id.in_(run_ids), steps.c.step > after).order_by(steps.c.run_id, steps.c.step)
    found: dict[str, list[Sequence[Any]]] = {run_id: [] for run_id in run_ids}
    for run_id, *row in connection.execute(query) if run_ids else ():
        found[run_id].append([*row[:4], *map(cells.metrics_of([row[4]])[0].get, keys)] if picked is None else row)
    whole: dict[str, list[Sequence[Any]]] = {
        run_id: [*zip(*rows, strict=True)] or [()] * (4 + len(keys)) for run_id, rows in found.items()}
    for each in whole.values():
        cells.check_numbers(*each)
    return whole
