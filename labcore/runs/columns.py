"""A run's rows as columns: from the store, and for long runs from a file beside their checkpoints.

Ten thousand rows of JSON take a tenth of a second to read. Rows never change once they are there, so a file of columns
is right for ever, up to its last step: what came later is read from the store, and without a file everything is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from labcore.runs import checkpoint
from labcore.runs.paths import run_folder
from labcore.runs.rows import COUNTERS, RunRow
from labcore.runs.store import Store

FILE = "columns.safetensors"
LONG = 1000  # rows from which on a file is worth it


def keep(store: Store, run_id: str) -> None:
    """Write the file of a long run: its counters, then the metrics that any of its rows has.

    Raises:
        OSError: the disk is full or read-only.
    """
    if store.run(run_id).step < LONG:
        return
    metrics = sorted(store.logged(run_id))
    found = store.columns([run_id], metrics)[run_id]
    content = {key: np.array(column, float) for key, column in zip((*COUNTERS, *metrics), found, strict=True)}
    checkpoint.write_bytes(run_folder(run_id) / FILE, save(content))


def read(store: Store, run: RunRow, metrics: Sequence[str], after: int = 0) -> list[np.ndarray]:
    """The counters of the rows beyond step `after`, then `metrics`, (N,) each; NaN where a row has no such number."""
    keys = (*COUNTERS, *metrics)
    _, kept = _kept(run, after, keys)
    rows, step = (kept["step"].size, int(kept["step"][-1])) if kept else (0, after)
    later = store.columns([run.id], metrics, step)[run.id]
    return [np.append(kept.get(key, np.full(rows, np.nan)), np.array(column, float))
            for key, column in zip(keys, later, strict=True)]


def logged(store: Store, run: RunRow, after: int = 0) -> frozenset[str]:
    """The metrics that any of a run's rows beyond step `after` has."""
    names, kept = _kept(run, after, ["step"])
    return names | store.logged(run.id, int(kept["step"][-1]) if kept else after)


def _kept(run: RunRow, after: int, keys: Sequence[str]) -> tuple[frozenset[str], dict[str, np.ndarray]]:
    """The metrics in a run's file, and its columns of these keys; nothing where it does not serve."""
    if after or run.step < LONG:
        return frozenset(), {}
    try:
        with safe_open(run_folder(run.id) / FILE, framework="numpy") as file:
            names = frozenset(file.keys())
            found = {key: file.get_tensor(key) for key in keys if key in names}
    except (OSError, SafetensorError):  # none, or a damaged one: the store has it all
        return frozenset(), {}
    if found["step"][-1] > run.step:  # of another run, whose folder was left behind
        return frozenset(), {}
    return names.difference(COUNTERS), found
