"""Lists of runs, for the Runs page and for Home."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable

import streamlit as st

from app.lab import lab
from app.session import forget, page_of, tell
from app.status import STATES, duration
from app.theme import number
from labcore.catalog.metrics import METRICS, PANELS
from labcore.errors import LabError
from labcore.runs.rows import ACTIVE, RESUMABLE, RunRow, Step

MOST = 100


def resume_banner(interrupted: list[RunRow]) -> None:
    """Offer, in one click, to go on with what was stopped with the lab."""
    if not interrupted:
        return
    many = len(interrupted) > 1
    with st.container(border=True, horizontal=True, vertical_alignment="center", key="resume_banner"):
        st.markdown(f":material/history: **{len(interrupted)} run{'s were' if many else ' was'} interrupted.** "
                    f"Nothing is lost: {'they go' if many else 'it goes'} on from the last checkpoint.",
                    width="stretch")
        st.button(f"Resume {'all' if many else interrupted[0].id}", type="primary", icon=":material/play_arrow:",
                  on_click=_resume, args=([run.id for run in interrupted],), key="resume_all")


def _resume(ids: Iterable[str]) -> None:
    for run_id in ids:
        try:
            lab().launcher.resume(run_id)
        except LabError as error:
            tell(str(error))


def _delete(run: RunRow) -> None:
    try:
        lab().store.delete(run.id)
        forget(run)
    except LabError as error:
        tell(str(error))


def going() -> None:
    """The runs that are going, for Home, or the latest ones; polls only while some are going."""
    polling = bool(lab().store.runs(*ACTIVE, limit=1))
    st.fragment(_going, run_every=1.0 if polling else None, key="going")(polling)


def _going(polling: bool) -> None:
    runs = lab().store.runs(*ACTIVE, limit=8)
    if polling and not runs:
        st.rerun()
    title = "Going now" if runs else "Latest runs"
    runs = runs or lab().store.runs(limit=4)
    if not runs:
        return
    st.subheader(title, anchor=False)
    newest = _newest(runs)
    for run in runs:
        _entry(run, newest.get(run.id), full=False)


def table() -> None:
    """All runs, newest first; polls only while one is going."""
    every = 1.0 if lab().store.runs(*ACTIVE, limit=1) else None
    st.fragment(_table, run_every=every, key="table")(every is not None)


def _table(polling: bool) -> None:
    runs = lab().store.runs(limit=MOST)
    if polling and not any(run.state in ACTIVE for run in runs):
        st.rerun()
    if not runs:
        st.markdown("No runs yet. The first one takes a minute and needs no settings.")
        if st.button("Open the LLM lab", type="primary", icon=":material/play_arrow:"):
            st.switch_page("../pages/llm.py")
        return
    newest = _newest(runs)
    for run in runs:
        _entry(run, newest.get(run.id), full=True)
    if len(runs) == MOST:
        st.caption(f"The newest {MOST} runs. Older ones open by their link.")


def _newest(runs: list[RunRow]) -> dict[str, Step]:
    """Each run's last step, read in one transaction."""
    found = lab().store.steps_after_many({run.id: max(0, run.step - 1) for run in runs})
    return {run_id: steps[-1] for run_id, steps in found.items() if steps}


def _entry(run: RunRow, step: Step | None, full: bool) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key=f"entry:{run.id}", gap="small"):
        st.html(_words(run, step), width="stretch")
        if full and run.state in RESUMABLE:
            st.button("Go on", icon=":material/play_arrow:", key=f"resume:{run.id}", on_click=_resume, args=([run.id],))
        st.page_link(page_of(run.spec.kind), label="Open", icon=":material/open_in_full:", query_params={"run": run.id})
        if full and run.state not in ACTIVE:
            with st.popover("", icon=":material/delete:", help=f"Delete {run.id}", key=f"bin:{run.id}"):
                st.markdown(f"Delete **{run.id}** with its curves and checkpoints? This cannot be undone.")
                st.button("Delete the run", type="primary", key=f"delete:{run.id}", on_click=_delete, args=(run,))


def _words(run: RunRow, step: Step | None) -> str:
    """One run as HTML: state, name, what it is, how far, its headline number, when."""
    colour, state, _ = STATES[run.state]
    share = min(1.0, run.step / run.spec.steps)
    first = METRICS[PANELS[run.spec.row.panels[0]].metrics[0]]
    value = step.metrics.get(first.key) if step else None
    shown = f" · {first.label.lower()} <b>{number(value, 2)}</b>" if value is not None else ""
    since = duration(max(0.0, time.time() - run.created))
    said = f' · <span title="{html.escape(run.message)}">{html.escape(run.message)}</span>' if run.message else ""
    return (f'<div class="rl-status"><span class="rl-dot" style="background:{colour}"></span><span><b>{run.id}</b> '
            f'{state.lower()} <span class="rl-muted">{run.spec.row.label} · {run.spec.task_row.label} · '
            f"{html.escape(run.spec.model)} · seed {run.spec.seed} · step {run.step:,} of {run.spec.steps:,}"
            f'{shown} · started {since} ago{said}</span></span></div>'
            f'<div class="rl-bar"><i style="width:{share:.1%};background:{colour}"></i></div>')
