"""Data to Plotly figures, for the pictures that do not grow. Pure: the same data gives the same figure."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app import theme


def clip_surrogate(ratio: float, advantage_sign: int, clip_low: float, clip_high: float) -> float:
    """min(ρA, clip(ρ)A) for A = ±1."""
    clipped = min(max(ratio, 1 - clip_low), 1 + clip_high)
    return min(ratio * advantage_sign, clipped * advantage_sign)


def token_points(samples: dict[str, Any]) -> list[tuple[float, float]]:
    """(ratio, advantage) of every token of the samples that has both."""
    return [(ratio, advantage) for group in samples.get("groups", []) for completion in group["completions"]
            for ratio, advantage in zip(completion.get("ratio") or [], completion.get("advantages") or [], strict=False)
            if ratio is not None and advantage is not None]


def branch_counts(points: list[tuple[float, float]], clip_low: float, clip_high: float) -> dict[str, int]:
    """How many tokens lie where, and how many have no gradient.

    `clipped`: beyond the bound on the side the advantage pushes to; `still`: advantage zero; `one`: ratio 1.
    """
    counts = {"tokens": len(points), "clipped": 0, "still": 0, "one": 0}
    for ratio, advantage in points:
        counts["clipped"] += (advantage > 0 and ratio > 1 + clip_high) or (advantage < 0 and ratio < 1 - clip_low)
        counts["still"] += advantage == 0
        counts["one"] += abs(ratio - 1) < 1e-6
    return counts


def surrogate_figure(samples: dict[str, Any], clip_low: float, clip_high: float, kind: str = "light") -> go.Figure:
    """L^CLIP against the ratio for a positive and a negative advantage, with the tokens as dots."""
    points = token_points(samples)
    figure = make_subplots(1, 2, subplot_titles=("advantage > 0", "advantage < 0"), horizontal_spacing=0.16)
    ends = [ratio for ratio, _ in points]
    wide = max(clip_low, clip_high, 0.002)
    left = max(0.0, min([1 - 3 * wide, *ends]) - wide / 4)
    right = min(3.0, max([1 + 3 * wide, *ends]) + wide / 4)
    grid = sorted({left + (right - left) * place / 120 for place in range(121)}
                  | {edge for edge in (1 - clip_low, 1 + clip_high) if left < edge < right})
    for column, sign in ((1, 1), (2, -1)):
        colour = (theme.POSITIVE if sign > 0 else theme.NEGATIVE)[kind]
        figure.add_scatter(x=grid, y=[clip_surrogate(ratio, sign, clip_low, clip_high) for ratio in grid], mode="lines",
                           line={"color": colour, "width": 2}, name="L^CLIP", row=1, col=column,
                           hovertemplate="ratio %{x:.2f}<br>L/|A| %{y:.2f}<extra></extra>")
        ours = [(ratio, advantage) for ratio, advantage in points if advantage * sign > 0]
        figure.add_scatter(x=[ratio for ratio, _ in ours],
                           y=[clip_surrogate(ratio, sign, clip_low, clip_high) for ratio, _ in ours], mode="markers",
                           marker={"color": colour, "size": 9, "opacity": 0.35}, name=f"{len(ours)} tokens", row=1,
                           col=column, customdata=[advantage for _, advantage in ours],
                           hovertemplate="ratio %{x:.3f}<br>advantage %{customdata:+.2f}<extra></extra>")
        for edge in (1 - clip_low, 1 + clip_high):
            figure.add_vline(x=edge, line={"dash": "dot", "width": 1, "color": theme.layout(kind)["font"]["color"]},
                             opacity=0.6, row=1, col=column)
    finish(figure, kind, 320)
    figure.update_layout(showlegend=False)
    figure.update_xaxes(title_text="ratio ρ = π/π_old", range=[left, right], tickangle=0)
    if wide > 0.12 * (right - left):  # else the bounds are too near each other for their words
        words = (f"{1 - clip_low:g}", "1", f"{1 + clip_high:g}") if wide > 0.03 else ("1−ε", "1", "1+ε")
        figure.update_xaxes(tickvals=[1 - clip_low, 1, 1 + clip_high], ticktext=words)
    else:
        figure.update_xaxes(nticks=4)
    figure.update_yaxes(title_text="L<sup>CLIP</sup> / |A|")
    return figure


def line_figure(line: dict[str, Any], kind: str = "light", kl_unit: str = "nats/token") -> go.Figure:
    """The surrogates and the mean KL along θ_old → θ_new and beyond."""
    colours = theme.palette(kind)
    figure = make_subplots(2, 1, shared_xaxes=True, row_heights=[0.62, 0.38], vertical_spacing=0.08)
    for key, name, colour, dash in (("cpi", "L<sup>CPI</sup>, unclipped", colours[1], "dash"),
                                    ("clip", "L<sup>CLIP</sup>, clipped", colours[0], "solid"),
                                    ("kl_penalised", "L<sup>KLPEN</sup>, unclipped − β KL", colours[2], "dot")):
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
    figure.update_yaxes(exponentformat="power", showexponent="last")  # 5n would be read as n tokens
    figure.update_yaxes(title_text="surrogate, advantage", row=1, col=1)
    figure.update_yaxes(title_text=f"KL, {kl_unit}", row=2, col=1)
    return figure


def finish(figure: go.Figure, kind: str, height: int) -> None:
    """The common look on every subplot."""
    layout = theme.layout(kind, height)
    x, y = layout.pop("xaxis"), layout.pop("yaxis")
    figure.update_layout(**layout)
    figure.update_xaxes(**x)
    figure.update_yaxes(**y)
    figure.update_annotations(font_size=13)
