"""Show the result of a job, or its progress. Polls only while the job is running."""

from __future__ import annotations

import html
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from app.lab import errors_shown, in_words, lab
from app.session import show_error
from app.status import duration
from app.tokens import literal
from labcore.errors import LabError
from labcore.runs import jobs
from labcore.runs.files.paths import read_only

EVERY = 0.3  # seconds between two looks
AT_ONCE_SECONDS = 0.6  # so long a rerun waits for a job that it has just asked for: most are done by then


@dataclass
class Asked:
    """The last request of a view, which the next request replaces. `seen` is its last result with its key `like`."""

    choice: Any
    spec: jobs.Spec
    begun: float = field(default_factory=time.time)
    new: bool = True  # nobody has waited for it
    seen: tuple[Any, dict[str, Any]] | None = None

    @property
    def job(self) -> str:
        return jobs.job_id(self.spec)


def result(spec: jobs.Spec, doing: str, view: str, choice: Any = None, like: Any = None,
           polled: bool = False) -> tuple[dict[str, Any] | None, bool]:
    """The result of the job `spec`, and whether it is ready. Otherwise shows its progress or its error here.

    `doing` describes the job in plain text, such as "Two models answer". Until the job is done, the last result of the
    `view` is returned if it has the same `like`; the view shows it as an earlier result. Another `choice` of the user
    (without one, any other spec) stops the running job. A spec that differs under the same choice, as with newer
    checkpoints, waits for the running job; if the view is `polled`, which means drawn again every few seconds, it waits
    for the next drawing. Otherwise the page is run again when the job is done.
    """
    try:
        asked = _asked(view, spec if choice is None else choice, spec, polled)
        job = lab().launcher.compute(asked.spec)
    except LabError as error:
        if read_only():
            st.caption(f":material/visibility: Not computed yet. {in_words(error)}")
        else:
            st.error(in_words(error), icon=":material/error:")
        return None, False
    if asked.new:
        asked.new = False
        _wait_a_moment(job)
    found = jobs.outcome(job)
    if found is None:
        if polled:
            _line(view, asked, doing)
        else:
            st.fragment(_waiting, run_every=EVERY, key=f"waiting:{view}:{job}")(view, asked, doing)
    elif found.result is None:
        _failed(view, asked, found.error)
    else:
        asked.seen = like, found.result
    if asked.spec != spec:
        st.button("Update with newer checkpoints", icon=":material/update:", key=f"newer:{view}", on_click=_try,
                  args=(_ask, view, asked.choice, spec))
    if found is None and asked.seen and asked.seen[0] == like:
        return asked.seen[1], False
    result = found.result if found else None
    return result, result is not None


def asked_for(view: str, spec: jobs.Spec) -> jobs.Spec:
    """The spec of the job that the view shows or waits for; `spec` if it has none yet."""
    asked: Asked | None = st.session_state.get(f"asked:{view}")
    return asked.spec if asked else spec


def _asked(view: str, choice: Any, newest: jobs.Spec, polled: bool) -> Asked:
    """The request that the view waits for or shows. Raises LabError if the running job cannot be stopped."""
    asked: Asked | None = st.session_state.get(f"asked:{view}")
    if asked and asked.choice == choice and (asked.spec == newest or polled or not jobs.ended(asked.job)):
        return asked
    return _ask(view, choice, newest)


def _ask(view: str, choice: Any, spec: jobs.Spec) -> Asked:
    """Replace the view's earlier request by `spec` and stop the earlier job. A failed job is tried again. Raises
    LabError if the earlier job cannot be stopped."""
    before: Asked | None = st.session_state.get(f"asked:{view}")
    asked = st.session_state[f"asked:{view}"] = Asked(choice, spec, seen=before.seen if before else None)
    if before and before.job != asked.job:
        if not read_only() and not jobs.ended(before.job):
            lab().launcher.cancel(before.job)
        if (found := jobs.outcome(asked.job)) and found.result is None:  # as when it was stopped for another one
            jobs.forget(asked.job)
    return asked


def _wait_a_moment(job: str) -> None:
    until = time.monotonic() + AT_ONCE_SECONDS
    while not jobs.ended(job) and time.monotonic() < until:
        time.sleep(0.02)


@errors_shown()
def _waiting(view: str, asked: Asked, doing: str) -> None:
    try:
        job = lab().launcher.compute(asked.spec)  # asked again: the process that had it may be gone
    except LabError as error:
        st.error(in_words(error), icon=":material/error:")
        return
    if jobs.ended(job):
        st.rerun()
    _line(view, asked, doing)


def _line(view: str, asked: Asked, doing: str) -> None:
    """A line with the running job and its time so far, and a button that stops it."""
    job, seconds = asked.job, time.time() - asked.begun
    parts = [f"<b>{html.escape(doing)}</b>", *filter(None, [html.escape(jobs.doing(job))]), duration(seconds)]
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"job_waiting:{view}:{job}"):
        st.html(f'<div class="rl-status" role="status"><span class="rl-dot" style="background:#56B4E9"></span>'
                f"<span>{' · '.join(parts)}</span></div>", width="stretch")
        st.button("Stop", icon=":material/stop:", key=f"stop:{view}:{job}", on_click=_try,
                  args=(lab().launcher.cancel, job))


def _failed(view: str, asked: Asked, sentence: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"job_failed:{view}"):
        st.error(literal(sentence), icon=":material/error:")
        st.button("Try again", icon=":material/refresh:", key=f"again:{view}:{asked.job}", disabled=read_only(),
                  on_click=_again, args=(asked,))


def _again(asked: Asked) -> None:
    jobs.forget(asked.job)
    asked.begun, asked.new = time.time(), True


def _try(do: Callable[..., object], *args: Any) -> None:
    try:
        do(*args)
    except LabError as error:
        show_error(str(error))
