"""Page config, the navigation and what is above every page."""

from pathlib import Path

import streamlit as st

from app import lab, login, theme, unknown_page
from app.page_list import PAGES, SECTIONS, Page
from labcore import __version__

NAME = "RL Visual Lab"
ABOUT = f"**{NAME} {__version__}**: watch a language model learn by reinforcement, on your own machine."


def entry(page: Page) -> st.Page:
    """A page as Streamlit's navigation has it; Home bears the lab's name and has the address without a name."""
    if page is PAGES[0]:
        return st.Page(page.script, title=NAME, icon=":material/experiment:", url_path="", default=True)
    return st.Page(page.script, title=page.title, icon=page.icon, url_path=page.key, help=page.words)


# The menu item makes Streamlit show its menu, in which a visitor chooses the light, the dark or the system's theme.
st.set_page_config(NAME, str(Path(__file__).with_name("icon.svg")), layout="wide", menu_items={"About": ABOUT})
theme.style()
lab.warm_up()
pages = {page: entry(page) for page in PAGES}
alone = [entry for page, entry in pages.items() if not page.section]
inside = False
with lab.errors_shown():
    inside = login.passed()
current = st.navigation({"": [*alone, *unknown_page.pages(list(pages.values()))],
                         **{section.title: [pages[page] for page in section.pages] for section in SECTIONS}},
                        position="top" if inside else "hidden")
shown = next((page for page, entry in pages.items() if entry is current), None)
place = next((place for place, section in enumerate(SECTIONS) if shown and section.title == shown.section), None)
theme.here(NAME if shown is PAGES[0] else shown.title if shown else "No such page", place, len(alone),
           shown.section if shown else "")
with lab.errors_shown():
    if inside:
        login.above_the_page()
        current.run()
