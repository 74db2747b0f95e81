"""Figures of a policy over a plane of its observations, and of continuous actions over an episode. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from app import theme
from app.charts import finish

DIVERGING = {"light": [[0, "#B85C00"], [0.5, "#F4F4F2"], [1, "#0072B2"]],
             "dark": [[0, "#F2B84B"], [0.5, "#2A2F36"], [1, "#4FA8E0"]]}
HEIGHT = 380


def action_map(found: Mapping[str, Any], kind: str = "light") -> go.Figure:
    """The most likely action at every point, and the path of the greedy episode. Continuous actions have a scale
    between their bounds, a few actions are areas."""
    bounds = found["bounds"]
    finite = bounds and all(abs(bound) < 1e6 for bound in bounds)
    size = max(abs(number) for row in found["action"] for number in row) or 1.0
    low, high = (bounds if finite else (-size, size)) if bounds else (0, found["actions"] - 1)
    bar: dict[str, Any] = {"title": {"text": "mean action" if bounds else "action", "side": "right"}, "thickness": 12}
    if not bounds:
        bar |= {"tickvals": list(range(found["actions"])), "tickformat": "d"}
    return _map(found, "action", kind, colorscale=DIVERGING[kind], zmin=low, zmax=high, colorbar=bar,
                hovertemplate="%{x:.2f}, %{y:.2f}<br>action %{z:.3g}<extra></extra>")


def value_map(found: Mapping[str, Any], kind: str = "light") -> go.Figure:
    """The value at every point, and the path of the greedy episode."""
    return _map(found, "value", kind, colorscale="Viridis",
                colorbar={"title": {"text": "value, reward", "side": "right"}, "thickness": 12},
                hovertemplate="%{x:.2f}, %{y:.2f}<br>value %{z:.3g}<extra></extra>")


def _map(found: Mapping[str, Any], key: str, kind: str, **look: Any) -> go.Figure:
    figure = go.Figure()
    across, up = found["axes"]
    figure.add_heatmap(x=across, y=up, z=found[key], **look)
    path = [place for place in found["path"] if up[0] <= place[1] <= up[-1] and across[0] <= place[0] <= across[-1]]
    ink = "#111111" if key == "action" and kind == "light" else "#FFFFFF"
    figure.add_scatter(x=[place[0] for place in path], y=[place[1] for place in path], mode="markers", name="episode",
                       marker={"size": 4, "color": ink, "opacity": 0.75}, hoverinfo="skip")
    if path:
        figure.add_scatter(x=[path[0][0]], y=[path[0][1]], mode="markers", name="start", hoverinfo="skip",
                           marker={"size": 11, "symbol": "circle-open", "color": ink, "line": {"width": 2}})
    finish(figure, kind, HEIGHT)
    figure.update_layout(showlegend=False)
    figure.update_xaxes(title_text=found["names"][0], range=[across[0], across[-1]], showgrid=False)
    figure.update_yaxes(title_text=found["names"][1], range=[up[0], up[-1]], showgrid=False)
    return figure


def actions_figure(actions: Sequence[Sequence[float]], stds: Sequence[Sequence[float]],
                   bounds: Sequence[float] | None, kind: str = "light") -> go.Figure:
    """Each component of the action over an episode: its mean, and a band of one standard deviation around it."""
    figure = go.Figure()
    steps = list(range(len(actions)))
    for place, colour in zip(range(min(len(actions[0]), 4)), theme.palette(kind), strict=False):
        means, spread = [row[place] for row in actions], [row[place] for row in stds]
        edge = [mean + std for mean, std in zip(means, spread, strict=True)]
        back = [mean - std for mean, std in zip(means, spread, strict=True)]
        name = f"action {place + 1}" if len(actions[0]) > 1 else "mean action"
        figure.add_scatter(x=[*steps, *steps[::-1]], y=[*edge, *back[::-1]], fill="toself", mode="lines",
                           line={"width": 0, "color": colour}, opacity=0.25, hoverinfo="skip", showlegend=False)
        figure.add_scatter(x=steps, y=means, mode="lines", name=name, line={"color": colour, "width": 2},
                           hovertemplate="step %{x}<br>" + name + " %{y:.3g}<extra></extra>")
    finish(figure, kind, 280)
    for bound in bounds or ():
        if abs(bound) < 1e6:
            figure.add_hline(y=bound, line={"dash": "dot", "width": 1, "color": theme.layout(kind)["font"]["color"]})
    figure.update_layout(showlegend=len(actions[0]) > 1)
    figure.update_xaxes(title_text="step of the episode")
    figure.update_yaxes(title_text="action ± σ")
    return figure


def spread_words(actions: Sequence[Sequence[float]], stds: Sequence[Sequence[float]]) -> str:
    """Caption of the band of a Gaussian policy, with its width.

    >>> spread_words([[0.5]], [[0.25]])
    'The line is the mean action, the band one standard deviation: σ = 0.25. In training actions are drawn from it.'
    """
    sigmas = ", ".join(theme.number(each, 2) for each in stds[0][:4])
    return (f"The line is the mean action, the band one standard deviation: σ = {sigmas}. In training actions are "
            "drawn from it.")
