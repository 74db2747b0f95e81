"""Page config and navigation, nothing else."""

from pathlib import Path

import streamlit as st

from app import astray, lab, login, theme

st.set_page_config("RL Visual Lab", str(Path(__file__).with_name("icon.svg")), layout="wide")
theme.style()
lab.warm_up()
pages = [
    st.Page("../pages/home.py", title="RL Visual Lab", icon=":material/experiment:", url_path="", default=True),
    st.Page("../pages/foundations.py", title="Foundations", url_path="foundations"),
    st.Page("../pages/surrogate.py", title="Surrogate explorer", url_path="surrogate"),
    st.Page("../pages/lessons.py", title="Lessons", url_path="lessons"),
    st.Page("../pages/maze.py", title="Maze", url_path="maze"),
    st.Page("../pages/cartpole.py", title="CartPole", url_path="cartpole"),
    st.Page("../pages/llm.py", title="LLM lab", url_path="llm"),
    st.Page("../pages/exact.py", title="Exact", url_path="exact"),
    st.Page("../pages/compare.py", title="Compare", url_path="compare"),
    st.Page("../pages/studies.py", title="Studies", url_path="studies"),
    st.Page("../pages/playground.py", title="Playground", url_path="playground"),
    st.Page("../pages/runs.py", title="Runs", url_path="runs"),
    st.Page("../pages/help.py", title="Help", url_path="help"),
]
inside = False
with lab.errors_shown():
    inside = login.passed()
page = st.navigation([*pages, *astray.pages(pages)], position="top" if inside else "hidden")
with lab.errors_shown():
    if inside:
        login.above_the_page()
        page.run()
