"""Give an unknown address a page, hidden from the navigation, that says so and links to the others.

Streamlit alone would show Home, below a dialog that names neither the address nor a way.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from urllib.parse import unquote, urlsplit

import streamlit as st
from streamlit.navigation.page import Page

from app import link
from app.tokens import literal

HOME = "home"  # what people type for the page without a name
LONGEST = 60  # letters of an address that are repeated


def pages(known: Sequence[Page]) -> list[Page]:
    """The page of the address that this tab asks for; none where one of `known` has it."""
    name = asked(st.context.url)
    if not name or name in {page.url_path for page in known}:
        return []

    def show() -> None:
        _show(name, known)

    return [st.Page(show, title="No such page", url_path=name, visibility="hidden")]


def asked(url: str | None) -> str:
    """The name of the page in an address.

    >>> asked("http://localhost:8501/no%20such/"), asked("http://localhost:8501"), asked(None)
    ('no such', '', '')
    """
    return unquote(urlsplit(url or "").path).rstrip("/").rpartition("/")[2].strip()


def nearest(name: str, known: Sequence[Page]) -> tuple[Page | None, bool]:
    """The page that was probably meant, and whether that is certain: only its capital letters differ, or it is Home by
    its name."""
    by_name = {page.url_path or HOME: page for page in known}
    found = get_close_matches(name.casefold(), by_name, n=1)
    return (by_name[found[0]], found[0] == name.casefold()) if found else (None, False)


def _show(name: str, known: Sequence[Page]) -> None:
    near, sure = nearest(name, known)
    query = link.query()
    if near and sure:
        st.switch_page(near, query_params=query)
    shown = literal(name if len(name) <= LONGEST else f"{name[:LONGEST]}…")
    home = next(page for page in known if not page.url_path)
    st.header("No such page", anchor=False)
    st.markdown(f"This lab has no page called “{shown}”. " + (
        f"Did you mean **{near.title}**?" if near else "The pages of this lab:"))
    with st.container(horizontal=True, gap="small"):
        for page in dict.fromkeys([near, home]) if near else known:
            st.page_link(page, label="Home" if page is home else page.title, icon=":material/arrow_forward:",
                         query_params=query if page is near else None)
