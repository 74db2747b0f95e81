"""The pictures of a large sweep: the effect of each knob, two knobs together, and curves from the best to the worst.
Pure.

Plain data, as of the small charts: that is sooner made than Plotly's own objects.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from app import theme
from app.compare.lines import Lines
from app.compare.sweep.grid import drawn
from app.compare.sweep.large.standing import value_words
from labcore.analysis.compare.ranking import Axis, Effect, Values
from labcore.catalog.amounts import percent
from labcore.catalog.knob import Value
from labcore.catalog.metric import Metric
from labcore.runs.store.rows import RunRow

MIDDLE = ("#69727D", "#9AA4AF")  # of the median setting, light and dark
Point = tuple[Sequence[Value | None], float]  # a setting's values, and the mean of its runs
LABELLED = 100  # cells of a map that have room for their numbers


def knobs(found: Sequence[Effect], points: Sequence[Point], axes: Sequence[Axis], metric: Metric,
          kind: str) -> dict[str, Any]:
    """A small chart for each axis, what explains most first: the settings' means, and their mean at each value."""
    layout = theme.layout(kind, 280)
    x, y = layout.pop("xaxis"), layout.pop("yaxis")
    colour, faint = theme.palette(kind)[0], MIDDLE[kind == "dark"]
    layout |= {"showlegend": False, "annotations": [], "margin": {"l": 56, "r": 8, "t": 44, "b": 44}}
    traces: list[dict[str, Any]] = []
    for place, effect in enumerate(found):
        number, low, high = str(place + 1) if place else "", place / len(found), (place + 1) / len(found)
        ticks = [_text(effect.axis, value) for value in effect.axis.values]
        at, which = {value: index for index, value in enumerate(effect.axis.values)}, axes.index(effect.axis)
        layout[f"xaxis{number}"] = x | {
            "domain": [low + 0.012 * bool(place), high - 0.012], "anchor": f"y{number}", "automargin": False,
            "tickvals": _some(list(range(len(ticks)))), "ticktext": _some(ticks),
            "range": [-0.5, len(ticks) - 0.5], "zeroline": False}
        layout[f"yaxis{number}"] = y | {
            "anchor": f"x{number}", "automargin": False, "showticklabels": not place, "zeroline": False,
            **({"matches": "y"} if place else {}), "title": {"text": "" if place else metric.page_unit or metric.label,
                                                             "standoff": 4, "font": {"size": 13}}}
        layout["annotations"].append({
            "text": f"<b>{html.escape(effect.axis.title)}</b><br>{share_words(effect)}",
            "showarrow": False, "x": (low + high) / 2, "y": 1, "xref": "paper", "yref": "paper", "xanchor": "center",
            "yanchor": "bottom", "font": {"size": 13}})
        ends = {"type": "scatter", "xaxis": f"x{number}", "yaxis": f"y{number}"}
        traces += [
            ends | {"mode": "markers", "hoverinfo": "skip", "marker": {"size": 5, "color": faint, "opacity": 0.5},
                    "x": [at[values[which]] for values, _ in points],
                    "y": [metric.on_page(value) for _, value in points]},
            ends | {"mode": "lines+markers", "line": {"color": colour, "width": 2}, "marker": {"size": 8},
                    "x": [at[value] for value in effect.means], "y": [*map(metric.on_page, effect.means.values())],
                    "text": [_text(effect.axis, value, True) for value in effect.means],
                    "hovertemplate": f"%{{text}}: {theme.hover_text(metric, 'y')}<extra></extra>"}]
        if effect.axis.knob is None or effect.axis.knob.type not in (int, float):
            traces[-1]["mode"] = "markers"  # there is nothing between two words
    return {"data": traces, "layout": layout}


def share_words(effect: Effect) -> str:
    """The share of the variance that an axis explains, in words; empty if it is unknown."""
    return "" if effect.share is None else f"{percent(effect.share)} of the variance"


def _text(axis: Axis, value: Value | None, named: bool = False) -> str:
    """A value as Plotly shows it as it is: a text of the user's may look like markup."""
    return html.escape(value_words(axis, value, named))


def _some(ticks: list[Any], most: int = 8) -> list[Any]:
    """So many of the ticks that they do not touch."""
    return ticks[::-(-len(ticks) // most)]


def points_of(rows: Sequence[RunRow], axes: Sequence[Axis], values: Values) -> list[Point]:
    """The settings that have a value."""
    found: dict[tuple[Value | None, ...], list[float]] = {}
    for row in rows:
        if row.id in values:
            found.setdefault(tuple(axis.of(row) for axis in axes), []).append(values[row.id])
    return [(point, fmean(each)) for point, each in found.items()]


def two_knobs(across: Axis, up: Axis, points: Sequence[Point], axes: Sequence[Axis], metric: Metric,
              kind: str) -> dict[str, Any]:
    """A map of two axes: in each cell the mean of its settings, whatever the other knobs are."""
    cells: dict[tuple[Value | None, Value | None], list[float]] = {}
    for point, value in points:
        cells.setdefault((point[axes.index(across)], point[axes.index(up)]), []).append(value)
    z = [[fmean(cells[x, y]) if (x, y) in cells else None for x in across.values] for y in up.values]
    layout = theme.layout(kind, 280)
    layout["xaxis"] |= {"title": {"text": _title(across), "font": {"size": 13}}, "type": "category"}
    layout["yaxis"] |= {"title": {"text": _title(up), "font": {"size": 13}}, "type": "category", "showgrid": False}
    layout |= {"margin": {"l": 8, "r": 8, "t": 14, "b": 8}}
    heat = {"type": "heatmap", "z": [[value and metric.on_page(value) for value in line] for line in z],
            "x": [_text(across, value) for value in across.values],
            "y": [_text(up, value) for value in up.values], "colorscale": "Viridis", "xgap": 2, "ygap": 2,
            "reversescale": metric.better == "lower", "hoverongaps": False,
            "hovertemplate": f"{html.escape(across.title)} %{{x}}<br>{html.escape(up.title)} %{{y}}<br>"
                             f"{theme.hover_text(metric, 'z')}<extra></extra>",
            "colorbar": {"title": {"text": metric.page_unit, "side": "right", "font": {"size": 13}}, "thickness": 12,
                         "outlinewidth": 0}}
    if len(across.values) * len(up.values) <= LABELLED:
        heat |= {"text": [[_inked(value, z, metric) for value in line] for line in z], "texttemplate": "%{text}",
                 "textfont": {"size": 12}}
    return {"data": [heat], "layout": layout}


def _inked(value: float | None, z: Sequence[Sequence[float | None]], metric: Metric) -> str:
    """A cell's number, dark on a light ground: Viridis is light at its upper end."""
    if value is None:
        return ""
    there = [each for line in z for each in line if each is not None]
    share = (value - min(there)) / ((max(there) - min(there)) or 1)
    light = share < 0.55 if metric.better == "lower" else share > 0.45
    text = theme.metric_text(metric, value, exact=True)
    return f'<span style="color:{"#14171B" if light else "#FFFFFF"}">{text}</span>'


def _title(axis: Axis) -> str:
    return html.escape(axis.title) + (f", {axis.knob.unit}" if axis.knob and axis.knob.unit else "")


def curves(named: Sequence[str], lines: Sequence[Lines], colours: Sequence[Sequence[str]], metric: Metric,
           kind: str) -> dict[str, Any]:
    """The means of some settings with their bands; of one seed there is no band."""
    layout = theme.layout(kind, 320)
    layout["xaxis"] |= {"title": {"text": "steps", "font": {"size": 13}}, "rangemode": "tozero"}
    layout["yaxis"] |= {"title": {"text": metric.page_axis, "font": {"size": 13}}, "zeroline": False,
                        **(theme.RATES if metric.share else {})}
    layout |= {"margin": {"l": 8, "r": 8, "t": 10, "b": 8},
               "legend": layout["legend"] | {"y": 1.02, "yanchor": "bottom"}}
    traces: list[dict[str, Any]] = []
    for name, found, colour in zip(named, lines, colours, strict=True):
        look: Mapping[str, Any] = {"short": name, "colour": colour}
        traces += drawn(look, found, metric, kind)
        heads = [trace for trace in traces if trace["name"] == html.escape(name) and trace["hoverinfo"] == "all"]
        if heads:
            heads[0]["showlegend"] = True
    return {"data": traces, "layout": layout}
