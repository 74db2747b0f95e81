"""The story strip: a prompt's answers with their bars, and how likely each was over the run's steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from app.components.component import HERE, Component

STRIP = Component(Path(__file__).parent, HERE / "chips.js")


def story_strip(data: dict[str, Any], key: str, on_chosen: Callable[[str], None]) -> None:
    """Mount the strip. `data` is what `app.llm.story.payload` makes, or holds under "empty" why there is nothing.

    `on_chosen` gets the name of the prompt that the user wants to see, empty for the telling one.
    """
    def chosen() -> None:
        if (prompt := st.session_state[key].chosen) is not None:
            on_chosen(str(prompt["name"]))

    STRIP(key=key, data=data, on_chosen_change=chosen)
