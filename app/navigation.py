"""Page config and navigation, nothing else."""

from pathlib import Path

import streamlit as st

from app import lab, login, serving, theme, unknown_page
from app.page_list import PAGES

st.set_page_config("RL Visual Lab", str(Path(__file__).with_name("icon.svg")), layout="wide")
theme.style()
lab.warm_up()
home, *others = PAGES
pages = [st.Page(home.script, title="RL Visual Lab", icon=":material/experiment:", url_path="", default=True),
         *(st.Page(page.script, title=page.title, url_path=page.key) for page in others)]
inside = False
with lab.errors_shown():
    inside = serving.has_room() and login.passed()
page = st.navigation([*pages, *unknown_page.pages(pages)], position="top" if inside else "hidden")
with lab.errors_shown():
    if inside:
        login.above_the_page()
        page.run()
