"""The steps of runs: a row for each, never overwritten, read as rows or as columns. Part of the store."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import sqlalchemy as sa

from labcore.catalog.metrics import METRICS
from labcore.errors import LabError, NotOwner
from labcore.runs.spec.session import Record
from labcore.runs.store import changes, dialects, faults
from labcore.runs.store.cells import check_numbers, metrics_of
from labcore.runs.store.database import Database, Row
from labcore.runs.store.rows import Garbled, Step
from labcore.runs.store.schema import runs, steps

CHUNK, MANY = 1000, 5000  # rows that are held at a time, where there are many
_STEPS = sa.select(steps.c.step, steps.c.tokens, steps.c.env_steps, steps.c.seconds, steps.c.metrics).where(
    steps.c.run_id == sa.bindparam("run"), steps.c.step > sa.bindparam("after")).order_by(steps.c.step)
# What each step of each run is written with, made once: to make a statement takes longer than to execute it.
_THERE = sa.select(steps.c.step).where(steps.c.run_id == sa.bindparam("run"), steps.c.step == sa.bindparam("at"))
_ADDED = steps.insert()
_PROGRESS = runs.update().where(runs.c.id == sa.bindparam("run"))


def _steps(rows: Sequence[Row]) -> list[Step]:
    """The steps in rows of `_STEPS`."""
    metrics = metrics_of([row.metrics for row in rows])
    check_numbers(*([*zip(*rows, strict=True)][:4]))
    return [Step(row[0], row[1], row[2], row[3], each) for row, each in zip(rows, metrics, strict=True)]


def place_of(step: int, length: int) -> int:
    """Return the index of the interval of `length` steps that contains a step. The first step, before most learning,
    has an interval of its own."""
    return -1 if step == 1 else (step - 1) // length


def _merged(rows: Sequence[Row]) -> Step:
    """Return the last of these rows, plus the latest value of metrics that only earlier rows have."""
    last, early = _steps(rows[-1:])[0], dict[str, float]()
    for row in rows[:-1]:
        if not isinstance(row[4], str):
            raise Garbled("the metrics of a step cannot be read")
        if not last.metrics.keys() >= {*row[4].split('"')[1::2]}:  # all values are numbers, so names alone are quoted
            early |= _steps([row])[0].metrics
    return replace(last, metrics={**early, **last.metrics}) if early else last


class Thinned(NamedTuple):
    """Thinned rows, and the number of the store's rows that they represent."""

    rows: list[Step]
    read: int


class Steps(Database):
    """See the module."""

    def append(self, run_id: str, record: Record, seconds: float) -> bool:
        """Commit one step. Returns False if the step exists already; then it stays as it is.

        Raises:
            NotOwner: the run belongs to another process.
            LabError: the disk is full, say.
            ValueError: a metric that the catalog does not know, or one that is not finite.
        """
        unknown = [key for key in record.metrics if key not in METRICS]
        if unknown:
            raise ValueError(f"metrics that the catalog does not declare: {sorted(unknown)}")
        values = {"run_id": run_id, "step": record.step, "tokens": record.tokens, "env_steps": record.env_steps,
                  "seconds": seconds, "metrics": json.dumps(record.metrics, allow_nan=False)}
        try:
            return self._append(values)
        except NotOwner:
            raise
        except LabError:  # the store was busy, for example; a second try costs less than a lost run
            return self._append(values)

    def _append(self, values: Mapping[str, Any]) -> bool:
        run_id, step = values["run_id"], values["step"]
        with self._writing_rows() as connection:
            changes.check_owner(connection, run_id)
            there = connection.execute(_THERE, {"run": run_id, "at": step}).first()
            if not there:
                connection.execute(_ADDED, values)
            progress = {} if there else {"step": step, "seconds": values["seconds"]}
            connection.execute(_PROGRESS, {"run": run_id, "heartbeat": time.time(), **progress})
        return not there

    def steps_after(self, run_id: str, step: int = 0) -> list[Step]:
        """The steps of a run beyond `step`, in order."""
        return self.steps_after_many({run_id: step})[run_id]

    def steps_after_many(self, after: Mapping[str, int]) -> dict[str, list[Step]]:
        """For each run, its steps beyond the given one; all from one snapshot of the store."""
        with self._reading() as connection:
            found = {run_id: connection.execute(_STEPS, {"run": run_id, "after": step}).all()
                     for run_id, step in after.items()}
            read = {run_id: _steps(rows) for run_id, rows in found.items()}
            self._check_whole(connection, {run_id: [row.step for row in rows] for run_id, rows in read.items()
                                           if not after[run_id]})
            return read

    def thinned_after(self, run_id: str, step: int, length: int) -> Thinned:
        """Return the steps of a run after `step`, one row per interval of `length` steps: its last row, plus metrics
        that only earlier rows have. Of most rows only the metric names are read."""
        found: list[Step] = []
        count, steps_read = 0, list[int]()
        with self._reading() as connection:
            rows = connection.execution_options(yield_per=CHUNK).execute(_STEPS, {"run": run_id, "after": step})
            for _, part in groupby(rows, key=lambda row: place_of(row[0], length)):
                these = [*part]
                count += len(these)
                steps_read += [] if step else [row[0] for row in these]
                found.append(_merged(these))
            self._check_whole(connection, {} if step else {run_id: steps_read})
        return Thinned(found, count)

    def last_steps(self, run_id: str, at: int, count: int) -> list[Step]:
        """Return the last `count` steps of a run up to step `at`, newest first, exactly as logged."""
        query = sa.select(steps.c.step, steps.c.tokens, steps.c.env_steps, steps.c.seconds, steps.c.metrics).where(
            steps.c.run_id == run_id, steps.c.step <= at).order_by(steps.c.step.desc()).limit(count)
        with self._reading() as connection:
            return _steps(connection.execute(query).all())

    def every_step(self, run_id: str, count: int) -> Collection[Step]:
        """Return all `count` steps of a run. Many steps are read in parts at each pass, to save memory."""
        if not count:
            return ()
        return self.steps_after(run_id) if count < MANY else EveryStep(self, run_id)

    def some_steps(self, run_id: str, after: int) -> list[Step]:
        """Return the next `CHUNK` steps of a run after `after`."""
        with self._reading() as connection:
            return _steps(connection.execute(_STEPS.limit(CHUNK), {"run": run_id, "after": after}).all())

    def check_whole(self, run_id: str, steps: Sequence[int]) -> None:
        """Raise LabError if a run lacks steps because the file is damaged; `steps` are all that it has."""
        with self._reading() as connection:
            self._check_whole(connection, {run_id: steps})

    def count_steps(self, run_id: str) -> int:
        """Return the number of a run's steps in the store."""
        with self._reading() as connection:
            query = sa.select(sa.func.count()).select_from(steps).where(steps.c.run_id == run_id)
            return int(connection.execute(query).scalar_one())

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
                    window: int | None = None) -> dict[str, tuple[list[int], list[float]]]:
        """(steps, values) of the rows that have a metric, among the last `window` of runs, or of those up to step `at`;
        among all without a window.

        A row for a step, so as many steps are looked through. One query for all of them.
        """
        with self._reading() as connection:
            return changes.last_values(connection, run_ids, metric, at, window)

    def _check_whole(self, connection: sa.Connection, steps: Mapping[str, Sequence[int]]) -> None:
        """Raise LabError where some of these runs lack steps because the file is damaged; `steps` are all of theirs.

        SQLite itself looks for damage only where it is asked to, and that takes as long as reading the whole file.
        """
        if changes.lacking(connection, steps) and (wrong := dialects.of(connection).damage(connection)):
            raise faults.damaged(self.url, f"steps of a run are missing: {wrong}")


@dataclass(frozen=True)
class EveryStep(Collection[Step]):
    """All steps of a run of `store`, read again at each pass over them."""

    store: Steps
    run_id: str

    def __iter__(self) -> Iterator[Step]:
        last, found = 0, list[int]()
        while part := self.store.some_steps(self.run_id, last):
            yield from part
            found += [row.step for row in part]
            last = found[-1]
        self.store.check_whole(self.run_id, found)

    def __len__(self) -> int:
        return self.store.count_steps(self.run_id)

    def __contains__(self, row: object) -> bool:
        return any(row == each for each in self)
