"""The page Watch: it shows a watched run as the page of language models shows its runs. Without a run it
explains how to send one."""

from __future__ import annotations

import streamlit as st

from app import session
from app.llm import judge_tab, story
from app.training import bar, export, live
from app.training.feed import Feed
from app.training.tabs import Tabs
from app.watch import beside, sent, teach
from labcore.catalog.kinds import WATCH
from labcore.runs.store.rows import RunRow

TABS: Tabs = {"Microscope": (sent.microscope, sent.has_completions), judge_tab.NAME: (judge_tab.show, sent.has_groups)}


def page() -> None:
    """Show the whole page."""
    run = session.open_run(WATCH.key)
    bar.bar(run, WATCH.key)
    session.problem()
    export.dialog(run)
    if run is None:
        teach.show()
        return
    st.session_state.pop(teach.NEWEST, None)
    left, right = st.columns([1, 3.7], gap="medium")
    with left, st.container(key="side"):
        beside.show(run)
    with right:
        live.panel(run, _picture, TABS, None)


def _picture(run: RunRow, feed: Feed, step: int) -> None:
    """Show the story strip if the run has completions; before the first step, a note on what will appear."""
    if sent.has_completions(run):
        story.show(run, feed, step)
    elif not feed.steps:
        st.caption("Curves appear with the first metrics, completions with the first rollouts.")
