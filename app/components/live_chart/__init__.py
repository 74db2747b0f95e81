"""The live chart component: curves that grow from deltas."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from app.components.plotly import CURVES, Chart
from app.question_link import beside

CHART = Chart(Path(__file__).parent, *CURVES)


def live_chart(data: dict[str, Any], key: str, on_resync: Callable[[], None],
               on_marker: Callable[[str, int], None], on_pace: Callable[[int], None] | None = None,
               on_awaited: Callable[[], None] | None = None) -> None:
    """Mount the grid. `data` is the result of `app.training.chart_data.payload`.

    `on_resync` is called if the browser missed rows. `on_marker` gets the run and the event of a knob's marker that was
    clicked. `on_pace` gets the factor by which a slow browser asks for fewer updates. `on_awaited` is called while
    there is no point yet, so that the page is drawn again as soon as there is one.
    """
    def marked() -> None:
        if clicked := st.session_state[key].marker:
            on_marker(str(clicked["run"]), int(clicked["event"]))

    def paced() -> None:
        if on_pace and (pace := st.session_state[key].pace):
            on_pace(int(pace))

    CHART(key=key, data=data | {"panels": beside(data["panels"])}, on_resync_change=on_resync, on_marker_change=marked,
          on_pace_change=paced, on_awaited_change=on_awaited or (lambda: None))
