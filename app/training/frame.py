"""The frame of every page that trains: the bar on top, the knobs on the left, the run on the right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import MappingProxyType

import streamlit as st

from app import session
from app.components.live_chart import CHART
from app.draft import Draft
from app.lab import active
from app.training import bar, empty, export, goal_line, knobs, live, own_data, presets, twin
from app.training.tabs import Tabs
from labcore.runs.store.rows import RunRow


def frame(kind: str, scene: Callable[[Draft], None] | None = None, picture: live.Picture | None = None,
          own_tabs: Tabs = MappingProxyType({}), top: live.Top | None = None,
          before: Sequence[Callable[[Draft], None]] = (), form: Callable[[Draft], None] | None = None) -> None:
    """The page of a kind.

    `scene` draws the draft's environment before a run, and `before` further notes on the draft. `picture` draws the run
    above its curves, and `own_tabs` are tabs of the kind below them. `top` is drawn above a run and above a draft;
    `form` draws further fields of the draft above its knobs.
    """
    run = session.open_run(kind)
    draft = None if active(run) else Draft(run, kind)  # no draft while the run is running
    fault = draft.fault() if draft else ""
    bar.bar(run, kind, fault)
    session.problem()
    export.dialog(run)
    if run is None and draft:
        goal_line.show(draft, "above")  # on a phone, where the form comes before all else
    left, right = st.columns([1, 3.7], gap="medium")
    with left, st.container(key="side"):
        _side(run, draft, form)
    if draft and draft.fault() != fault:  # a file has come, or another task was taken: the bar is drawn already
        st.rerun()
    with right:
        if run is None:
            if top:
                top(None, draft)
            assert draft is not None, "only a run that goes has none"
            goal_line.show(draft, "beside")
            own_data.show(draft)
            presets.show(draft)
            empty.picture(draft, partial(scene, draft) if scene else None)
            for shown in before:
                shown(draft)
            CHART.warm()
        else:
            presets.beside(run)
            twin.link(run)
            live.panel(run, picture, own_tabs, top)


def _side(run: RunRow | None, draft: Draft | None, form: Callable[[Draft], None] | None) -> None:
    """Draw the setup of the run, then its knobs. A phone folds the knobs, and after the end of a run it folds both, so
    that the curves are first."""
    if run is None:
        _setup(run, draft)
    st.checkbox("Show the knobs", key="show_knobs", on_change="ignore")  # seen on a phone only, read by the CSS
    with st.container(key="knobs"):
        if run is not None:
            _setup(run, draft)
        if draft is None:
            assert run is not None, "only beside a run there is no draft"
            knobs.while_going(run, knobs.values_of(run, live.feed_of(run)))
        else:
            if form:
                form(draft)
            knobs.before_start(draft)


def _setup(run: RunRow | None, draft: Draft | None) -> None:
    with st.container(key="setup"):
        if draft is None:
            assert run is not None, "only beside a run there is no draft"
            knobs.running(run)
        else:
            knobs.setup(draft)
