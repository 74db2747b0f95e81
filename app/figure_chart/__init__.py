"""A Plotly figure made in Python that is redrawn in place: it never flickers, and keeps its zoom, while runs go."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go

from app import live_chart
from app.component import Component

CHART = Component(Path(__file__).parent, Path(live_chart.__file__).parent / "plotly.js")


def figure_chart(figure: go.Figure, key: str, *, title: str, caption: str, alt: str, least: int = 0) -> None:
    """Mount the figure. `title` and `caption` stand on a saved picture, `alt` says in a sentence what is seen.

    On a screen of fewer than `least` pixels it is scrolled sideways.

    The same figure again changes nothing and sends next to nothing.
    """
    figure.update_layout(template="none")
    CHART(key=key, data={"figure": figure.to_plotly_json(), "title": title, "caption": caption, "alt": alt,
                         "least": least, "plotly": live_chart.PLOTLY_URL})
