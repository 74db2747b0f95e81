"""Proxy and gold reward as figures: over the steps, and over the distance from the reference. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go

from app import theme
from app.llm.proxy import Point, peak
from app.llm.reward_figures import finished, mark
from app.theme import number

NAMES = {"proxy": "proxy", "gold": "gold"}
READS: dict[str, Callable[[Point], float]] = {"proxy": lambda point: point.proxy, "gold": lambda point: point.gold}


def over_steps(points: Sequence[Point], means: Sequence[Point], at: int | None, apart: bool, kind: str) -> go.Figure:
    """Both rewards over the steps. `apart`: each has an axis of its own, since their units differ."""
    figure = _both(points, means, lambda point: point.step, "step %{x}", apart, kind)
    _peak(figure, means, lambda point: point.step, f"step {peak(means).step:,}", apart, kind)
    mark(figure, at, kind)
    return _axes(figure, "step", {"range": [0, points[-1].step * 1.02]}, apart, kind)


def over_distance(points: Sequence[Point], means: Sequence[Point], at: int | None, apart: bool, kind: str) -> go.Figure:
    """Both rewards over √KL to the reference; a ring on each curve at the step that is shown, by default the last."""
    figure, best = _both(points, means, lambda point: point.distance, "√KL %{x:.2f} √nats", apart, kind), peak(means)
    _peak(figure, means, lambda point: point.distance, f"step {best.step:,}, KL {number(best.kl, 1)} nats", apart, kind)
    here = next((point for point in reversed(means) if at is None or point.step <= at), means[0])
    for key, read in READS.items():
        figure.add_scatter(x=[here.distance], y=[read(here)], mode="markers", yaxis=_axis(key, apart),
                           marker={"size": 13, "symbol": "circle-open", "line": {"width": 3},
                                   "color": colour(key, kind)},
                           hovertemplate=f"step {here.step}<br>{NAMES[key]} %{{y:.3f}}<extra></extra>")
    far = max(point.distance for point in points)
    across = {"range": [-0.02 * far, 1.04 * far or 1]}
    return _axes(figure, "√KL(π ‖ π<sub>ref</sub>) of a completion, √nats", across, apart, kind)


def colour(key: str, kind: str) -> str:
    """The proxy is blue, gold orange."""
    return {"proxy": theme.POSITIVE, "gold": theme.NEGATIVE}[key][kind]


def _axis(key: str, apart: bool) -> str:
    return "y2" if apart and key == "gold" else "y"


def _both(points: Sequence[Point], means: Sequence[Point], x: Callable[[Point], float], said: str, apart: bool,
          kind: str) -> go.Figure:
    """Faint dots for the steps, a curve through their means, its name at its end."""
    figure = go.Figure()
    for key, read in READS.items():
        axis, ink = _axis(key, apart), colour(key, kind)
        figure.add_scatter(x=[x(point) for point in points], y=[read(point) for point in points], mode="markers",
                           marker={"size": 4, "color": ink, "opacity": 0.25}, hoverinfo="skip", yaxis=axis)
        figure.add_scatter(x=[x(point) for point in means], y=[read(point) for point in means], mode="lines",
                           line={"width": 2.5, "color": ink}, customdata=[point.step for point in means], yaxis=axis,
                           hovertemplate=f"{said}<br>{NAMES[key]} %{{y:.3f}}<br>step %{{customdata}}<extra></extra>")
        figure.add_annotation(x=x(means[-1]), y=read(means[-1]), yref=axis, text=f"<b>{NAMES[key]}</b>", yshift=8,
                              xanchor="right", yanchor="bottom", showarrow=False, font={"color": ink, "size": 14})
    return figure


def _peak(figure: go.Figure, means: Sequence[Point], x: Callable[[Point], float], said: str, apart: bool,
          kind: str) -> None:
    """A mark where gold is highest, in words."""
    best, ink, axis = peak(means), colour("gold", kind), _axis("gold", apart)
    figure.add_scatter(x=[x(best)], y=[best.gold], mode="markers", yaxis=axis, hoverinfo="skip",
                       marker={"size": 11, "symbol": "diamond", "color": ink})
    figure.add_vline(x=x(best), line={"width": 1, "dash": "dot", "color": ink})
    late = x(best) > x(means[-1]) / 2
    figure.add_annotation(x=x(best), yref="paper", y=1, yanchor="bottom", text=f"gold peak: {said}", showarrow=False,
                          xanchor="right" if late else "left", xshift=4 if late else -4, font={"color": ink})


def _axes(figure: go.Figure, x: str, across: dict[str, Any], apart: bool, kind: str) -> go.Figure:
    """The left axis is the proxy's, the right one gold's, each in its colour; one axis where they share a unit."""
    finished(figure, kind, x, "reward", across, {"rangemode": "tozero"}).update_layout(margin={"t": 24})
    if not apart:
        return figure
    base = {key: value for key, value in theme.layout(kind)["yaxis"].items() if key != "title"}
    inks = [colour(key, kind) for key in READS]
    titles = [{"text": text, "font": {"color": ink, "size": 13}, "standoff": 4}
              for text, ink in zip(("proxy: score of the reward model", "gold reward"), inks, strict=True)]
    return figure.update_layout(
        yaxis={"title": titles[0], "tickfont": {"color": inks[0]}},
        yaxis2={**base, "overlaying": "y", "side": "right", "showgrid": False, "rangemode": "tozero", "zeroline": False,
                "tickmode": "auto", "nticks": 6,
                "title": titles[1], "tickfont": {"color": inks[1], "size": 12}})
