"""The maze: knobs on the left, the maze with its values and arrows on the right, the curves below."""

import streamlit as st

from app import bar, empty, knobs, live, live_chart, maze, session

KIND = "maze"

run = session.open_run(KIND)
draft = session.follow(run, KIND)
bar.bar(run, KIND)
session.problem()
st.checkbox("Show the knobs", key="show_knobs", on_change="ignore")  # seen on a phone only, read by the CSS
left, right = st.columns([1, 3.7], gap="medium")
with left, st.container(key="knobs"):
    if draft is None:
        knobs.while_going(run, knobs.values_of(run, live.feed_of(run).knobs()))
    else:
        knobs.before_start(draft)
with right:
    if run is None:
        empty.picture(draft.row, draft.task_row, draft.fault(), lambda: maze.scene(draft))
        live_chart.warm()
    else:
        live.panel(run, maze.picture)
