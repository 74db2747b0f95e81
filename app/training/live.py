"""The one fragment that polls while a run is running: status, numbers, live charts and the tabs below."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import link, question_link, resend
from app.components.live_chart import live_chart
from app.components.projector import projector
from app.components.run_head import run_head
from app.draft import Draft
from app.lab import active, errors_shown, lab
from app.marked import worded
from app.session import SMOOTH, axis, show_error
from app.training import clock, doctor_line, forking, ghost, goal_line, own_metrics, pace, second_stage, tabs, view
from app.training.chart_data import payload
from app.training.feed import Feed
from app.training.knobs import values_of
from app.training.status_line import line, numbers, to_come
from labcore.runs.files import called
from labcore.runs.places import going, holders
from labcore.runs.spec.run_spec import knobs_of
from labcore.runs.store import thinned
from labcore.runs.store.rows import RunRow, Step

# Seconds between two drawings while few pages are open; in any other state: never.
EVERY = {"queued": 0.5, "starting": 0.5, "running": 0.5, "paused": 1.0}
# How long the charts of a new run wait for its first step, in seconds. When a script takes longer, Streamlit shows a
# button to stop it.
FIRST_SECONDS = 0.25
CHART = "live_chart"
ENDED_ELSEWHERE = 5.0  # the same of a run that has ended, but whose program may be started again and go on with it


Picture = Callable[[RunRow, Feed, int], DeltaGenerator | None]  # at the step that the page shows
Top = Callable[[RunRow | None, Draft | None], None]  # the open run, or where there is none the draft of one


def panel(run: RunRow, picture: Picture | None, own_tabs: tabs.Tabs, top: Top | None) -> None:
    """Draw the run, and keep drawing while it is going.

    `picture` is drawn above its curves, or returns the container beside it in which they are drawn. `own_tabs` are
    before the tabs that every kind has; `top` is above everything.
    """
    resend.mounted(CHART)  # a full run of the script may have mounted the charts anew
    ghost.look(run)
    every = _every(run)
    st.fragment(_tick, run_every=every, key="live")(run.id, run.state, every, picture, own_tabs, top)


def _every(run: RunRow) -> float | None:
    """Seconds between two drawings, while the run or its ghost goes on, or may go on without the lab."""
    behind = ghost.of(run)
    seconds = [EVERY[each.state] for each in (run, behind) if each and each.state in EVERY]
    if run.spec.kind_row.elsewhere:
        seconds.append(ENDED_ELSEWHERE)
    return pace.every(min(seconds)) if seconds else None


def feed_of(run: RunRow) -> Feed:
    """The session's feed of a run, brought up to date from the store."""
    feed: Feed = st.session_state.setdefault(f"feed:{run.id}", Feed(run.spec))
    if not feed.steps:
        feed.take(thinned.read(lab().store, run) if active(run) else _rows(run.id, run.step, run.ended), [])
    elsewhere = run.spec.kind_row.elsewhere  # its last row may get more metrics
    feed.take(lab().store.steps_after(run.id, max(0, feed.last_step - elsewhere)),
              lab().store.events_after(run.id, feed.last_event))
    if elsewhere:
        feed.called = called.read(run.id)
    return feed


@st.cache_resource(max_entries=8, show_spinner=False)
def _rows(run_id: str, step: int, ended: float | None) -> list[Step]:
    """The rows of a run that has ended, read once for all tabs; another end is another run to read."""
    return thinned.read(lab().store, lab().store.run(run_id))


def stage_of(run: RunRow) -> tuple[RunRow, str]:
    """The run to show and its stage: while the base is being made, the SFT run that makes it."""
    base = lab().find(run.base) if run.state == "starting" and run.step == 0 else None
    if base is None or not active(base):
        return run, ""
    return base, f"Stage 1 of 2: {base.spec.row.label}, then {run.spec.row.label}"


@errors_shown()
@pace.counted()
def _tick(run_id: str, state: str, every: float | None, picture: Picture | None, own_tabs: tabs.Tabs,
          top: Top | None) -> None:
    run = lab().store.run(run_id)
    shown, stage = stage_of(run)
    feed = feed_of(shown)
    moved_on = run.state != state or _every(run) != every
    first = every and feed.steps and not feed.sent  # the first point comes before the page, which follows a tick later
    if (moved_on and not first) or _steered_elsewhere(run) or forking.asked():
        st.rerun()
    if top:
        top(run, None)
    run_head("goal", shown.id, run.id)
    run_head("status", shown.id)
    at = clock.of(run, shown, feed)
    step = at or feed.last_step
    doctor_line.show(shown, feed, at, steered=not stage and not run.spec.kind_row.elsewhere)
    with st.container(key="tiles", horizontal=True, vertical_alignment="center"):
        run_head("tiles", shown.id)
        view.show(shown, feed.axes())
        projector("projector")
    above = forking.ancestors(shown)
    forking.family(shown, above)
    behind = ghost.of(run) if shown is run else None
    grey = (behind, feed_of(behind)) if behind and behind not in above else None
    if shown is run:
        ghost.line(run, feed, grey)
    curves = picture(shown, feed, step) if picture else None
    data = _charts(shown, above, grey, at, view.researcher() and not stage)
    data |= _head(replace(shown, asked=run.asked), feed, stage)
    with curves or st.container():
        live_chart(data, key=CHART, on_resync=_resync, on_marker=forking.open_at_marker,
                   on_pace=pace.of_browser, on_awaited=partial(_await_first_step, shown.id))
        if feed.stride > 1:
            st.caption(f"Each point stands for {feed.stride} steps; the CSV has every step.")
        own_metrics.show(shown, feed, at)
    if stage:
        second_stage.show(run.spec)
    with st.container(key="clock"):
        clock.show(shown, feed, at)
    own = feed if shown is run else feed_of(run)
    tabs.show(run, own, step if own is feed else own.last_step, own_tabs)


def _charts(run: RunRow, above: list[RunRow], grey: tuple[RunRow, Feed] | None, at: int | None,
            unfolded: bool) -> dict[str, Any]:
    """The data of the charts: a run, those that it was forked from, and the one behind them in grey."""
    feeds = {each.id: feed_of(each) for each in (run, *above)}
    ghosts = {grey[0].id: grey[1]} if grey else {}
    drawn = [*feeds, *ghosts]
    full = resend.full(CHART) or st.session_state.get("charted") != drawn
    st.session_state["charted"] = drawn
    named = {each.id: each for each in (run, *above, *([grey[0]] if grey else []))}
    data = payload(feeds, full=full, x=axis(feeds[run.id].axes()), smooth=link.get(SMOOTH), ended=not active(run),
                   at=at, unfolded=unfolded, named=named, ghost=ghosts)
    return data | {"panels": question_link.beside(data["panels"])}


def _head(run: RunRow, feed: Feed, stage: str) -> dict[str, Any]:
    """The head above the charts: the sentence about the goal, the status line and the tiles."""
    holding = holders(run, going(lab().store, [run]))
    waiting = to_come(run, lab().store.asked(run.id)) if run.message and active(run) else []
    return {"goal": {"html": goal_line.html(run.spec), "now": goal_line.now(feed)}, "tiles": numbers(feed),
            "status": line(run, feed, stage, holding, waiting)}


def _resync() -> None:
    resend.missed(CHART)


def _await_first_step(run_id: str) -> None:
    """Wait a moment for the first step of a run that has just begun. The browser draws the page meanwhile."""
    until = time.monotonic() + FIRST_SECONDS
    while time.monotonic() < until and (run := lab().find(run_id)) and active(run) and not run.step:
        time.sleep(0.02)


def _steered_elsewhere(run: RunRow) -> bool:
    """True if a knob moved without this page, or a control was refused: then the knobs must be drawn again."""
    key = f"values:{run.id}"
    if not active(run) or key not in st.session_state:
        return False
    feed = feed_of(run)
    reported = st.session_state.setdefault(f"reported:{run.id}", 0)
    refused = [event for event in feed.events if event.kind == "refused" and event.id > reported]
    if refused:
        st.session_state[f"reported:{run.id}"] = refused[-1].id
        show_error(worded(refused[-1].payload["text"], knobs_of(run.spec.row, run.spec.task_row)))
        st.session_state.pop(key)
        return True
    before = dict(st.session_state[key])
    return values_of(run, feed) != before
