"""A Plotly figure made in Python that is redrawn in place: it never flickers, and keeps its zoom, while runs go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from app.components.plotly import Chart

CHART = Chart(Path(__file__).parent)


def figure_chart(figure: go.Figure | dict[str, Any], key: str, *, title: str, caption: str, alt: str,
                 least: int = 0) -> None:
    """Mount the figure, or its plain data and layout.

    `title` and `caption` stand on a saved picture, `alt` says in a sentence what is seen. On a screen of fewer than
    `least` pixels it is scrolled sideways.

    The same figure again changes nothing and sends next to nothing. Where the browser's theme turns light or dark, the
    script runs again, so that the figure is made in the colours of the other one.
    """
    drawn = figure if isinstance(figure, dict) else figure.update_layout(template="none").to_plotly_json()
    CHART(key=key, data={"figure": drawn, "title": title, "caption": caption, "alt": alt, "least": least},
          on_theme_change=lambda: None)
