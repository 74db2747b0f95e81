"""The estimator bench as figures and a table. Pure: the same result gives the same picture."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from app import charts, theme
from app.theme import number
from labcore.llm.sizing import bench
from labcore.runs.spec.run_spec import every_knob

# What is drawn, with its words and the value that an ideal gradient has.
PANELS = (("bias", "Bias²", "|E g − ∇|² / |∇|²", 0.0), ("turned", "Bias² after scaling", "|E g/s − ∇|² / |∇|²", 0.0),
          ("noise", "Variance after scaling", "tr Cov g / |s ∇|²", None),
          ("cosines", "Cosine with ∇ of a single batch", "mean cosine", 1.0))
SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "star", "x", "pentagon")
HEIGHT, ROW = 300, 34


def figure(found: Mapping[str, Any], key: str, unit: str, ideal: float | None, kind: str) -> go.Figure:
    """Draw one quantity of every row with its 95 % interval: over the knob's values, or a line for each algorithm."""
    rows = [row for row in found["rows"] if row.get(key) and row[key][0] is not None]
    labels = list(dict.fromkeys(row["label"] for row in found["rows"]))
    drawn = go.Figure()
    for place, label in enumerate(labels):
        own = [row for row in rows if row["label"] == label]
        numbers = [row[key] for row in own]
        middle = [mean for mean, _, _ in numbers]
        below = [0 if low is None else mean - low for mean, low, _ in numbers]
        above = [0 if high is None else high - mean for mean, _, high in numbers]
        error = {"type": "data", "array": above, "arrayminus": below, "symmetric": False, "thickness": 1.3, "width": 3}
        marker = {"size": 9, "symbol": SYMBOLS[place % len(SYMBOLS)],
                  "color": theme.palette(kind)[place % len(theme.palette(kind))]}
        if found["knob"]:
            drawn.add_scatter(x=[value(row) for row in own], y=middle, error_y=error, mode="lines+markers", name=label,
                              marker=marker, hovertemplate=f"{label}<br>%{{x}}: %{{y:.4f}}<extra></extra>")
        else:
            drawn.add_scatter(x=middle, y=[label] * len(own), error_x=error, mode="markers", name=label, marker=marker,
                              hovertemplate="%{y}: %{x:.4f}<extra></extra>")
    charts.finish(drawn, kind, HEIGHT if found["knob"] else 96 + ROW * len(labels))
    return _axes(drawn, found, unit, ideal, kind)


def _axes(drawn: go.Figure, found: Mapping[str, Any], unit: str, ideal: float | None, kind: str) -> go.Figure:
    line = {"dash": "dot", "width": 1, "color": theme.layout(kind)["font"]["color"]}
    drawn.update_layout(showlegend=bool(found["knob"]), legend={"orientation": "h", "y": -0.32, "x": 0},
                        margin={"l": 8, "r": 8, "t": 8, "b": 8})
    if found["knob"]:
        drawn.update_xaxes(title_text=called(found["knob"]), type="category")
        drawn.update_yaxes(title_text=unit, rangemode="tozero" if ideal is None else "normal")
        return drawn if ideal is None else drawn.add_hline(y=ideal, line=line, opacity=0.7)
    drawn.update_xaxes(title_text=unit, showgrid=True, rangemode="tozero" if ideal is None else "normal")
    drawn.update_yaxes(autorange="reversed", showgrid=False)
    return drawn if ideal is None else drawn.add_vline(x=ideal, line=line, opacity=0.7)


def value(row: Mapping[str, Any]) -> str:
    """A knob's value as it stands on an axis."""
    return f"{row['value']:g}" if isinstance(row["value"], int | float) else str(row["value"]).replace("_", " ")


def called(knob: str) -> str:
    """A knob as the page calls it, with its unit.

    >>> called("beta"), called("group_size")
    ('KL coefficient, reward/nat', 'Group size')
    """
    row = every_knob()[knob]
    return f"{row.label}, {row.unit}" if row.unit else row.label


def words(found: Mapping[str, Any], key: str, title: str) -> str:
    """The figure as a sentence, for those who do not see it."""
    said = [f"{row['label']}{f' at {value(row)}' if found['knob'] else ''} {number(row[key][0], 3)}"
            for row in found["rows"] if row.get(key) and row[key][0] is not None]
    return f"{title} of each row: {', '.join(said)}."


def table(found: Mapping[str, Any]) -> str:
    """Return a table of all numbers with half their intervals: HTML."""
    knob = [called(found["knob"])] if found["knob"] else []
    heads = "".join(f"<th>{html.escape(head)}</th>" for head in ["algorithm", *knob, "finding",
                                                                 *(head for _, head in bench.COLUMNS)])
    rows = ""
    for row in found["rows"]:
        cells = [html.escape(row["label"]), *([value(row)] if knob else []), bench.finding(row),
                 *(bench.number(row.get(key)).replace("-", "−") for key, _ in bench.COLUMNS)]
        rows += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    return f'<div class="rl-scroll"><table class="rl-table rl-bench"><tr>{heads}</tr>{rows}</table></div>'


def reasons(found: Mapping[str, Any]) -> str:
    """Why each algorithm's mean gradient differs from the exact one: HTML; empty if none differs."""
    said: dict[str, Sequence[str]] = {label: own for label, own in bench.reasons(found).items() if own}
    return "".join(f"<li><b>{html.escape(label)}</b>: {html.escape(' '.join(own))}</li>" for label, own in said.items())
