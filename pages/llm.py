"""The LLM lab: knobs on the left, what happens on the right."""

import streamlit as st

from app import bar, empty, knobs, live, live_chart, session

run = session.open_run()
draft = session.follow(run)
bar.bar(run)
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
        empty.picture(draft.row, draft.task_row, draft.fault())
        live_chart.warm()
    else:
        live.panel(run)
