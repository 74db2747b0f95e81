"""The store and the launcher: one of each per server process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import streamlit as st

from app.marked import worded
from app.tokens import literal
from labcore.errors import LabError, NoSuchRun
from labcore.runs import titles
from labcore.runs.faults import disk_full, no_room
from labcore.runs.files.paths import read_only
from labcore.runs.store.rows import ACTIVE, RESUMABLE, RunRow
from labcore.runs.store.store import Store
from labcore.workers.launcher import Launcher, NoLauncher


@dataclass(frozen=True)
class Lab:
    """The store, from which runs are read, and the launcher, which starts them. All other data that must outlive a page
    is in the store."""

    store: Store
    launcher: Launcher | NoLauncher

    def find(self, run_id: str | None) -> RunRow | None:
        """The run of a link; None where there is none, or no longer."""
        if not run_id:
            return None
        try:
            return self.store.run(run_id)
        except NoSuchRun:
            return None


@st.cache_resource(show_spinner=False, on_release=lambda lab: lab.launcher.close())
def lab() -> Lab:
    """Open the store, mark the runs whose process is gone, start the warm parent of the workers. A lab that is shared
    for reading only opens the store."""
    store = Store()
    if read_only():
        return Lab(store, NoLauncher(store))
    store.reconcile()
    return Lab(store, Launcher(store))


def warm_up() -> Lab | None:
    """Open the lab with the server, before the first page asks for it. Returns None if that fails; the page then says
    why."""
    with suppress(LabError, OSError):
        return lab()
    return None


def titled(sentence: str) -> str:
    """A sentence with the titles of runs in place of their ids."""
    return titles.with_titles(sentence, lambda: lab().store)


def in_words(error: LabError | str) -> str:
    """The text of an error for Streamlit's Markdown, escaped so that none of it is markup."""
    return literal(titled(worded(str(error))))


@contextmanager
def errors_shown() -> Iterator[None]:
    """Show an error in words in place of the page, or of the part that it affects: for example, that the disk is
    full."""
    try:
        yield
    except LabError as error:
        st.error(in_words(error), icon=":material/error:")
    except OSError as error:
        if not disk_full(error):
            raise
        st.error(literal(no_room()), icon=":material/error:")


def resumable(run: RunRow) -> bool:
    """True if the lab can resume a run that has ended; only its trainer can resume a watched run."""
    return run.state in RESUMABLE and not run.spec.kind_row.elsewhere


def active(run: RunRow | None) -> bool:
    """True if a worker has this run or will have it."""
    return run is not None and run.state in ACTIVE
