"""Show the log of a run's workers, with the traceback of a crash: its last lines, and the whole as a file."""

from __future__ import annotations

import os
from pathlib import Path

import streamlit as st

from app.lab import active
from labcore.runs.files import storage
from labcore.runs.store.rows import RunRow

SHOWN_BYTES = 20_000


def show(run: RunRow) -> None:
    """The log of a run that has ended; nothing where its workers printed nothing."""
    if active(run) or not (text := _end(storage.fetch_log(run.id))):
        return
    with st.expander("Log of the worker", icon=":material/terminal:"):
        st.code(text, language=None, height=320)
        st.download_button("Download log", lambda: storage.fetch_log(run.id).read_bytes(), f"{run.id}.log",
                           "text/plain", icon=":material/download:", on_click="ignore", key=f"log:{run.id}")


def _end(path: Path) -> str:
    """The last lines of a log; empty if there is no log."""
    try:
        with path.open("rb") as file:
            beyond = file.seek(0, os.SEEK_END) - SHOWN_BYTES
            file.seek(max(0, beyond))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return text.partition("\n")[2] if beyond > 0 else text
