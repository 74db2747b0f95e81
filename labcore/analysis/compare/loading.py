"""Runs by their names, ready to compare: the lab's own, those of other tools that were imported, and CSV files."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from labcore.errors import LabError
from labcore.runs.files.paths import is_import, path_of
from labcore.runs.imports import imported
from labcore.runs.imports.kinds import SUFFIXES
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store import columns
from labcore.runs.store.rows import ACTIVE, COUNTERS, Event, RunRow
from labcore.runs.store.store import Store
from labcore.runs.titles import parent_title, title, titles
from labcore.runs.traces import Trace, axes_of, changes_of, setting, trace

ALWAYS = ("updates", "memory")  # every comparison reads them


def load(store: Store, names: Sequence[str], metrics: Sequence[str] | None = None) -> list[Trace]:
    """The runs of these names, in order. A name is a run's id, an imported run's, or the path of a metrics file.

    With `metrics` only those are read, which is several times as fast; they are keys of the catalog. Raises LabError if
    there is no such run, the file cannot be read, or a name is given twice.
    """
    for name in names:
        if list(names).count(name) > 1:
            raise LabError(f"The run {name} is given twice: name each run once.")
    traces: dict[str, list[Trace]] = {}
    own = [name for name in names if not is_import(name) and not is_file(name)]
    for name in set(names) - set(own):
        if is_import(name):
            imported.check(store, name)
            traces[name] = [imported.load(name)]
        else:
            traces[name] = imported.read_file(path_of(name))
    rows = {name: store.run(name) for name in own}
    parents = {name: row.spec.parent[0] for name, row in rows.items() if row.spec.parent}
    known = titles(store, parents.values())
    parent_of = {name: known.get(parent, parent) for name, parent in parents.items()}
    if metrics is None:
        steps = store.steps_after_many(dict.fromkeys(own, 0))
        traces |= {name: [trace(rows[name], steps[name], store.events_after(name), origin(store, rows[name].spec),
                                parent_of.get(name, ""))]
                   for name in own}
    else:
        keys = list(dict.fromkeys((*metrics, *ALWAYS)))
        for name in own:
            found = columns.read(store, rows[name], keys)
            counted, named = found[:len(COUNTERS)], zip(keys, found[len(COUNTERS):], strict=True)
            logged = {key: column for key, column in named if np.isfinite(column).any()}
            spec = rows[name].spec
            traces[name] = [Trace(name, spec, rows[name].state, axes_of(counted, logged), logged,
                                  *changes_of(spec, store.events_after(name)), origin=origin(store, spec),
                                  title=title(rows[name]), parent=parent_of.get(name, ""))]
    return [each for name in names for each in traces[name]]


def origin(store: Store, spec: RunSpec) -> str:
    """From which setting and step a fork began, its seed left out; empty for a run that is no fork."""
    if spec.parent is None:
        return ""
    run_id, step = spec.parent
    try:
        above = store.run(run_id).spec
    except LabError:  # the parent was deleted, and its setting with it
        return json.dumps([run_id, step])
    moved = [change for change in changes_of(above, store.events_after(run_id))[1] if change[0] < step]
    return json.dumps([setting(above), moved, step, origin(store, above)])


def is_file(name: str) -> bool:
    """Whether a name is the path of a metrics file rather than the id of a run."""
    return Path(name).suffix.lower() in SUFFIXES or ("." in name and Path(name).is_file())


# ---------------------------------------------------------------- reader
# Runs as traces, kept and grown: a metric is read once, then only the rows that came since.
#
# For those who look at runs again and again while they go. One reader may be shared by threads.

T = TypeVar("T")
MOST = 200  # runs whose columns are kept: some MB each where they are long


@dataclass
class _Kept:
    """The known data of one run: its counters and some metrics as columns of equal length, and its events."""

    origin: str
    parent: str
    columns: dict[str, np.ndarray] = field(default_factory=lambda: {key: np.empty(0) for key in COUNTERS})
    metrics: dict[str, np.ndarray] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    stood: tuple[Any, ...] = ()  # how the run stood when the events were read

    @property
    def step(self) -> int:
        return int(self.columns["step"][-1]) if self.columns["step"].size else 0

    def grow(self, new: Sequence[np.ndarray]) -> None:
        """Add the rows that came since: counters, then metrics, as columns."""
        keys = [(self.columns, key) for key in COUNTERS] + [(self.metrics, key) for key in self.metrics]
        for (there, key), column in zip(keys, new, strict=True):
            there[key] = np.append(there[key], column)

    def add(self, missing: Sequence[str], new: Sequence[np.ndarray]) -> None:
        """Add metrics that were never asked for; `new` are the counters, then these, of all rows."""
        if self.columns["step"].size:  # a row that came in between is read with the next ones
            new = [column[:self.columns["step"].size] for column in new]
        self.columns = dict(zip(COUNTERS, new, strict=False))
        self.metrics |= dict(zip(missing, new[len(COUNTERS):], strict=True))


class Reader:
    """Reads the runs of a store, and those imported beside it."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, Lock()
        self._kept: OrderedDict[str, Any] = OrderedDict()  # own and imported runs, the latest looked at last
        self._logged: dict[str, tuple[int, frozenset[str]]] = {}  # run -> (up to which step, what it logs)

    def traces(self, rows: Sequence[RunRow | str], metrics: Sequence[str]) -> list[Trace]:
        """The runs as they stand now, in order, with these metrics and all metrics read before.

        `rows` are runs of the store as they were just read, and names of imported runs. Raises LabError if an imported
        run is gone or damaged.
        """
        with self._lock:
            own = {row.id: (row, self._own(row)) for row in rows if not isinstance(row, str)}
            self._read([*own.values()], metrics)
            return [self._foreign(row) if isinstance(row, str) else _trace(*own[row.id]) for row in rows]

    def logged(self, row: RunRow | str) -> frozenset[str]:
        """The metrics that any row of a run has, even if only one has it. Rows that were searched before are not read
        again. Raises LabError if an imported run is gone or damaged."""
        with self._lock:
            if isinstance(row, str):
                return frozenset(self._foreign(row).metrics)
            step, found = self._logged.get(row.id, (0, frozenset()))
            if row.step > step:
                found |= columns.logged(self._store, row, step)
                self._logged[row.id] = row.step, found
            return found

    def _own(self, row: RunRow) -> _Kept:
        return self._remembered(row.id, lambda: _Kept(origin(self._store, row.spec),
                                                      parent_title(self._store, row.spec)))

    def _foreign(self, name: str) -> Trace:
        imported.check(self._store, name)  # whatever is kept of one that was deleted
        return self._remembered(name, lambda: imported.load(name))

    def _remembered(self, name: str, read: Callable[[], T]) -> T:
        if name not in self._kept:
            self._kept[name] = read()
        self._kept.move_to_end(name)
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)
        found: T = self._kept[name]
        return found

    def _read(self, runs: Sequence[tuple[RunRow, _Kept]], metrics: Sequence[str]) -> None:
        """Bring what is kept up to date, then read the metrics that were never asked for, of many runs at once."""
        # a run may have gone on, and ended in the same way again; nothing happens to one that has ended
        moved = [(row, kept) for row, kept in runs if row.state in ACTIVE or kept.stood != _stands(row)]
        new = self._store.events_after_many({row.id: kept.events[-1].id if kept.events else 0 for row, kept in moved})
        for row, kept in moved:
            kept.events += new[row.id]
            kept.stood = _stands(row)
        lacking: dict[tuple[str, ...], list[tuple[RunRow, _Kept]]] = {}
        for row, kept in runs:
            if kept.columns["step"].size and row.step > kept.step:
                kept.grow(columns.read(self._store, row, [*kept.metrics], kept.step))
            missing = tuple(key for key in (*metrics, "updates") if key not in kept.metrics)
            if missing and row.step:
                lacking.setdefault(missing, []).append((row, kept))
        for missing, those in lacking.items():
            found = columns.read_many(self._store, [row for row, _ in those], missing)
            for (_, kept), each in zip(those, found, strict=True):
                kept.add(missing, each)


def _stands(row: RunRow) -> tuple[Any, ...]:
    return row.state, row.started, row.ended, row.step


def _trace(row: RunRow, kept: _Kept) -> Trace:
    axes = axes_of(kept.columns.values(), kept.metrics)
    there = {key: column for key, column in kept.metrics.items() if np.isfinite(column).any()}
    axes = {key: column for key, column in axes.items() if key != "updates" or key in there}
    return Trace(row.id, row.spec, row.state, axes, there, *changes_of(row.spec, kept.events), origin=kept.origin,
                 title=title(row), parent=kept.parent)
