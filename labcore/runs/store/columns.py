"""A run's rows as columns: from the store, and for long runs from a file beside their checkpoints.

Ten thousand rows of JSON take a tenth of a second to read. A worker leaves a file at a run's end, and deletes it when
the run is resumed. Rows after its last step are read from the store, and without a file all rows are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from labcore.errors import LabError
from labcore.runs.files import atomic, storage
from labcore.runs.files.paths import run_folder
from labcore.runs.store.rows import COUNTERS, RunRow
from labcore.runs.store.store import Store

FILE = "columns.safetensors"
STEPS = range(1_000, 50_000)  # of runs for which a file is worth it, and made in a second


def keep(store: Store, run_id: str) -> None:
    """Write the file of a long run: its counters, then the metrics that any of its rows has. For the run's own worker.
    Raises OSError if the disk is full or read-only."""
    if not store.owns(run_id) or store.run(run_id).step not in STEPS:
        return
    metrics = sorted(store.logged(run_id))
    found = store.columns([run_id], metrics)[run_id]
    content = {key: np.array(column, float) for key, column in zip((*COUNTERS, *metrics), found, strict=True)}
    atomic.write_bytes(run_folder(run_id) / FILE, save(content))


def forget(run_id: str) -> None:
    """Delete the file of a run that is resumed, because it may come from an older state of the store."""
    (run_folder(run_id) / FILE).unlink(missing_ok=True)


def read(store: Store, run: RunRow, metrics: Sequence[str], after: int = 0) -> list[np.ndarray]:
    """The counters of the rows beyond step `after`, then `metrics`, (N,) each; NaN where a row has no such number."""
    keys = (*COUNTERS, *metrics)
    _, kept = _kept(run, after, keys)
    rows, step = (kept["step"].size, int(kept["step"][-1])) if kept else (0, after)
    later = store.columns([run.id], metrics, step)[run.id]
    return [np.append(kept.get(key, np.full(rows, np.nan)), np.array(column, float))
            for key, column in zip(keys, later, strict=True)]


def read_many(store: Store, runs: Sequence[RunRow], metrics: Sequence[str]) -> list[list[np.ndarray]]:
    """`read` of all rows of each run; runs that are too short for a file are read in one query."""
    few = [run.id for run in runs if run.step < STEPS.start]
    short = store.columns(few, metrics) if few else {}
    return [[np.array(column, float) for column in short[run.id]] if run.id in short else read(store, run, metrics)
            for run in runs]


def logged(store: Store, run: RunRow, after: int = 0) -> frozenset[str]:
    """The metrics that any of a run's rows beyond step `after` has."""
    names, kept = _kept(run, after, ["step"])
    return names | store.logged(run.id, int(kept["step"][-1]) if kept else after)


def _kept(run: RunRow, after: int, keys: Sequence[str]) -> tuple[frozenset[str], dict[str, np.ndarray]]:
    """The metrics in a run's file, and its columns of these keys; nothing where it does not serve."""
    if after or run.step < STEPS.start:
        return frozenset(), {}
    try:
        with safe_open(storage.fetch(run_folder(run.id) / FILE), framework="numpy") as file:
            names = frozenset(file.keys())
            found = {key: file.get_tensor(key) for key in keys if key in names}
    except (LabError, OSError, SafetensorError):  # no file, or an unusable one; the store has all rows
        return frozenset(), {}
    steps = found.get("step", np.empty(0))
    if not steps.size or steps[-1] > run.step:  # of another state of the store
        return frozenset(), {}
    return names.difference(COUNTERS), found
