"""Thinned rows of a long run: one row per interval of steps, with the last value of every metric in the interval.

A page draws a curve from a few thousand rows, however long the run is. A hundred thousand rows of two hundred metrics
are half a gigabyte of JSON, which must not be read each time. A file in the run's folder stores the thinned rows; every
reader adds the newer rows, and a worker updates the file every `KEEP_EVERY` steps. The lengths of intervals are powers
of two, so two neighbours form one interval of the next length, and thinning thinned rows gives the same result as
thinning all rows. Exact rows stay in the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from labcore.errors import LabError
from labcore.runs.files import atomic, storage
from labcore.runs.files.paths import made, read_only, run_folder
from labcore.runs.store.rows import COUNTERS, RunRow, Step
from labcore.runs.store.steps import place_of
from labcore.runs.store.store import Store

FILE = "thinned.safetensors"
MOST = 2000  # thinned rows of a run
LONG = 2 * MOST  # steps from which a run is thinned
KEEP_EVERY = 2000  # rows that are read again at most, if a worker updates the file
_COUNTERS = len(COUNTERS)


def stretch(last: int, most: int = MOST) -> int:
    """Return the interval length for a run up to step `last`: the least power of two with at most `most` intervals.

    >>> stretch(1999), stretch(2001), stretch(100_000)
    (1, 2, 64)
    """
    length = 1
    while -(-last // length) > most:
        length *= 2
    return length


def thin(rows: Iterable[Step], length: int) -> list[Step]:
    """Return one row per interval of `length` steps: its last row, plus metrics that only earlier rows have.

    >>> rows = [Step(3, 5, 0, 0.1, {"loss": 1.0, "eval": 0.5}), Step(4, 9, 0, 0.2, {"loss": 0.8})]
    >>> thin(rows, 2)
    [Step(step=4, tokens=9, env_steps=0, seconds=0.2, metrics={'loss': 0.8, 'eval': 0.5})]
    """
    if length == 1:
        return [*rows]
    return [_merged([*part]) for _, part in groupby(rows, key=lambda row: place_of(row.step, length))]


def _merged(part: Sequence[Step]) -> Step:
    last = part[-1]
    early: dict[str, float] = {}
    for row in part[:-1]:
        if not row.metrics.keys() <= last.metrics.keys():
            early |= row.metrics
    return replace(last, metrics={**early, **last.metrics}) if early else last


def read(store: Store, run: RunRow) -> list[Step]:
    """Return the rows of a run; those of a long run are thinned, except the newest.

    The file is updated if it lacks many rows and the lab may write.
    """
    if run.step < LONG:
        return store.steps_after(run.id)
    rows, new = _rows(store, run)
    if new > KEEP_EVERY and not read_only():
        with suppress(OSError, LabError):  # it is spare
            _write(run.id, rows)
    return rows


def keep(store: Store, run_id: str) -> None:
    """Update the file of a long run. Raises OSError if the disk is full or read-only."""
    run = store.run(run_id)
    if run.step >= LONG:
        _write(run_id, _rows(store, run)[0])


def forget(run_id: str) -> None:
    """Delete the file of a resumed run, because it may not match the store."""
    (run_folder(run_id) / FILE).unlink(missing_ok=True)


def _rows(store: Store, run: RunRow) -> tuple[list[Step], int]:
    """Return the thinned rows, and the number of rows read from the store."""
    kept = _kept(run)
    found = store.thinned_after(run.id, kept[-1].step if kept else 0, stretch(run.step))
    return thin([*kept, *found.rows], stretch(run.step)) if kept else found.rows, found.read


def _write(run_id: str, rows: Sequence[Step]) -> None:
    """Write all rows except the last, whose interval may be incomplete."""
    whole = rows[:-1]
    names = sorted({key for row in whole for key in row.metrics})
    columns = [[getattr(row, key) for row in whole] for key in COUNTERS] + [
        [row.metrics.get(name, np.nan) for row in whole] for name in names]
    content = {"rows": np.array(columns, float)}
    path = made(run_folder(run_id), spare=True) / FILE
    atomic.write_bytes(path, save(content, metadata={"metrics": json.dumps(names)}))


def _kept(run: RunRow) -> list[Step]:
    """Return the rows in the file; empty if it cannot be used."""
    try:
        with safe_open(storage.fetch(run_folder(run.id) / FILE), framework="numpy") as file:
            names = json.loads((file.metadata() or {})["metrics"])
            columns = file.get_tensor("rows")
    except (LabError, OSError, SafetensorError, KeyError, ValueError, TypeError):  # no file, or an unusable one
        return []
    if columns.ndim != 2 or len(columns) != _COUNTERS + len(names) or not columns.size or columns[0, -1] > run.step:
        return []  # of another state of the store
    return [Step(int(step), int(tokens), int(env_steps), seconds,
                 {name: value for name, value in zip(names, values, strict=True) if value == value})
            for step, tokens, env_steps, seconds, *values in columns.T.tolist()]
