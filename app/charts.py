"""Make Plotly figures from data, for charts that do not grow with a run. Pure: the same data gives the same figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app import theme
from app.tokens import own
from labcore.catalog.metrics import METRICS

MOST = 2000  # dots of a picture
EARLIER = ("An earlier version of the lab wrote this file, without the surrogate's curve and the clipped tokens. "
           "Choose a later step or start a new run.")


@dataclass(frozen=True)
class Dot:
    """A token, or a step in an environment: its ratio, its advantage, and the side on which it is clipped, or ""."""

    ratio: float
    advantage: float
    cut: str


def token_dots(samples: dict[str, Any]) -> list[Dot]:
    """The tokens of the samples that have an advantage and a ratio (the algorithm's own ratio if it has one)."""
    return [Dot(*each) for group in samples.get("groups", []) for completion in group["completions"]
            for each in own(completion, [*zip(completion.get("own_ratio") or completion.get("ratio") or [],
                                              completion.get("advantages") or [], completion.get("cut") or [],
                                              strict=False)])
            if None not in each]


def counts_of(dots: Sequence[Dot]) -> dict[str, int]:
    """The number of tokens, and of those that are clipped (`cut`), have advantage 0 (`still`) or ratio 1 (`one`)."""
    return {"tokens": len(dots), "cut": sum(bool(dot.cut) for dot in dots),
            "still": sum(dot.advantage == 0 for dot in dots), "one": sum(abs(dot.ratio - 1) < 1e-6 for dot in dots)}


def surrogate_figure(dots: Sequence[Dot], curve: dict[str, list[float]], kind: str = "light") -> go.Figure:
    """The surrogate over the ratio, as the worker computed it, for a positive and a negative advantage. Open dots are
    clipped tokens."""
    figure = make_subplots(1, 2, subplot_titles=("advantage > 0", "advantage < 0"), horizontal_spacing=0.16)
    grid, bounds = curve["ratio"], curve["bounds"]
    for column, sign, side in ((1, 1, "positive"), (2, -1, "negative")):
        colour = (theme.POSITIVE if sign > 0 else theme.NEGATIVE)[kind]
        figure.add_scatter(x=grid, y=curve[side], mode="lines", line={"color": colour, "width": 2}, name="surrogate",
                           row=1, col=column, hovertemplate="ratio %{x:.2f}<br>L/|A| %{y:.2f}<extra></extra>")
        ours = [dot for dot in dots if dot.advantage * sign > 0 and grid[0] <= dot.ratio <= grid[-1]]
        ours = ours[::1 + len(ours) // MOST]
        ratios = [dot.ratio for dot in ours]
        figure.add_scatter(x=ratios, y=np.interp(ratios, grid, curve[side]).tolist(), mode="markers",
                           marker={"color": colour, "size": 9, "opacity": 0.4,
                                   "symbol": ["circle-open" if dot.cut else "circle" for dot in ours]},
                           name=f"{len(ours)} tokens", row=1, col=column, customdata=[dot.advantage for dot in ours],
                           text=[", clipped" if dot.cut else "" for dot in ours],
                           hovertemplate="ratio %{x:.3f}<br>advantage %{customdata:+.2f}%{text}<extra></extra>")
        for edge in bounds:
            figure.add_vline(x=edge, line={"dash": "dot", "width": 1, "color": theme.layout(kind)["font"]["color"]},
                             opacity=0.6, row=1, col=column)
    finish(figure, kind, 320)
    figure.update_layout(showlegend=False)
    figure.update_xaxes(title_text="ratio ρ = π/π_old", range=[grid[0], grid[-1]], tickangle=0, **_ticks(grid, bounds))
    figure.update_yaxes(title_text="L / |A|")
    return figure


def _ticks(grid: Sequence[float], bounds: Sequence[float]) -> dict[str, Any]:
    """The bounds and 1, where they are far enough from each other for their words."""
    wide = max((abs(bound - 1) for bound in bounds), default=0.0)
    if wide <= 0.12 * (grid[-1] - grid[0]):
        return {"nticks": 4}
    places = [bounds[0], 1, bounds[-1]]
    return {"tickvals": places, "ticktext": [f"{place:g}" for place in places] if wide > 0.03 else ["1−ε", "1", "1+ε"]}


def line_figure(line: dict[str, Any], kind: str = "light", kl_unit: str = "nats/token") -> go.Figure:
    """The surrogates and the mean KL along θ_old → θ_new and beyond."""
    colours = theme.palette(kind)
    figure = make_subplots(2, 1, shared_xaxes=True, row_heights=[0.62, 0.38], vertical_spacing=0.08)
    drawn = [("cpi", "L<sup>CPI</sup>, unclipped", colours[1], "dash"),
             ("clip", "L<sup>CLIP</sup>, clipped", colours[0], "solid"),
             ("kl_penalised", "L<sup>KLPEN</sup>, unclipped − β KL", colours[2], "dot")]
    named = {key for key, *_ in drawn}
    drawn += [(key, METRICS[f"surrogate/{key}"].label, colours[4], "solid")  # the algorithm's own, where it is another
              for key in line if key not in named and f"surrogate/{key}" in METRICS]
    for key, name, colour, dash in drawn:
        figure.add_scatter(x=line["alpha"], y=line[key], name=name, mode="lines",
                           line={"color": colour, "width": 2, "dash": dash}, row=1, col=1)
    figure.add_scatter(x=line["alpha"], y=line["kl"], name="mean KL(π_old ‖ π_α)", mode="lines",
                       line={"color": colours[3], "width": 2}, row=2, col=1)
    for place in (0, 1):
        figure.add_vline(x=place, line={"dash": "dot", "width": 1, "color": theme.layout(kind)["font"]["color"]},
                         opacity=0.7)
    for place, name in ((0, "θ_old"), (1, "θ_new")):
        figure.add_annotation(x=place, y=1.0, yref="paper", yanchor="bottom", text=name, showarrow=False)
    finish(figure, kind, 420)
    figure.update_layout(hovermode="x unified")
    figure.update_xaxes(title_text="α: share of the update, θ_old + α (θ_new − θ_old)", row=2, col=1)
    figure.update_yaxes(exponentformat="power", showexponent="all")  # 5n would be read as n tokens
    figure.update_yaxes(title_text="surrogate, advantage", row=1, col=1)
    figure.update_yaxes(title_text=f"KL, {kl_unit}", row=2, col=1)
    return figure


def finish(figure: go.Figure, kind: str, height: int) -> None:
    """Apply the common look to every subplot."""
    layout = theme.layout(kind, height)
    x, y = layout.pop("xaxis"), layout.pop("yaxis")
    figure.update_layout(**layout)
    figure.update_xaxes(**x)
    figure.update_yaxes(**y)
    figure.update_annotations(font_size=13)
