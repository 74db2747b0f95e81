"""The settings of a sweep in a grid, by the values of one or two knobs, and their small charts on shared axes. Pure.

The figure is plain data: with dozens of charts, Plotly's own objects would take most of a second to make.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app import theme
from app.compare.lines import Line, Lines
from labcore.analysis.compare.groups import Group
from labcore.catalog.knob import Knob, Value, shown
from labcore.catalog.metric import Metric
from labcore.runs.spec.run_spec import knobs_of

ACROSS = 5  # small charts in a row


@dataclass(frozen=True)
class Grid:
    """Cells in rows and columns, each with the numbers of its groups (several where knobs were changed mid-run).

    `knobs` are the axes: of one, the cells are wrapped into rows; of two, the columns are the first one's values and
    the rows the second one's. Without any, each group is a cell.
    """

    knobs: tuple[Knob, ...]
    rows: int
    columns: int
    cells: Mapping[tuple[int, int], tuple[int, ...]]
    values: tuple[tuple[Value, ...], ...] = ()

    @property
    def numeric(self) -> bool:
        """Whether the one axis, or the first of two, is a number."""
        return bool(self.knobs) and self.knobs[0].type in (int, float)


def grid_of(groups: Sequence[Group], axes: Mapping[str, Sequence[Value]]) -> Grid:
    """The grid of some groups; `axes` are the knobs that differ, with their values. More than two are no grid."""
    specs = [group.traces[0].spec for group in groups]
    known = {knob.key: knob for spec in specs if spec for knob in knobs_of(spec.row, spec.task_row)}
    knobs = tuple(known[key] for key in axes if key in known)
    if not 1 <= len(knobs) <= 2 or len({(spec.algorithm, spec.mix) for spec in specs if spec}) != 1:
        return _wrapped((), [(number,) for number in range(len(groups))])
    values = tuple(tuple(sorted(axes[knob.key]) if knob.type in (int, float) else axes[knob.key]) for knob in knobs)
    if len(knobs) == 1:
        return _wrapped(knobs, [_at(groups, knobs, (value,)) for value in values[0]], values)
    return Grid(knobs, len(values[1]), len(values[0]), {
        (row, column): _at(groups, knobs, (first, second)) for column, first in enumerate(values[0])
        for row, second in enumerate(values[1])}, values)


def _wrapped(knobs: tuple[Knob, ...], cells: Sequence[tuple[int, ...]],
             values: tuple[tuple[Value, ...], ...] = ()) -> Grid:
    across = min(len(cells), ACROSS) if len(cells) != ACROSS + 1 else 3  # six are two threes
    return Grid(knobs, -(-len(cells) // max(across, 1)), across,
                {divmod(place, across): cell for place, cell in enumerate(cells)}, values)


def _at(groups: Sequence[Group], knobs: Sequence[Knob], values: tuple[Value, ...]) -> tuple[int, ...]:
    return tuple(number for number, group in enumerate(groups)
                 if tuple(group.config.get(knob.key) for knob in knobs) == values)


def words(knob: Knob, value: Value) -> str:
    """A knob's value as people write it: "β 0.02"."""
    return f"{knob.name} {shown(value)}"


def title(knob: Knob) -> str:
    """A knob as the title of an axis, with its unit."""
    return f"{knob.title}{f', {knob.unit}' if knob.unit else ''}"


# ---------------------------------------------------------------- small charts

Look = Mapping[str, Any]  # of a group: label, short, note, colour by theme, dash
ROW, TALLEST = 150, 640  # pixels of a row of small charts, and of all of them
DEPTH = ("band", "seed", "raw", "line")


def heads(grid: Grid, looks: Sequence[Look]) -> dict[tuple[int, int], str]:
    """The title of a small chart: its value, that of its column, or its group."""
    if len(grid.knobs) == 2:
        return {(0, column): words(grid.knobs[0], value) for column, value in enumerate(grid.values[0])}
    if grid.knobs:
        return {divmod(place, grid.columns): words(grid.knobs[0], value) for place, value in enumerate(grid.values[0])}
    return {cell: looks[numbers[0]]["short"] for cell, numbers in grid.cells.items()}


def common_note(looks: Sequence[Look]) -> str:
    """The number of seeds of all groups, such as "3 seeds": written once rather than on each chart."""
    notes = {look["note"] for look in looks}
    return notes.pop() if len(notes) == 1 else ""


def multiples(grid: Grid, looks: Sequence[Look], lines: Mapping[int, Lines], metric: Metric, axis: str,
              kind: str) -> dict[str, Any]:
    """Data and layout of the figure: each seed thin, their mean with its band. `lines` by group."""
    usual, above = common_note(looks), heads(grid, looks)
    layout = _layout(grid, metric, lines, axis, kind)
    traces: list[dict[str, Any]] = []
    for place, (cell, numbers) in enumerate(sorted(grid.cells.items())):
        axes = {"xaxis": f"x{place + 1}" if place else "x", "yaxis": f"y{place + 1}" if place else "y"}
        traces.append({"x": [], "y": [], **axes})  # a chart without lines keeps its axes
        for number in numbers:
            traces += [trace | axes for trace in drawn(looks[number], lines.get(number, {}), metric, kind)]
        notes = dict.fromkeys(looks[number]["note"] for number in numbers if looks[number]["note"] != usual)
        text_lines = [f"<b>{html.escape(above[cell])}</b>" if cell in above else "", html.escape(", ".join(notes))]
        if text := "<br>".join(filter(None, text_lines)):
            layout["annotations"].append(_head(text, grid, cell))
    two_lines = any("<br>" in each["text"] for each in layout["annotations"])
    layout["margin"] |= {"t": 44 if two_lines else 28, "r": 28 if len(grid.knobs) == 2 else 16}
    return {"data": traces, "layout": layout}


def _layout(grid: Grid, metric: Metric, lines: Mapping[int, Lines], axis: str, kind: str) -> dict[str, Any]:
    height = min(max(ROW * grid.rows + 90, 280), max(TALLEST, 90 * grid.rows))
    layout = theme.layout(kind, height)
    x, y = layout.pop("xaxis"), layout.pop("yaxis")
    x |= {"automargin": False, "rangemode": "tozero", "nticks": 4, "showline": True, "matches": "x"}
    y |= {"automargin": False, "nticks": 5, "zeroline": False, "matches": "y", **_range(metric, lines)}
    for place, (row, column) in enumerate(sorted(grid.cells)):
        number = str(place + 1) if place else ""
        across, down = _domains(grid, row, column)
        below = (row + 1, column) not in grid.cells
        layout[f"xaxis{number}"] = x | {"domain": across, "anchor": f"y{number}", "showticklabels": below,
                                        "title": {"text": axis * below, "standoff": 4, "font": {"size": 13}}}
        layout[f"yaxis{number}"] = y | {"domain": down, "anchor": f"x{number}", "showticklabels": not column, "title": {
            "text": (metric.page_unit or metric.label) * (not column), "standoff": 2, "font": {"size": 13}}}
    for name in ("xaxis", "yaxis"):
        layout[name].pop("matches")  # the others follow the first
    layout |= {"showlegend": False, "hovermode": "closest", "margin": {"l": 56, "b": 44}, "annotations": []}
    if len(grid.knobs) == 2:
        layout["annotations"] = [_beside(grid, row) for row in range(grid.rows)]
    return layout


def _domains(grid: Grid, row: int, column: int) -> tuple[list[float], list[float]]:
    """The horizontal and the vertical position of a small chart, each from 0 to 1."""
    wide, tall = 1 / grid.columns, 1 / grid.rows
    gap = 0.2 * tall if grid.rows > 1 else 0.0
    low = 1 - (row + 1) * tall + (gap if row < grid.rows - 1 else 0)
    return [column * wide + 0.008, (column + 1) * wide - 0.008], [low, 1 - row * tall]


def _head(text: str, grid: Grid, cell: tuple[int, int]) -> dict[str, Any]:
    across, up = _domains(grid, *cell)
    return {"text": text, "x": sum(across) / 2, "y": up[1], "xref": "paper", "yref": "paper", "xanchor": "center",
            "yanchor": "bottom", "showarrow": False, "font": {"size": 13}}


def _beside(grid: Grid, row: int) -> dict[str, Any]:
    text, up = html.escape(words(grid.knobs[1], grid.values[1][row])), _domains(grid, row, 0)[1]
    return {"text": f"<b>{text}</b>", "x": 1, "y": sum(up) / 2, "xref": "paper", "yref": "paper", "xanchor": "left",
            "yanchor": "middle", "textangle": 90, "showarrow": False, "font": {"size": 13}}


def drawn(look: Look, lines: Lines, metric: Metric, kind: str) -> list[dict[str, Any]]:
    """Band, seeds, mean: as on the other charts of a comparison."""
    colour = look["colour"][kind == "dark"]
    return [_trace(line, metric, colour, html.escape(look["short"])) for depth in DEPTH for line in lines.values()
            if line["kind"] == depth]


def _trace(line: Line, metric: Metric, colour: str, name: str) -> dict[str, Any]:
    x, base = line["x"], {"type": "scatter", "mode": "lines", "name": name, "hoverinfo": "skip", "showlegend": False}
    if line["kind"] == "band":
        return base | {"x": x, "y": line["y"], "fill": "toself", "fillcolor": colour, "opacity": 0.18,
                       "line": {"width": 0}}
    if line["kind"] != "line":
        return base | {"x": x, "y": line["y"], "opacity": 0.3, "line": {"color": colour, "width": 1}}
    return base | {"x": x, "y": line["y"], "mode": "lines+markers" if len(x) == 1 else "lines", "hoverinfo": "all",
                   "customdata": [*map(metric.on_page, line["y"])],
                   "hovertemplate": f"{theme.hover_text(metric, 'customdata')}<extra>{name}</extra>",
                   "line": {"color": colour, "width": 1.9}}


def _range(metric: Metric, lines: Mapping[int, Lines]) -> dict[str, Any]:
    """The shared vertical axis: a share from 0 to 1; decades where a KL spans them."""
    if metric.scale == "rate":
        return {**theme.RATES, "tickvals": [0, 0.5, 1], "ticktext": ["0", "50", "100"]}
    values = [value for found in lines.values() for line in found.values() for value in line.get("y", [])]
    if metric.scale == "symlog" and values and min(values) > 0 and max(values) > 100 * min(values):
        return {"type": "log", "exponentformat": "power"}
    return {}
