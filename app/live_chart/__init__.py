"""The live chart component: plotly.js from the plotly wheel, grown from deltas."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path

from app.component import STATIC, Component, place

PLOTLY_URL = "app/static/plotly.min.js"
CHART = Component(Path(__file__).parent)


@cache
def publish() -> None:
    """Put plotly.js where the server serves static files. Once per process."""
    wheel = Path(str(files("plotly"))) / "package_data" / "plotly.min.js"
    served = STATIC / "plotly.min.js"
    if not served.exists() or served.stat().st_size != wheel.stat().st_size:
        place(served, lambda path: shutil.copyfile(wheel, path))


def warm() -> None:
    """Have the browser load plotly.js before the first run is started, so that its first point comes sooner."""
    CHART(key="warm_chart", data={"plotly": PLOTLY_URL}, on_resync_change=lambda: None)


def live_chart(data: dict, key: str, on_resync: Callable[[], None]) -> None:
    """Mount the grid. `data` is what `app.feed.payload` makes; `on_resync` is called when rows were missed."""
    CHART(key=key, data={**data, "plotly": PLOTLY_URL}, on_resync_change=on_resync)
