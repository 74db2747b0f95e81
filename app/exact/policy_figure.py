"""The policy's probabilities beside those of π_ref and π*, one figure for each prompt. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from app import theme
from app.charts import finish
from app.theme import number

MOST = 12  # completions
HEIGHT = 290
END = "|"  # the sign of the end token
NAMES = {"policy": "π, the policy", "reference": "π_ref, the reference", "optimum": "π*, the optimum"}
GREY = {"light": "#6B7280", "dark": "#9AA4B2"}


def policy_figure(prompt: Mapping[str, Any], kind: str) -> go.Figure:
    """Bars of π, a line on each for π_ref and a diamond for π*; under each completion what it earns.

    The completions are those that are the likeliest under any of the three, in the order of π*; all others together
    are the last bar.
    """
    rows, rest = shown(prompt)
    columns = [key for key in NAMES if key in rest]
    labels = [label(row) for row in rows] + [f"{rest['count']} others"]
    figure = go.Figure()
    for key in columns:
        values = [row[key] for row in rows] + [rest[key]]
        said = f"%{{x}}<br>{NAMES[key]}: %{{y:.4f}}<extra></extra>"
        if key == "policy":
            figure.add_bar(x=labels, y=values, marker={"color": colour(key, kind), "opacity": 0.85}, hovertemplate=said)
        else:
            figure.add_scatter(x=labels, y=values, mode="markers", hovertemplate=said, marker=mark(key, kind))
    finish(figure, kind, HEIGHT)
    figure.update_layout(showlegend=False, margin={"l": 8, "r": 8, "t": 8, "b": 8}, bargap=0.25)
    figure.update_xaxes(title={"text": "completion · its reward", "standoff": 6}, tickangle=-90, type="category",
                        tickvals=labels, ticktext=[*(f"{label(row)} · {number(row['reward'], 2)}" for row in rows),
                                                   labels[-1]])
    return figure.update_yaxes(title={"text": "probability", "standoff": 4}, zeroline=False, rangemode="tozero")


def shown(prompt: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows that are drawn, in the order of π* (or of π where there is none), and all others together."""
    keys = [key for key in NAMES if key in prompt["rest"]]
    kept, others = prompt["rows"][:MOST], prompt["rows"][MOST:]
    rest = {"count": prompt["rest"]["count"] + len(others),
            **{key: prompt["rest"][key] + sum(row[key] for row in others) for key in keys}}
    return sorted(kept, key=lambda row: -row[keys[-1] if "optimum" in keys else "policy"]), rest


def label(row: Mapping[str, Any]) -> str:
    """A completion as text, with a sign where it ended by itself."""
    return f"{row['text']}{END if row['ended'] else ''}"


def colour(key: str, kind: str) -> str:
    """π is blue, π* orange, π_ref grey."""
    return {"policy": theme.POSITIVE, "optimum": theme.NEGATIVE, "reference": GREY}[key][kind]


def mark(key: str, kind: str) -> dict[str, Any]:
    """How a probability other than the policy's is marked: by form as well as by colour."""
    ink = colour(key, kind)
    if key == "reference":
        return {"symbol": "line-ew", "size": 16, "line": {"width": 3, "color": ink}, "color": ink}
    return {"symbol": "diamond-open", "size": 10, "line": {"width": 2.5, "color": ink}, "color": ink}


def words(prompt: Mapping[str, Any]) -> str:
    """The figure as a sentence, for those who do not see it."""
    rows, _ = shown(prompt)
    first = max(rows, key=lambda row: row["policy"])
    said = (f"After the prompt {prompt['prompt']} the policy's likeliest completion is {label(first)}, with "
            f"probability {first['policy']:.2f}")
    return said + (f"; under π* it has {first['optimum']:.2f}." if "optimum" in first else ".")
