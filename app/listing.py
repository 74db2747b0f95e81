"""Short lists of runs for Home, and the offer to go on with what was interrupted."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable

import streamlit as st

from app.lab import lab
from app.session import page_of, tell
from app.status import STATES, duration
from app.theme import number
from labcore.catalog.metrics import METRICS, PANELS
from labcore.errors import LabError
from labcore.runs.rows import ACTIVE, RunRow, Step


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
        _entry(run, newest.get(run.id))


def _newest(runs: list[RunRow]) -> dict[str, Step]:
    """Each run's last step, read in one transaction."""
    found = lab().store.steps_after_many({run.id: max(0, run.step - 1) for run in runs})
    return {run_id: steps[-1] for run_id, steps in found.items() if steps}


def _entry(run: RunRow, step: Step | None) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key=f"entry:{run.id}", gap="small"):
        st.html(_words(run, step), width="stretch")
        st.page_link(page_of(run.spec.kind), label="Open", icon=":material/open_in_full:", query_params={"run": run.id})


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
