"""Rewards of stored completions and the scores of another judge: a chart over the steps, and a table. Pure."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from app import theme
from app.llm.reward_figures import finished, mark, name_end
from app.theme import number

COLUMNS = "reward", "score"
LONGEST = 600  # characters of a text in the table
BAND = 0.16  # opacity


def over_steps(found: Mapping[str, Any], at: int | None, kind: str) -> go.Figure:
    """Chart both means over the steps with 95 % bands. The reward is on the left axis; the judge's score is on the
    right axis if its unit differs. `at` is the earlier step that the page shows."""
    figure, steps = go.Figure(), found["steps"]
    apart = not alike(steps)
    for column, name in zip(COLUMNS, ("reward", found["name"]), strict=True):
        ink, axis = colour(column, kind), "y2" if apart and column == "score" else "y"
        x, means = [each["step"] for each in steps], [each[column]["mean"] for each in steps]
        whole = [each for each in steps if each[column]["low"] is not None]
        if len(whole) > 1:
            places = [each["step"] for each in whole]
            edges = [each[column]["high"] for each in whole] + [each[column]["low"] for each in reversed(whole)]
            figure.add_scatter(x=[*places, *reversed(places)], y=edges, fill="toself", mode="lines", line={"width": 0},
                               fillcolor=_faint(ink), hoverinfo="skip", yaxis=axis)
        figure.add_scatter(x=x, y=means, mode="lines+markers", name=name, yaxis=axis, marker={"size": 5, "color": ink},
                           line={"width": 2.5, "color": ink}, customdata=[each["n"] for each in steps],
                           hovertemplate=f"step %{{x}}<br>{html.escape(name)} %{{y:.3f}}<br>%{{customdata}} "
                                         "completions<extra></extra>")
    last = max(each["step"] for each in steps)
    mark(figure, at, kind)
    return _axes(_named(figure, found, apart, kind), found["name"], last, apart, kind)


def alike(steps: Sequence[Mapping[str, Any]]) -> bool:
    """True if both means lie from 0 to 1, so that one axis serves both."""
    return all(0 <= each[column]["mean"] <= 1 for each in steps for column in COLUMNS)


def colour(column: str, kind: str) -> str:
    """The reward is blue, the judge's score orange."""
    return {"reward": theme.POSITIVE, "score": theme.NEGATIVE}[column][kind]


def _faint(ink: str) -> str:
    red, green, blue = (int(ink[place:place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{BAND})"


def _named(figure: go.Figure, found: Mapping[str, Any], apart: bool, kind: str) -> go.Figure:
    """Label the ends of the curves; if two curves end at the same height, put one label above and one below."""
    end, last = found["steps"][-1], found["steps"][-1]["step"]
    ends = [end[column]["mean"] for column in COLUMNS]
    close = not apart and abs(ends[0] - ends[1]) < 0.08
    for column, name, y in zip(COLUMNS, ("reward", found["name"]), ends, strict=True):
        name_end(figure, last, y, f"<b>{html.escape(_short(name))}</b>", colour(column, kind))
        figure.layout.annotations[-1].update(yref="y2" if apart and column == "score" else "y",
                                             yshift=0 if not close else 9 if column == "reward" else -9)
    return figure


def _short(name: str) -> str:
    return {"the task's verifier": "verifier"}.get(name, name if len(name) <= 16 else f"{name[:15]}…")


def _axes(figure: go.Figure, name: str, last: int, apart: bool, kind: str) -> go.Figure:
    figure = finished(figure, kind, "step", "mean over the stored completions", {"range": [0, 1.02 * last]},
                      {} if apart else {"range": [-0.04, 1.06]}, right=104)
    if not apart:
        return figure
    base = {key: value for key, value in theme.layout(kind)["yaxis"].items() if key != "title"}
    inks = [colour(column, kind) for column in COLUMNS]
    return figure.update_layout(
        yaxis={"title": {"text": "reward", "font": {"color": inks[0]}, "standoff": 4}, "tickfont": {"color": inks[0]}},
        yaxis2={**base, "overlaying": "y", "side": "right", "showgrid": False, "zeroline": False,
                "title": {"text": html.escape(name), "font": {"color": inks[1]}}, "tickfont": {"color": inks[1]}})


def table(found: Mapping[str, Any], most: int) -> str:
    """Return the completions on which the two scores differ most, as HTML."""
    rows = "".join(
        f"<tr><td>{each['step']:,}</td><td>{each['times']:,}</td><td><b>{number(each['reward'], 3)}</b></td>"
        f"<td><b>{number(each['score'], 3)}</b></td><td>{_text(each['prompt'])}</td><td>{_text(each['text'])}</td></tr>"
        for each in found["apart"][:most])
    head = (f"<th>step</th><th>times</th><th>reward</th><th>{html.escape(found['name'])}</th><th>prompt</th>"
            "<th>completion</th>")
    return f'<div class="rl-scroll"><table class="rl-table"><tr>{head}</tr>{rows}</table></div>'


def _text(text: str) -> str:
    """Return the HTML of a text in a cell, with its line breaks; an empty text is marked as empty."""
    shown = text if len(text) <= LONGEST else f"{text[:LONGEST - 1]}…"
    return f'<code style="white-space:pre-wrap">{html.escape(shown)}</code>' if shown.strip() else "<i>empty</i>"
