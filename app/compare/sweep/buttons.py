"""A sweep's queue from the page: what waits or goes can be cancelled, what was stopped can be resumed."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.lab import lab
from app.session import tell
from labcore.errors import LabError
from labcore.runs import sweep
from labcore.store.rows import ACTIVE, RunRow


def buttons(sweep_id: str, runs: Sequence[RunRow]) -> None:
    """Cancel while runs wait or go, then Resume: never both, or a second click undoes the first."""
    going = sum(run.state in ACTIVE for run in runs)
    stopped = sum(run.state in sweep.CANCELLED for run in runs)
    if going:
        st.button(f"Cancel {going}", icon=":material/stop:", key="sweep:cancel", on_click=_cancel, args=(sweep_id,),
                  help="Stop the runs that wait or go. Those that go keep a checkpoint; all can be resumed.")
    elif stopped:
        st.button(f"Resume {stopped}", icon=":material/play_arrow:", key="sweep:resume", on_click=_resume,
                  args=(sweep_id,), help="Queue the runs again that were stopped or interrupted: they continue from "
                                         "their checkpoints")


def _cancel(sweep_id: str) -> None:
    try:
        sweep.cancel(lab().store, sweep_id)
    except LabError as error:
        tell(str(error))


def _resume(sweep_id: str) -> None:
    try:
        sweep.resume(lab().store, sweep_id)
        lab().launcher.wake()
    except LabError as error:
        tell(str(error))
