"""The scrubber: a slider over a run's steps, which chooses the step that everything on the page shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from app.components.component import Component

SCRUBBER = Component(Path(__file__).parent)


def scrubber(data: dict[str, Any], key: str, on_step: Callable[[int], None]) -> None:
    """Mount it. `data` is what `app.training.clock.payload` makes; `on_step` gets the step, 0 for always the newest."""
    def chosen() -> None:
        if (step := st.session_state[key].step) is not None:
            on_step(int(step))

    SCRUBBER(key=key, data=data, on_step_change=chosen)
