"""A job as a page sees it: its result, or what is being waited for. Polls only while the job is under way."""

from __future__ import annotations

import time
from typing import Any

import streamlit as st

from app.lab import lab
from app.session import tell
from app.status import duration
from app.tokens import literal
from labcore.errors import LabError
from labcore.jobs import jobs

EVERY = 0.3  # seconds between two looks
AT_ONCE_SECONDS = 0.6  # so long a rerun waits for a job that it has just asked for: most are done by then


def result(spec: jobs.Spec, doing: str, last: str = "", polled: bool = False) -> tuple[dict[str, Any] | None, bool]:
    """What the job `spec` gives, and whether it is there. Where it is not (yet, or never will be) says so here.

    `doing` are the words for what is being waited for, such as "Two models answer". Until then the last result of the
    same name `last` is given, to be shown as what it is. The page is run again when the job is over, unless what called
    this is `polled`, that is drawn again every few seconds anyway.
    """
    try:
        job = lab().launcher.compute(spec)
    except LabError as error:
        st.error(literal(str(error)), icon=":material/error:")
        return None, False
    begun, kept = f"job:{job}", f"latest:{last}"
    if begun not in st.session_state:
        st.session_state[begun] = time.time()
        _wait_a_moment(job)
    found = jobs.outcome(job)
    if found is None:
        if polled:
            _line(job, doing)
        else:
            st.fragment(_waiting, run_every=EVERY, key=f"waiting:{job}")(job, spec, doing)
        return st.session_state.get(kept), False
    st.session_state.pop(begun)
    if found.result is None:
        _failed(job, found.error)
        return None, False
    if last:
        st.session_state[kept] = found.result
    return found.result, True


def _wait_a_moment(job: str) -> None:
    until = time.monotonic() + AT_ONCE_SECONDS
    while not jobs.ended(job) and time.monotonic() < until:
        time.sleep(0.02)


def _waiting(job: str, spec: jobs.Spec, doing: str) -> None:
    try:
        lab().launcher.compute(spec)  # asked again: the process that had it may be gone
    except LabError as error:
        st.error(literal(str(error)), icon=":material/error:")
        return
    if jobs.ended(job):
        st.rerun()
    _line(job, doing)


def _line(job: str, doing: str) -> None:
    """What is waited for and since when, and a way to stop it."""
    seconds = time.time() - st.session_state.get(f"job:{job}", time.time())
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="job_waiting"):
        st.html(f'<div class="rl-status" role="status"><span class="rl-dot" style="background:#56B4E9"></span>'
                f"<span><b>{doing}</b> · {duration(seconds)}</span></div>", width="stretch")
        st.button("Stop", icon=":material/stop:", key=f"stop:{job}", on_click=_told, args=(lab().launcher.cancel, job))


def _failed(job: str, sentence: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="job_failed"):
        st.error(literal(sentence), icon=":material/error:")
        st.button("Try again", icon=":material/refresh:", key=f"again:{job}", on_click=jobs.forget, args=(job,))


def _told(do, *args: Any) -> None:
    try:
        do(*args)
    except LabError as error:
        tell(str(error))
