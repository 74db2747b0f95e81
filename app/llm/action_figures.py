"""The effective action space as a figure, a sentence and a table. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any

import plotly.graph_objects as go

from app import theme
from app.llm.reward_figures import finished, name_end
from app.theme import number

DASHES = ("dash", "solid")  # the base, then the run's own checkpoint; where there is one model it is the base
BAND = 0.14
HEIGHT = 340
Rows = Sequence[dict[str, Any]]


def lines_of(found: dict[str, Any]) -> list[tuple[int, int]]:
    """The lines that say something: (place, k). Where the vocabulary has no more than k tokens the mass is 1."""
    size = min(column["vocabulary"] for column in found["columns"])
    return [(place, k) for place, k in enumerate(found["top"]) if k < size]


def mass_figure(found: dict[str, Any], titles: Sequence[str], kind: str) -> go.Figure:
    """Probability mass of the top k against the position, a colour per k: the base dashed, the run's policy solid.

    The band is the 95 % interval of the mean over completions.
    """
    figure, colours = go.Figure(), theme.palette(kind)
    columns = found["columns"]
    for place, k in lines_of(found):
        for column, title, dash in zip(columns, titles, DASHES[-len(columns):], strict=True):
            _line(figure, column["positions"], place, f"top {k}, {title}", colours[place], dash)
    longest = max((len(column["positions"]) for column in columns), default=1)
    for place, y in _ends(found):
        name_end(figure, longest, y, f"top {found['top'][place]}", colours[place])
    drawn = finished(figure, kind, "position of the token in its completion", "probability mass, 0 to 1",
                     {"range": [0.8, longest + 0.05], "dtick": max(1, longest // 12)}, {"range": [0, 1.03]}, right=62)
    return drawn.update_layout(height=HEIGHT)


def _line(figure: go.Figure, rows: Rows, place: int, name: str, colour: str, dash: str) -> None:
    """A line of means and the band of their intervals."""
    x = [position for position, _ in enumerate(rows, start=1)]
    red, green, blue = (int(colour[at:at + 2], 16) for at in (1, 3, 5))
    figure.add_scatter(x=[*x, *reversed(x)], y=[*(row["high"][place] for row in rows),
                                                *(row["low"][place] for row in reversed(rows))],
                       fill="toself", fillcolor=f"rgba({red},{green},{blue},{BAND})", line={"width": 0},
                       hoverinfo="skip", mode="lines")
    figure.add_scatter(x=x, y=[row["mass"][place] for row in rows], mode="lines+markers", name=name,
                       line={"color": colour, "width": 2, "dash": dash}, marker={"size": 4, "color": colour},
                       customdata=[[row["low"][place], row["high"][place], row["samples"]] for row in rows],
                       hovertemplate=f"{name}<br>position %{{x}}: %{{y:.3f}} (%{{customdata[0]:.3f}} to "
                                     "%{customdata[1]:.3f})<br>%{customdata[2]} completions<extra></extra>")


def _ends(found: dict[str, Any], apart: float = 0.055) -> Iterator[tuple[int, float]]:
    """Places of the names at the right: beside the ends of the lines that reach furthest, the policy's of two as
    long, and no two over each other."""
    rows: Rows = max((column["positions"] for column in reversed(found["columns"])), key=len, default=[])
    ceiling = 1.0 + apart
    for place, _ in reversed(lines_of(found)):
        if rows:
            ceiling = min(ceiling - apart, rows[-1]["mass"][place])
            yield place, ceiling


def words(found: dict[str, Any], titles: Sequence[str]) -> str:
    """The mass of the likeliest token before the first token and after it, for each model, in a sentence."""
    def said(column: dict[str, Any], title: str) -> str:
        masses = [row["mass"][0] for row in column["positions"]]
        later = [row["samples"] for row in column["positions"][1:]]
        mean = sum(mass * count for mass, count in zip(masses[1:], later, strict=True)) / sum(later) if later else None
        after = "" if mean is None else f", {number(mean, 2)} at the later ones"
        return f"{title}: {number(masses[0], 2)} at the first position{after}"
    parts = [said(column, title) for column, title in zip(found["columns"], titles, strict=True) if column["positions"]]
    return f"Mean probability of the likeliest token. {'. '.join(parts)}." if parts else (
        f"Fewer than {found['least']} completions were sampled, which is too few for a mean.")


def about(found: dict[str, Any]) -> str:
    """Description of the samples and the lines."""
    first = found["columns"][-1]
    size = first["vocabulary"]
    trivial = [f"{k}" for k in found["top"] if k >= size]
    left_out = (f" Top {' and '.join(trivial)} would be 1: the vocabulary has only {size} tokens." if trivial else
                f" The vocabulary has {size:,} tokens.")
    short = any(len(column["positions"]) < column["longest"] for column in found["columns"])
    cut = f" A line ends where fewer than {found['least']} completions are that long." if short else ""
    return (f"Estimated from {first['samples']:,} sampled completions of each model, each of another prompt, at "
            f"temperature {first['temperature']:g}; bands are 95 % bootstrap intervals of the mean. Dashed: the base. "
            f"Solid: the run's policy.{cut}{left_out}")


def table(found: dict[str, Any], titles: Sequence[str]) -> str:
    """The numbers of the figure as HTML: a row per model and position."""
    lines = lines_of(found)
    head = "".join(f"<th>{name}</th>" for name in ("Model", "Position", "Completions", *(f"Top {k}" for _, k in lines)))
    body = "".join(
        f"<tr><td>{html.escape(title)}</td><td>{position}</td><td>{row['samples']:,}</td>"
        + "".join(f"<td>{row['mass'][place]:.3f} ({row['low'][place]:.3f} to {row['high'][place]:.3f})</td>"
                  for place, _ in lines) + "</tr>"
        for column, title in zip(found["columns"], titles, strict=True)
        for position, row in enumerate(column["positions"], start=1))
    return (f'<div class="rl-scroll"><table class="rl-table"><thead><tr>{head}</tr></thead>'
            f'<tbody>{body}</tbody></table></div>')
