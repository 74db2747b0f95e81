"""The live chart component: plotly.js from the plotly wheel, grown from deltas."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import streamlit as st

from app.components.component import STATIC, Component, place

PLOTLY = f"plotly-{version('plotly')}.min.js"
PLOTLY_URL = f"app/static/{PLOTLY}"
CHART = Component(Path(__file__).parent)


@cache
def publish() -> None:
    """Put plotly.js where the server serves static files. Once per process."""
    wheel = Path(str(files("plotly"))) / "package_data" / "plotly.min.js"
    served = STATIC / PLOTLY
    if not served.exists() or served.stat().st_size != wheel.stat().st_size:
        place(served, lambda path: shutil.copyfile(wheel, path))


def warm(chart: Component = CHART) -> None:
    """Have the browser load a chart's script and plotly.js while the page is still being made."""
    st.html(f"""<script type="module">
const chart = await import(new URL("app/static/{chart.script}", document.baseURI));
chart.loadPlotly("{PLOTLY_URL}");
</script>""", unsafe_allow_javascript=True)


def live_chart(data: dict, key: str, on_resync: Callable[[], None], on_marker: Callable[[str, int], None]) -> None:
    """Mount the grid. `data` is what `app.training.feed.payload` makes.

    `on_resync` is called when rows were missed; `on_marker` gets the run and the event of a knob's marker whose words
    were clicked.
    """
    def marked() -> None:
        if clicked := st.session_state[key].marker:
            on_marker(str(clicked["run"]), int(clicked["event"]))

    CHART(key=key, data={**data, "plotly": PLOTLY_URL}, on_resync_change=on_resync, on_marker_change=marked)
