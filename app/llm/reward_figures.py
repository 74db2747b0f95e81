"""Figures of a reward model: accuracy, calibration, scores against gold, margins. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from typing import Any

import plotly.graph_objects as go

from app import theme
from app.charts import finish
from app.theme import number
from labcore.catalog.amounts import percent
from labcore.runs.store.rows import Step

HEIGHT = 264
BINS = 24  # of the margins
CHANCE = 0.5
BESIDE = 0.008  # gold reward
Pairs = Sequence[Sequence[float]]  # [chosen, rejected] of each pair


def accuracy_figure(steps: Sequence[Step], at: int | None, gold: float | None, kind: str) -> go.Figure:
    """The share of pairs whose chosen side scores higher, over the steps, beside chance and what gold itself reaches.

    `at` is the earlier step that the page shows, `gold` the accuracy of the task's own score on the held-out pairs.
    """
    colours, figure = theme.palette(kind), go.Figure()
    last = steps[-1].step if steps else 1
    for key, name, width, opacity in (("accuracy", "batch", 1, 0.35), ("eval_accuracy", "held out", 2.5, 1)):
        points = [(step.step, step.metrics[key]) for step in steps if key in step.metrics]
        if points:
            x, y = zip(*points, strict=True)
            figure.add_scatter(x=x, y=y, mode="lines", name=name, opacity=opacity,
                               line={"color": colours[0], "width": width},
                               hovertemplate=f"step %{{x}}<br>{name} %{{y:.3f}}<extra></extra>")
            if key == "eval_accuracy":
                name_end(figure, last, y[-1], name, colours[0])
    level(figure, CHANCE, "chance", kind, above=False)
    if gold is not None:
        level(figure, gold, "gold score", kind, above=True)
    mark(figure, at, kind)
    return finished(figure, kind, "step", "share of pairs", {"range": [0, last]},
                    {"range": [0.35, 1.02], "tickvals": [0.5, 0.75, 1]}, right=62)


def calibration_figure(bins: Sequence[dict[str, float]], kind: str) -> go.Figure:
    """Predicted probability of the likelier side against the share of pairs that were chosen so; the area of a point
    is its number of pairs, its bar the standard error of the share."""
    figure, colour = go.Figure(), theme.palette(kind)[0]
    figure.add_scatter(x=[0.5, 1], y=[0.5, 1], mode="lines", hoverinfo="skip",
                       line={"color": theme.layout(kind)["font"]["color"], "width": 1, "dash": "dash"}, opacity=0.6)
    most = max((row["pairs"] for row in bins), default=1)
    errors = [sqrt(row["right"] * (1 - row["right"]) / row["pairs"]) for row in bins]
    figure.add_scatter(x=[row["predicted"] for row in bins], y=[row["right"] for row in bins], mode="markers+lines",
                       line={"color": colour, "width": 1.5}, error_y={"array": errors, "thickness": 1, "width": 3},
                       marker={"color": colour, "size": [5 + 13 * sqrt(row["pairs"] / most) for row in bins],
                               "opacity": 0.85}, customdata=[row["pairs"] for row in bins],
                       hovertemplate="predicted %{x:.2f}<br>observed %{y:.2f}<br>%{customdata:.0f} pairs"
                                     "<extra></extra>")
    for row, error in zip(bins, errors, strict=True):
        figure.add_annotation(x=row["predicted"], y=row["right"] + error, text=f"{row['pairs']:.0f}", yanchor="bottom",
                              showarrow=False, yshift=4)
    low = min([0.45, *(row["right"] - error - 0.03 for row, error in zip(bins, errors, strict=True))])
    return finished(figure, kind, "predicted probability of the likelier side", "observed share",
                    {"range": [0.48, 1.02]}, {"range": [low, 1.1]})


def gold_figure(scores: Pairs, gold: Pairs, kind: str) -> go.Figure:
    """The scores of held-out completions against the task's own."""
    figure, colours = go.Figure(), (theme.POSITIVE[kind], theme.NEGATIVE[kind])
    for side, (name, colour) in enumerate(zip(("chosen", "rejected"), colours, strict=True)):
        apart = BESIDE * (2 * side - 1)  # gold has few values: one side beside the other
        figure.add_scatter(x=[pair[side] + apart for pair in gold], y=[pair[side] for pair in scores], mode="markers",
                           name=name, marker={"color": colour, "size": 6, "opacity": 0.45},
                           hovertemplate=f"{name}<br>gold %{{customdata:.2f}}<br>score %{{y:.2f}}<extra></extra>",
                           customdata=[pair[side] for pair in gold])
    figure = finished(figure, kind, "gold score", "predicted reward", {}, {})
    return figure.update_layout(showlegend=True, legend={"y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"})


def margin_figure(scores: Pairs, kind: str) -> go.Figure:
    """Histogram of the margins of held-out pairs; below 0 the rejected side scores higher."""
    margins = [chosen - rejected for chosen, rejected in scores]
    figure, reach = go.Figure(), max(map(abs, margins), default=0.0) or 1.0
    width = 2 * reach / BINS
    for side, name, colour in ((1, "right", theme.POSITIVE[kind]), (-1, "wrong", theme.NEGATIVE[kind])):
        sizes = [abs(margin) for margin in margins if (margin >= 0) == (side > 0)]
        places = [min(int(size / width), BINS // 2 - 1) for size in sizes]
        figure.add_bar(x=[side * (place + 0.5) * width for place in range(BINS // 2)],
                       y=[places.count(place) for place in range(BINS // 2)], width=width * 0.92,
                       marker={"color": colour, "line": {"width": 0}},
                       hovertemplate=f"margin %{{x:.2f}}<br>%{{y}} pairs, {name}<extra></extra>")
        figure.add_annotation(x=side * reach, y=1.0, yref="paper", xanchor="right" if side > 0 else "left",
                              text=f"{name} {len(sizes):,}", showarrow=False, font={"color": colour, "size": 13})
    return finished(figure, kind, "margin r<sub>w</sub> − r<sub>l</sub>, reward", "pairs",
                    {"range": [-1.03 * reach, 1.03 * reach]}, {})


def agreement(pairs: Pairs) -> float | None:
    """The share of pairs whose chosen side is higher, a tie as half; None of none."""
    won = sum((chosen > rejected) + (chosen == rejected) / 2 for chosen, rejected in pairs)
    return won / len(pairs) if pairs else None


def words(samples: dict[str, Any]) -> str:
    """The accuracy on held-out pairs, in a sentence or two."""
    held_out = samples["held_out"]
    count, found = len(held_out["scores"]), agreement(held_out["scores"]) or 0.0
    said = f"On {count:,} held-out pairs the chosen side scores higher in {percent(found)}; chance is 50 %."
    best = agreement(held_out.get("gold", []))
    if best is None or best == 1:
        return said
    return f"{said} The labels are noisy: the gold score itself agrees with {percent(best)} of them."


# ---- what these figures share ------------------------------------------------------------------------------------


def name_end(figure: go.Figure, x: float, y: float, text: str, colour: str) -> None:
    """The name of a curve at its right end."""
    figure.add_annotation(x=x, y=y, text=text, xanchor="left", xshift=5, showarrow=False, font={"color": colour})


def name_ends(figure: go.Figure, x: float, ends: Sequence[tuple[float, str, str]], apart: float) -> None:
    """Write the names of curves at their right ends. Each end is a height, a name and a colour. Names keep at least
    `apart` from each other, so that none covers another."""
    low = -inf
    for y, text, colour in sorted(ends):
        low = max(y, low + apart)
        name_end(figure, x, low, text, colour)


def level(figure: go.Figure, y: float, text: str, kind: str, above: bool) -> None:
    """A dashed horizontal with its name above or below it, at the left."""
    ink = theme.layout(kind)["font"]["color"]
    figure.add_hline(y=y, line={"dash": "dash", "width": 1, "color": ink}, opacity=0.6)
    figure.add_annotation(x=0.02, xref="paper", y=y, text=f"{text} {number(y, 2)}", xanchor="left", showarrow=False,
                          yanchor="bottom" if above else "top", font={"color": ink})


def mark(figure: go.Figure, at: float | None, kind: str) -> None:
    """The step that the page shows, where it is an earlier one."""
    if at is not None:
        figure.add_vline(x=at, line={"width": 1.5, "color": theme.layout(kind)["font"]["color"]}, opacity=0.55)


def finished(figure: go.Figure, kind: str, x: str, y: str, across: dict[str, Any], up: dict[str, Any],
             right: int = 8) -> go.Figure:
    """The common look, the axes with their names, and room for names at the ends of curves."""
    finish(figure, kind, HEIGHT)
    figure.update_layout(showlegend=False, margin={"l": 8, "r": right, "t": 14, "b": 8}, bargap=0)
    figure.update_xaxes(title={"text": x, "standoff": 6}, zeroline=False, **across)
    figure.update_yaxes(title={"text": y, "standoff": 4}, zeroline=False, **up)
    return figure
