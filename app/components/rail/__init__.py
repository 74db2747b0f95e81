"""The rail of RLHF: three stations in a line, each a button that opens its run, with buttons to start new runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from app.components.component import Component

RAIL = Component(Path(__file__).parent)


def rail(data: dict[str, Any], key: str, on_chosen: Callable[[Mapping[str, str]], None]) -> None:
    """Mount it. `data` is what `app.llm.rail.payload` makes; `on_chosen` gets {"run": id} or {"start": algorithm}."""
    def chosen() -> None:
        if (said := st.session_state[key].chosen) is not None:
            on_chosen(said)

    RAIL(key=key, data=data, on_chosen_change=chosen)
