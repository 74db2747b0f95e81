"""Charts of our own: components that draw with the plotly.js of the plotly wheel, which a browser loads once."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import streamlit as st

from app.components.component import HERE, Component, published

CURVES = sorted((HERE / "curves").glob("*.js"))  # what charts of curves that grow have in common


@cache
def plotly_url() -> str:
    """The address at which plotly.js is served; the first call in a process puts it there."""
    return f"app/static/{published('plotly', files('plotly').joinpath('package_data/plotly.min.js').read_bytes())}"


class Chart(Component):
    """A component whose scripts can `loadPlotly(data.plotly)` and draw with `configOf` what is to be saved."""

    def __init__(self, folder: Path, *shared: Path) -> None:
        super().__init__(folder, HERE / "plotly.js", *shared)

    def __call__(self, *, data: dict[str, Any], **mount: Any) -> Any:
        return super().__call__(data={**data, "plotly": plotly_url()}, **mount)

    def warm(self) -> None:
        """Have the browser load the chart's script and plotly.js, and draw a first chart that nobody sees, while the
        page is still being made or nobody asks for anything."""
        st.html(f"""<script type="module">
const chart = await import(new URL("app/static/{self.script}", document.baseURI));
chart.loadPlotly("{plotly_url()}").then(() => window.requestIdleCallback?.(chart.rehearse))
  .catch(() => null); // who draws with it tries again
</script>""", unsafe_allow_javascript=True)
