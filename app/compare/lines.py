"""Groups of runs to the lines of a chart: means with their bands, single seeds, branches, differences. Pure.

A line is plain data for the browser: {kind, group, x, y}; a band is an outline. Everything is computed from all rows
and thinned last; bands and differences are never of smoothed rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labcore.analysis.compare import curves, statistics
from labcore.analysis.compare.curves import MOST, interpolate, places_of, smoothed, thin
from labcore.analysis.compare.groups import Group
from labcore.analysis.estimate import contrast
from labcore.catalog.knob import shown
from labcore.runs.spec.run_spec import knobs_of
from labcore.runs.traces import Trace

Line = dict[str, Any]
Lines = dict[str, Line]


@dataclass(frozen=True)
class Look:
    """The view of a chart: its metric and axis, the smoothing, whether each seed is drawn, the largest number of points
    of a line, and whether the unsmoothed mean is drawn behind a smoothed one."""

    metric: str
    axis: str
    smoothing: float = 0.0
    traces: bool = False
    most: int = MOST
    faint: bool = True


def lines_of(group: Group, place: int, look: Look, above: Mapping[str, Trace], counted: Group | None = None) -> Lines:
    """A group's lines by their keys; `place` is its number among the groups, `above` what `tree.parents` found.

    One seed is a line without a band. For several seeds the mean is drawn where all have values; beyond that, each seed
    alone. If there are too few seeds for a band, each is drawn whole to show their spread. A forked seed is drawn
    whole, too, because its fork begins on its line. The mean is over the runs of `counted` (by default all); a run that
    has just begun and that no verdict uses is drawn alone.
    """
    found = {trace.run: _line(trace, look, above) for trace in group.traces}
    found = {run: line for run, line in found.items() if line[0].size}
    if not found:
        return {}
    among = {trace.run: found[trace.run] for trace in (counted or group).traces if trace.run in found} or found
    alone = len(among) == 1
    lines = _single(next(iter(among.values())), look) if alone else _mean(list(among.values()), look)
    end = -np.inf if look.traces or "band" not in lines else lines["line"]["x"][-1]
    forked = {parent.run for parent in above.values()}
    for run, (x, raw, smooth) in found.items():
        whole = run in forked or run not in among
        if not (alone and run in among) and (x[-1] > end or whole):
            lines[f"seed:{run}"] = _drawn("seed", x, smooth if look.smoothing else raw, look.most,
                                          -np.inf if whole else end)
    if any(trace.run in above for trace in group.traces) and "line" in lines:
        lines["root"] = {"kind": "root", "x": lines["line"]["x"][:1], "y": lines["line"]["y"][:1]}
    reaching = [line for line in lines.values() if line["kind"] in ("line", "seed")]
    max(reaching, key=lambda line: line["x"][-1])["named"] = True  # its end has the group's name: the mean's, of equals
    return {f"{place}:{key}": line | {"group": place} for key, line in lines.items()}


def gap_of(group: Group, place: int, baseline: Group | None, look: Look, above: Mapping[str, Trace]) -> Lines:
    """The difference of a group to the baseline; without one, of forks to their own parents, seed by seed."""
    if baseline is group:
        return {}
    if baseline is not None:
        x, middle, low, high = curves.against(group, baseline, look.metric, look.axis, look.most)
    elif curves.branched(group, above):
        x, apart = curves.against_parents(group, above, look.metric, look.axis, look.most)
        middle, low, high = contrast([apart], [1.0])
    else:
        return {}
    kept = np.isfinite(middle)
    lines: Lines = {"gap": {"kind": "gap", "x": digits(x[kept]), "y": digits(middle[kept])}} if kept.any() else {}
    if low is not None and high is not None and lines:
        lines["gapband"] = {"kind": "gapband", **outline(lines["gap"]["x"], digits(low[kept]), digits(high[kept]))}
    return {f"{place}:{key}": line | {"group": place} for key, line in lines.items()}


def marks_of(group: Group, place: int, axis: str) -> list[dict[str, Any]]:
    """The places at which knobs were changed mid-run, the same for all runs of a group: [{x, text, group}]."""
    trace = group.traces[0]
    if trace.spec is None or not trace.changes or axis not in trace.axes:
        return []
    before, marks = dict(trace.spec.knobs), []
    knobs = {knob.key: knob for knob in knobs_of(trace.spec.row, trace.spec.task_row)}
    for (step, key), value in trace.moves.items():
        at = int(np.searchsorted(trace.axes["step"], step, side="right")) - 1
        where = float(trace.axes[axis][at]) if at >= 0 else 0.0
        text = f"{knobs[key].name if key in knobs else key} {shown(before.get(key, '?'))} → {shown(value)}"
        marks.append({"x": where if np.isfinite(where) else 0.0, "text": text, "group": place})
        before[key] = value
    return marks


def _line(trace: Trace, look: Look, above: Mapping[str, Trace]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x, raw, smooth), (M,) each: a fork begins on its parent's line where that is drawn too."""
    if trace.run in above:
        return curves.rooted(trace, above[trace.run], look.metric, look.axis, look.smoothing)
    return smoothed(trace, look.metric, look.axis, look.smoothing)


def _single(line: tuple[np.ndarray, np.ndarray, np.ndarray], look: Look) -> Lines:
    x, raw, smooth = line
    if not look.smoothing:
        return {"line": _drawn("line", x, raw, look.most)}
    return {"raw": _drawn("raw", x, raw, look.most), "line": _drawn("line", x, smooth, look.most)}


def _mean(found: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], look: Look) -> Lines:
    """The mean over seeds with its band, and smoothed in front of it where that is asked for."""
    places = places_of([x for x, _, _ in found], max(look.most * 2 // 5, 2))
    raws, smooths = (np.array([interpolate(line[0], line[which], places) for line in found]) for which in (1, 2))
    middle, low, high = statistics.band(raws)
    kept = np.isfinite(middle)
    if not kept.any():
        return {}
    x = digits(places[kept])
    lines: Lines = {} if low is None or high is None else {
        "band": {"kind": "band", **outline(x, digits(low[kept]), digits(high[kept]))}}
    if look.smoothing and look.faint:
        lines["raw"] = {"kind": "raw", "x": x, "y": digits(middle[kept])}
    lines["line"] = {"kind": "line", "x": x, "y": digits(smooths.mean(0)[kept] if look.smoothing else middle[kept])}
    return lines


def _drawn(kind: str, x: np.ndarray, y: np.ndarray, most: int, after: float = -np.inf) -> Line:
    """A line thinned for the screen, from `after` on: from the row before it, it would lie over what ends there."""
    if x[0] < after:
        beyond = x > after
        x, y = np.append(after, x[beyond]), np.append(np.interp(after, x, y), y[beyond])
    kept = thin(x, y, most)
    return {"kind": kind, "x": digits(x[kept]), "y": digits(y[kept])}


def outline(x: Sequence[float], low: Sequence[float], high: Sequence[float]) -> dict[str, list[float]]:
    """A band as one closed line: along its upper end and back along the lower one.

    >>> outline([1, 2], [0, 1], [2, 3])
    {'x': [1, 2, 2, 1], 'y': [2, 3, 1, 0]}
    """
    return {"x": [*x, *reversed(x)], "y": [*high, *reversed(low)]}


def ends(band: Line) -> tuple[list[float], list[float], list[float]]:
    """(x, low, high) of an outline.

    >>> ends(outline([1, 2], [0, 1], [2, 3]))
    ([1, 2], [0, 1], [2, 3])
    """
    half = len(band["x"]) // 2
    return band["x"][:half], band["y"][:half - 1:-1], band["y"][:half]


def digits(values: np.ndarray, count: int = 6) -> list[float]:
    """Rounded to so many significant digits: enough for a screen, and short to send.

    >>> digits(np.array([0.123456789, -1234567.0, 0.0, 2.0]))
    [0.123457, -1234570.0, 0.0, 2.0]
    """
    with np.errstate(divide="ignore"):
        size = np.floor(np.log10(np.abs(values, where=values != 0, out=np.ones(values.shape))))
    scale = 10.0 ** np.clip(count - 1 - size, -300, 300)
    rounded: list[float] = (np.round(values * scale) / scale).tolist()
    return rounded
