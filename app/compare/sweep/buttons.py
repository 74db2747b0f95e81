"""The buttons of a sweep's queue: cancel queued or running runs, resume stopped ones."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.lab import lab
from app.session import show_error
from labcore.errors import LabError
from labcore.runs import sweep
from labcore.runs.files.paths import read_only
from labcore.runs.store.rows import ACTIVE, RunRow


def buttons(sweep_id: str, runs: Sequence[RunRow]) -> None:
    """Resume, of what was interrupted also while others go, and Cancel to the right of it: where one click has been the
    next one must not undo it."""
    if read_only():
        return
    going = sum(run.state in ACTIVE for run in runs)
    states = ("interrupted",) if going else sweep.CANCELLED  # what was stopped by hand waits for the others' end
    if again := sweep.resumable(runs, states):
        what = " interrupted" if all(run.state == "interrupted" for run in again) else ""
        st.button(f"Resume {len(again):,}{what} run{'s' if len(again) > 1 else ''}", icon=":material/play_arrow:",
                  key="sweep:resume", on_click=_resume, args=(sweep_id, states),
                  help="Queue them again; they continue from their checkpoints")
    if going:
        asked = sum(run.pending == "stopping" for run in runs) == going
        st.button(f"Stopping {going:,}" if asked else f"Cancel {going:,}", icon=":material/stop:", key="sweep:cancel",
                  on_click=_cancel, args=(sweep_id,), disabled=asked,
                  help="These runs stop after their current step" if asked else "Stop the queued and the running runs. "
                  "Running ones stop after their current step and keep a checkpoint; all can be resumed.")


def _cancel(sweep_id: str) -> None:
    try:
        sweep.cancel(lab().store, sweep_id)
    except LabError as error:
        show_error(str(error))


def _resume(sweep_id: str, states: Sequence[str]) -> None:
    try:
        sweep.resume(lab().store, sweep_id, states)
        lab().launcher.wake()
    except LabError as error:
        show_error(str(error))
