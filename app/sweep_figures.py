"""The figures of a sweep: small charts beside each other, what came of each value, and reward against KL. Pure."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app import theme
from app.charts import finish
from app.compare_lines import Lines
from app.sweep_grid import Grid, title, words
from labcore.catalog.knob import Value
from labcore.catalog.metrics import METRICS, Metric
from labcore.compare.best import Standing
from labcore.compare.frontier import Point
from labcore.compare.table import Group

Look = Mapping[str, Any]  # of a group: label, short, note, colour by theme, dash
ROW, TALLEST = 150, 640  # pixels of a row of small charts, and of all of them


def heads(grid: Grid, looks: Sequence[Look]) -> dict[tuple[int, int], str]:
    """What stands above each small chart: its value, or its group."""
    if len(grid.knobs) == 2:
        return {}
    if grid.knobs:
        return {divmod(place, grid.columns): words(grid.knobs[0], value) for place, value in enumerate(grid.values[0])}
    return {cell: looks[numbers[0]]["short"] for cell, numbers in grid.cells.items()}


def common_note(looks: Sequence[Look]) -> str:
    """What all of the groups rest on, such as "3 seeds": said once, and not on each chart."""
    notes = {look["note"] for look in looks}
    return notes.pop() if len(notes) == 1 else ""


def multiples(grid: Grid, looks: Sequence[Look], lines: Mapping[int, Lines], metric: Metric, axis: str,
              kind: str) -> go.Figure:
    """One small chart per cell, on shared axes: each seed thin, their mean with its band. `lines` by group."""
    above, usual = heads(grid, looks), common_note(looks)
    notes = {cell: ", ".join(looks[number]["note"] for number in numbers if looks[number]["note"] != usual)
             for cell, numbers in grid.cells.items()}
    titles = ["<br>".join(filter(None, (f"<b>{html.escape(above[cell])}</b>" if cell in above else "",
                                       html.escape(notes.get(cell, "")))))
              for cell in ((row, column) for row in range(grid.rows) for column in range(grid.columns))]
    two = len(grid.knobs) == 2
    height = min(max(ROW * grid.rows + 90, 280), max(TALLEST, 90 * grid.rows))
    figure = make_subplots(
        grid.rows, grid.columns, shared_xaxes="all", shared_yaxes="all", subplot_titles=titles,
        column_titles=_bold(grid, 0) if two else None, row_titles=_bold(grid, 1) if two else None,
        horizontal_spacing=0.018, vertical_spacing=min(0.16, 34 / height))
    for (row, column), numbers in grid.cells.items():
        figure.add_scatter(x=[], y=[], row=row + 1, col=column + 1)  # a chart without lines keeps its axes
        for number in numbers:
            for line in _traces(looks[number], lines.get(number, {}), kind):
                figure.add_trace(line, row + 1, column + 1)
    finish(figure, kind, height)
    top = 44 if any("<br>" in each for each in titles) else 28
    figure.update_layout(showlegend=False, margin={"l": 56, "r": 28 if two else 16, "t": top, "b": 44},
                         hovermode="closest")
    figure.update_xaxes(automargin=False, title_standoff=4, rangemode="tozero", nticks=4)
    figure.update_yaxes(automargin=False, nticks=5, **_range(metric, lines))
    figure.update_xaxes(title_text=axis, row=grid.rows)
    figure.update_yaxes(title_text=metric.unit or metric.label, col=1, title_standoff=2)
    return figure


def _bold(grid: Grid, axis: int) -> list[str]:
    return [f"<b>{html.escape(words(grid.knobs[axis], value))}</b>" for value in grid.values[axis]]


def _traces(look: Look, lines: Lines, kind: str) -> list[go.Scatter]:
    """Band, seeds, mean: as on the other charts of a comparison."""
    colour, found = look["colour"][kind == "dark"], []
    for line in sorted(lines.values(), key=lambda line: ("band", "seed", "raw", "line", "root").index(line["kind"])):
        base = {"x": line["x"], "showlegend": False, "name": look["label"], "hoverinfo": "skip"}
        if line["kind"] == "band":
            found.append(go.Scatter(base | {
                "x": [*line["x"], *line["x"][::-1]], "y": [*line["high"], *line["low"][::-1]], "mode": "lines",
                "fill": "toself", "fillcolor": colour, "opacity": 0.18, "line": {"width": 0}}))
        elif line["kind"] != "root":
            main = line["kind"] == "line"
            told = {"hoverinfo": None, "hovertemplate": f"%{{y:.3~f}}<extra>{html.escape(look['short'])}</extra>"}
            found.append(go.Scatter(base | {
                "y": line["y"], "mode": "lines+markers" if len(line["x"]) == 1 else "lines",
                "opacity": 1 if main else 0.3, "line": {"color": colour, "width": 1.9 if main else 1},
                **(told if main else {})}))
    return found


def _range(metric: Metric, lines: Mapping[int, Lines]) -> dict[str, Any]:
    """The shared vertical axis: a share from 0 to 1; decades where a KL spans them."""
    if metric.scale == "rate":
        return {"range": [-0.03, 1.03], "tickvals": [0, 0.5, 1]}
    values = [value for found in lines.values() for line in found.values() for value in line.get("y", [])]
    if metric.scale == "symlog" and values and min(values) > 0 and max(values) > 100 * min(values):
        return {"type": "log", "exponentformat": "power"}
    return {}


def by_value(grid: Grid, groups: Sequence[Group], looks: Sequence[Look], stand: Standing, metric: Metric,
             kind: str) -> go.Figure:
    """What came of each value: a line with its 95 % band, a map of two knobs, or a dot per group."""
    figure = (_map if len(grid.knobs) == 2 else _curve if grid.numeric else _dots)(
        grid, groups, looks, stand, metric, kind)
    figure.update_layout(showlegend=False)
    return figure


def _cells(grid: Grid, groups: Sequence[Group], stand: Standing) -> dict[tuple[int, int], str]:
    """Cell -> the label of the first of its groups that has a number."""
    found = {cell: [groups[number].label for number in numbers if groups[number].label in stand.means]
             for cell, numbers in grid.cells.items()}
    return {cell: labels[0] for cell, labels in found.items() if labels}


def _curve(grid: Grid, groups: Sequence[Group], looks: Sequence[Look], stand: Standing, metric: Metric,
           kind: str) -> go.Figure:
    knob, cells = grid.knobs[0], _cells(grid, groups, stand)
    found = [(value, cells[cell]) for place, value in enumerate(grid.values[0])
             if (cell := divmod(place, grid.columns)) in cells]
    colour, x = theme.palette(kind)[0], [value for value, _ in found]
    means = [stand.means[label] for _, label in found]
    figure = go.Figure()
    banded = [(value, mean) for value, mean in zip(x, means, strict=True) if mean.low is not None]
    if banded:
        figure.add_scatter(x=[value for value, _ in banded] + [value for value, _ in banded[::-1]],
                           y=[mean.high for _, mean in banded] + [mean.low for _, mean in banded[::-1]], mode="lines",
                           fill="toself", fillcolor=colour, opacity=0.18, line={"width": 0}, hoverinfo="skip")
    figure.add_scatter(x=[value for value, label in found for _ in stand.values[label]], mode="markers",
                       y=[each for _, label in found for each in stand.values[label]], hoverinfo="skip",
                       marker={"size": 6, "color": colour, "opacity": 0.35})
    figure.add_scatter(x=x, y=[mean.mean for mean in means], mode="lines+markers", text=_said(means, metric),
                       hovertemplate=f"{html.escape(knob.key)} %{{x}}<br>%{{text}}<extra></extra>",
                       line={"color": colour, "width": 2}, marker={"size": 9, "color": colour})
    finish(figure, kind, 300)
    log = knob.scale == "log" and all(value > 0 for value in x)
    figure.update_xaxes(title_text=title(knob), tickvals=x, ticktext=[f"{value:g}" for value in x],
                        type="log" if log else "linear")
    _value_axis(figure, metric, "y")
    return figure


def _map(grid: Grid, groups: Sequence[Group], looks: Sequence[Look], stand: Standing, metric: Metric,
         kind: str) -> go.Figure:
    cells = _cells(grid, groups, stand)
    means = [[stand.means.get(cells.get((row, column), "")) for column in range(grid.columns)]
             for row in range(grid.rows)]
    figure = go.Figure(go.Heatmap(
        z=[[mean and mean.mean for mean in line] for line in means],
        text=[[_cell(mean, metric) for mean in line] for line in means],
        x=[_tick(value) for value in grid.values[0]], y=[_tick(value) for value in grid.values[1]],
        texttemplate="%{text}", textfont={"size": 12}, colorscale="Viridis", xgap=2, ygap=2, hoverongaps=False,
        reversescale=metric.better == "lower", hovertemplate="%{text}<extra></extra>",
        colorbar={"title": {"text": metric.unit, "side": "right"}, "thickness": 12, "outlinewidth": 0}))
    finish(figure, kind, max(300, 52 * grid.rows + 90))
    figure.update_xaxes(title_text=title(grid.knobs[0]), type="category")
    figure.update_yaxes(title_text=title(grid.knobs[1]), type="category", showgrid=False, autorange="reversed")
    return figure


def _dots(grid: Grid, groups: Sequence[Group], looks: Sequence[Look], stand: Standing, metric: Metric,
          kind: str) -> go.Figure:
    figure, named = go.Figure(), {look["label"]: look for look in looks}
    order = sorted(stand.means, key=lambda label: stand.means[label].mean, reverse=metric.better == "lower")
    names = {label: _tick(_value(grid, groups, label)) if grid.knobs else named[label]["short"] for label in order}
    for label in order:
        mean, colour, name = stand.means[label], named[label]["colour"][kind == "dark"], names[label]
        figure.add_scatter(x=stand.values[label], y=[name] * len(stand.values[label]), mode="markers",
                           hoverinfo="skip", marker={"size": 6, "color": colour, "opacity": 0.4})
        bars = {} if mean.low is None else {"error_x": {
            "type": "data", "symmetric": False, "array": [mean.high - mean.mean],
            "arrayminus": [mean.mean - mean.low], "color": colour, "thickness": 2, "width": 5}}
        figure.add_scatter(x=[mean.mean], y=[name], mode="markers", marker={"size": 11, "color": colour}, **bars,
                           text=_said([mean], metric), hovertemplate=f"{html.escape(name)}: %{{text}}<extra></extra>")
    finish(figure, kind, max(220, 34 * len(order) + 80))
    figure.update_yaxes(type="category", showgrid=False, title_text=title(grid.knobs[0]) if grid.knobs else "")
    figure.update_xaxes(showgrid=True)
    _value_axis(figure, metric, "x")
    return figure


def _value(grid: Grid, groups: Sequence[Group], label: str) -> Value:
    return next(group.config[grid.knobs[0].key] for group in groups if group.label == label)


def _value_axis(figure: go.Figure, metric: Metric, which: str) -> None:
    told = metric.label + (f", {metric.unit}" if metric.unit and metric.unit != metric.label.lower() else "")
    ends = {"range": [-0.03, 1.03]} if metric.scale == "rate" else {}
    (figure.update_xaxes if which == "x" else figure.update_yaxes)(title_text=told, **ends)
    figure.update_layout(margin_t=12)


def _tick(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else "on" if value is True else "off" if value is False else \
        str(value)


def _cell(mean: Any, metric: Metric) -> str:
    if mean is None:
        return ""
    said = theme.number(mean.mean, metric.digits)
    if mean.low is None:
        return said
    return f"{said}<br>[{theme.number(mean.low, metric.digits)}, {theme.number(mean.high, metric.digits)}]"


def _said(means: Sequence[Any], metric: Metric) -> list[str]:
    return [f"{_cell(mean, metric).replace('<br>', ' ')}, {mean.count} seed{'s' if mean.count > 1 else ''}"
            for mean in means]


def front(points: Sequence[Point], looks: Sequence[Look], names: Mapping[str, str], reward: str, cost: str,
          kind: str) -> go.Figure:
    """Reward against KL: where each group ended, and the front that no other one beats at both."""
    named, figure = {look["label"]: look for look in looks}, go.Figure()
    ahead = sorted((point for point in points if point.on_front), key=lambda point: point.cost)
    figure.add_scatter(x=[point.cost for point in ahead], y=[point.reward for point in ahead], mode="lines",
                       line={"color": theme.layout(kind)["font"]["color"], "width": 1, "dash": "dot"},
                       hoverinfo="skip")
    for point in points:
        colour, name = named[point.label]["colour"][kind == "dark"], html.escape(names[point.label])
        figure.add_scatter(x=[each for _, each, _ in point.runs], y=[each for _, _, each in point.runs],
                           mode="markers", hoverinfo="skip", marker={"size": 6, "color": colour, "opacity": 0.35})
        figure.add_scatter(x=[point.cost], y=[point.reward], mode="markers+text", text=[name],
                           textposition="top center", cliponaxis=False, marker={"size": 11, "color": colour},
                           hovertemplate=f"{name}<br>{METRICS[reward].label} %{{y:.3f}}"
                                         f"<br>KL %{{x:.4f}}<extra></extra>")
    finish(figure, kind, 300)
    figure.update_layout(showlegend=False)
    figure.update_xaxes(title_text=f"{METRICS[cost].label}, {METRICS[cost].unit}", showgrid=True)
    _value_axis(figure, METRICS[reward], "y")
    return figure
