"""The microscope: cards of groups that can be sorted and filtered, and the tokens of one with their arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from app.components.component import HERE, Component

SCOPE = Component(Path(__file__).parent, HERE / "chips.js")
EQUATION = "scope_equation"  # key of the container with the LaTeX, whose terms light up


def microscope(data: dict[str, Any], key: str, on_choice: Callable[[dict[str, Any]], None]) -> None:
    """Mount it. `on_choice` gets what the user chose, by the names of the link's parameters."""
    def chosen() -> None:
        if (choice := st.session_state[key].choice) is not None:
            on_choice({name: value for name, value in choice.items() if name != "times"})

    SCOPE(key=key, data=data, on_choice_change=chosen)
