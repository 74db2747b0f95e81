"""The surrogates as pictures that can be dragged, and a small exact policy that maximises them.

Everything is computed in the browser, so nothing asks the server while a handle is dragged.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from app.components.component import Component
from app.components.foundations import picture

HERE = Path(__file__).parent


class Explorer(Component):
    """Has the grips, axes and style of the pictures of Foundations."""

    def __init__(self) -> None:
        super().__init__(HERE, *sorted(picture.HERE.glob("*.js")))
        self.name = "foundation_surrogate"

    @property
    def style(self) -> str:
        return "\n".join(path.read_text(encoding="utf-8") for path in (
            picture.HERE / "foundations.css", HERE / "surrogate_explorer.css"))


EXPLORER = Explorer()


def is_drawn(surrogate: str) -> bool:
    """True if a surrogate has a twin in JavaScript, by which it can be drawn and dragged."""
    return (HERE / f"twin_{surrogate}.js").is_file()


def surrogate_explorer(data: dict[str, Any], key: str, on_grab: Callable[[dict[str, Any]], None]) -> None:
    """Mount it. `data` is what `app.surrogate.page.payload` makes.

    `on_grab` gets what was grabbed once it is let go, by the names of the link's fields; None: back to the usual.
    """
    def grabbed() -> None:
        if (changes := st.session_state[key].grab) is not None:
            on_grab({name: value for name, value in changes.items() if name != "times"})

    EXPLORER(key=key, data=data, on_grab_change=grabbed)
