"""CartPole and every other Gymnasium world with a few actions: knobs on the left, the policy and its curves right."""

import streamlit as st

from app import bar, cartpole, empty, knobs, live, live_chart, session

KIND = "cartpole"

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
        empty.picture(draft.row, draft.task_row, draft.fault(), lambda: cartpole.scene(draft.fields["task"]))
        live_chart.warm()
    else:
        live.panel(run, cartpole.picture)
