"""The summary of a run brought up to the run as it is. Its worker does so at its end, so that no list has to read it.

What nobody brought up, such as a run whose worker was killed, is brought up by the first list that shows it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from labcore.files import sizes
from labcore.files.paths import run_folder
from labcore.runs.summary import Summary, headline
from labcore.store.rows import ACTIVE, RunRow
from labcore.store.store import Store

SIZE_SECONDS = 10.0  # how long the size of an active run counts
FOREVER = float("inf")


def keep(store: Store, run_id: str) -> None:
    """Keep the summary of an ended run, unless it is resumed meanwhile. Raises LabError where nothing can be written.
    """
    row = store.run(run_id)
    summary = current(store, row, Summary.read(store.summaries([run_id]).get(run_id), headline(row.spec)))
    store.keep_summary(row, summary.to_json())


def current(store: Store, row: RunRow, summary: Summary) -> Summary:
    """The summary brought up to the run: the rows that came since, and its files where they may be others."""
    if summary.step < row.step:
        steps, *_, values = store.columns([row.id], [summary.metric], summary.step)[row.id]
        summary = summary.extended(steps[-1] if steps else row.step, values)
    good_until = summary.counted + SIZE_SECONDS if row.state in ACTIVE else FOREVER
    changed = max(row.ended or 0.0, _exported(row.id))
    if summary.size is None or summary.counted < changed or time.time() > good_until:
        summary = sized(summary, run_folder(row.id))
    return summary


def sized(summary: Summary, folder: Path) -> Summary:
    """The summary with the files of the folder counted."""
    begun = time.time()  # what comes while the files are counted is counted the next time
    return replace(summary, size=sizes.size(folder), counted=begun)


def _exported(run_id: str) -> float:
    """When the run was last exported into its own folder, which may be after its end; 0 if it never was."""
    with suppress(FileNotFoundError):
        return os.stat(f"{run_folder(run_id)}/export").st_mtime
    return 0.0
