"""Figures of a sweep's results by value. Pure."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import plotly.graph_objects as go

from app import theme
from app.charts import finish
from app.compare import wording
from app.compare.lines import outline
from app.compare.sweep.grid import Grid, Look, title
from app.status import STATES
from labcore.analysis.compare.best import Standing
from labcore.analysis.compare.groups import Group
from labcore.analysis.compare.statistics import Mean
from labcore.catalog.knob import Value
from labcore.catalog.metric import Metric
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.traces import Trace

Hollow = Mapping[str, str]  # label -> which of its runs did not finish, and at which steps they are: HTML
NO_HOLLOW: Hollow = MappingProxyType({})


def unfinished(groups: Sequence[Group]) -> dict[str, str]:
    """The groups with a run that did not finish: their values are not compared with the others."""
    def words(trace: Trace, spec: RunSpec) -> str:
        steps = trace.axes["step"]
        at = int(steps[-1]) if steps.size else 0
        return f"seed {spec.seed}: step {at} of {spec.steps}, {STATES[trace.state][1].lower()}"

    short = {group.label: [words(trace, trace.spec) for trace in group.traces
                           if trace.spec and trace.state != "finished"]
             for group in groups}
    return {label: "<br>".join(found) for label, found in short.items() if found}


def by_value(grid: Grid, groups: Sequence[Group], looks: Sequence[Look], stand: Standing, metric: Metric,
             kind: str, hollow: Hollow = NO_HOLLOW) -> go.Figure:
    """The result of each value: a line with its 95 % band, a map of two knobs, or a dot per group.

    The settings of `hollow` are drawn as open markers beside the line; in a map they have no colour.
    """
    figure = (_map if len(grid.knobs) == 2 else _curve if grid.numeric else _dots)(
        grid, groups, looks, stand, metric, kind, hollow)
    figure.update_layout(showlegend=False)
    return figure


def _cells(grid: Grid, groups: Sequence[Group], stand: Standing) -> dict[tuple[int, int], str]:
    """Cell -> the label of the first of its groups that has a number."""
    found = {cell: [groups[number].label for number in numbers if groups[number].label in stand.means]
             for cell, numbers in grid.cells.items()}
    return {cell: labels[0] for cell, labels in found.items() if labels}


def _marker(size: int, colour: str, hollow: bool) -> dict[str, Any]:
    return {"size": size, "color": colour, "symbol": "circle-open" if hollow else "circle",
            **({"line": {"width": 2}} if hollow else {})}


def _curve(grid: Grid, groups: Sequence[Group], looks: Sequence[Look], stand: Standing, metric: Metric,
           kind: str, hollow: Hollow) -> go.Figure:
    knob, cells = grid.knobs[0], _cells(grid, groups, stand)
    found = [(value, cells[cell]) for place, value in enumerate(grid.values[0])
             if (cell := divmod(place, grid.columns)) in cells]
    colour, x = theme.palette(kind)[0], [value for value, _ in found]
    whole, begun = ([(value, label) for value, label in found if (label in hollow) == open_] for open_ in (False, True))
    figure = go.Figure()
    known = [(float(value), stand.means[label]) for value, label in whole]
    banded = [(value, mean.low, mean.high) for value, mean in known if mean.low is not None and mean.high is not None]
    if banded:
        area = outline(*zip(*banded, strict=True))
        figure.add_scatter(**area, mode="lines", fill="toself", fillcolor=colour, opacity=0.18, line={"width": 0},
                           hoverinfo="skip")
    # A single seed would fill the open marker.
    seeds = [(value, each) for value, label in found for each in stand.values[label]
             if label not in hollow or len(stand.values[label]) > 1]
    figure.add_scatter(x=[value for value, _ in seeds], mode="markers", y=[each for _, each in seeds], hoverinfo="skip",
                       marker={"size": 6, "color": colour, "opacity": 0.35})
    for points, open_ in ((whole, False), (begun, True)):
        if points:
            means = [stand.means[label] for _, label in points]
            figure.add_scatter(x=[value for value, _ in points], y=[mean.mean for mean in means],
                               mode="markers" if open_ else "lines+markers", marker=_marker(9, colour, open_),
                               line={"color": colour, "width": 2},
                               text=_said(means, metric, [hollow.get(label, "") for _, label in points]),
                               hovertemplate=f"{html.escape(knob.name)} %{{x}}<br>%{{text}}<extra></extra>")
    finish(figure, kind, 300)
    log = knob.scale == "log" and all(float(value) > 0 for value in x)
    figure.update_xaxes(title_text=title(knob), tickvals=x, ticktext=[f"{value:g}" for value in x],
                        type="log" if log else "linear")
    _value_axis(figure, metric, "y")
    return figure


def _map(grid: Grid, groups: Sequence[Group], looks: Sequence[Look], stand: Standing, metric: Metric,
         kind: str, hollow: Hollow) -> go.Figure:
    cells = _cells(grid, groups, stand)
    means = [[stand.means.get(label) if (label := cells.get((row, column), "")) not in hollow else None
              for column in range(grid.columns)] for row in range(grid.rows)]
    found = [mean.mean for line in means for mean in line if mean] or [0.0]
    middle = min(found) + 0.45 * (max(found) - min(found))

    def bright(mean: Mean) -> bool:
        return mean.mean < middle if metric.better == "lower" else mean.mean > middle

    figure = go.Figure(go.Heatmap(
        z=[[mean and metric.on_page(mean.mean) for mean in line] for line in means],
        text=[[_coloured(_cell(mean, metric), "#14171B" if mean and bright(mean) else "#FFFFFF") for mean in line]
              for line in means],
        x=[_tick(value) for value in grid.values[0]], y=[_tick(value) for value in grid.values[1]],
        texttemplate="%{text}", textfont={"size": 12}, colorscale="Viridis", xgap=2, ygap=2, hoverongaps=False,
        reversescale=metric.better == "lower", hoverinfo="skip",
        colorbar={"title": {"text": metric.page_unit, "side": "right", "font": {"size": 13}}, "thickness": 12,
                  "outlinewidth": 0}))
    begun = [(cell, label) for cell, label in cells.items() if label in hollow]
    if begun:
        figure.add_scatter(
            x=[_tick(grid.values[0][column]) for (_, column), _ in begun], mode="text",
            y=[_tick(grid.values[1][row]) for (row, _), _ in begun], textfont={"size": 12},
            text=[f"○ {_cell(stand.means[label], metric)}" for _, label in begun],
            hovertext=_said([stand.means[label] for _, label in begun], metric, [hollow[label] for _, label in begun]),
            hovertemplate="%{hovertext}<extra></extra>")
    finish(figure, kind, max(300, 52 * grid.rows + 90))
    figure.update_layout(margin_t=12)
    figure.update_xaxes(title_text=title(grid.knobs[0]), type="category")
    figure.update_yaxes(title_text=title(grid.knobs[1]), type="category", showgrid=False, autorange="reversed")
    return figure


def _coloured(text: str, colour: str) -> str:
    return f'<span style="color:{colour}">{text}</span>' if text else ""


def _dots(grid: Grid, groups: Sequence[Group], looks: Sequence[Look], stand: Standing, metric: Metric,
          kind: str, hollow: Hollow) -> go.Figure:
    figure, named = go.Figure(), {look["label"]: look for look in looks}
    order = sorted(stand.means, key=lambda label: stand.means[label].mean, reverse=metric.better == "lower")
    names = {label: _tick(_value(grid, groups, label)) if grid.knobs else named[label]["short"] for label in order}
    for label in order:
        mean, colour, name = stand.means[label], named[label]["colour"][kind == "dark"], names[label]
        bars = {} if mean.low is None or mean.high is None else {"error_x": {
            "type": "data", "symmetric": False, "array": [mean.high - mean.mean],
            "arrayminus": [mean.mean - mean.low], "color": colour, "thickness": 2, "width": 5}}
        figure.add_scatter(x=[mean.mean], y=[name], mode="markers", **bars,
                           marker=_marker(11, colour, label in hollow),
                           text=_said([mean], metric, [hollow.get(label, "")]),
                           hovertemplate=f"{html.escape(name)}: %{{text}}<extra></extra>")
        figure.add_scatter(x=stand.values[label], y=[name] * len(stand.values[label]), mode="markers",
                           hoverinfo="skip", marker={"size": 15, "symbol": "line-ns-open", "color": colour})
    finish(figure, kind, max(220, 34 * len(order) + 80))
    figure.update_yaxes(type="category", showgrid=False, title_text=title(grid.knobs[0]) if grid.knobs else "")
    figure.update_xaxes(showgrid=True)
    _value_axis(figure, metric, "x")
    return figure


def _value(grid: Grid, groups: Sequence[Group], label: str) -> Value:
    found: Value = next(group.config[grid.knobs[0].key] for group in groups if group.label == label)
    return found


def _value_axis(figure: go.Figure, metric: Metric, which: str) -> None:
    ends = theme.RATES if metric.share else {}
    (figure.update_xaxes if which == "x" else figure.update_yaxes)(title_text=metric.page_axis, **ends)
    figure.update_layout(margin_t=12)


def _tick(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else "on" if value is True else "off" if value is False else \
        str(value)


def _cell(mean: Any, metric: Metric) -> str:
    if mean is None:
        return ""
    said = theme.metric_text(metric, mean.mean, exact=True)
    if mean.low is None:
        return said
    low, high = (theme.metric_text(metric, end, exact=True) for end in (mean.low, mean.high))
    return f"{said}<br>[{low}, {high}]"


def _said(means: Sequence[Any], metric: Metric, short: Sequence[str]) -> list[str]:
    """The tooltips of means; `short` names the runs that did not finish."""
    return [f"{_cell(mean, metric).replace('<br>', ' ')}, {mean.count} seed{'s' if mean.count > 1 else ''}"
            + wording.not_finished(words) for mean, words in zip(means, short, strict=True)]
