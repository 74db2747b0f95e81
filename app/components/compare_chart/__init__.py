"""The compare chart component: groups of runs laid over each other, drawn with plotly.js from lines that changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from app.components.plotly import CURVES, Chart

CHART = Chart(Path(__file__).parent, *CURVES)


def compare_chart(data: dict[str, Any], key: str, on_resync: Callable[[], None],
                  on_metric: Callable[[str], None] = lambda key: None) -> None:
    """Mount some panels. `data` is what `app.compare.curves.payload` makes.

    `on_resync` is called when the browser lacks lines; `on_metric` gets the key of a panel whose title was clicked.
    """
    def clicked() -> None:
        if metric := st.session_state[key].metric:
            on_metric(str(metric))

    CHART(key=key, data=data, on_resync_change=on_resync, on_metric_change=clicked)
