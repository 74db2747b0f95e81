"""Prepare curves for one chart: smoothed, aligned on one axis, thinned for the screen.

Smoothing and statistics are made from every row; only what is drawn is thinned. Nothing is drawn beyond a run's rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from tsdownsample import M4Downsampler

from labcore.analysis.compare.groups import Group
from labcore.analysis.estimate import contrast
from labcore.errors import LabError
from labcore.runs.traces import Trace

MOST = 1000  # points of a curve that a screen can show
GRID = 400  # places at which the runs of a group are averaged


@dataclass(frozen=True)
class Curve:
    """One run's metric for the screen: (M,) each, M at most about the number asked for."""

    x: np.ndarray
    raw: np.ndarray
    smooth: np.ndarray


def ema(values: Sequence[float] | np.ndarray, smoothing: float, starts: Iterable[int] = ()) -> np.ndarray:
    """m_t = Σ_k s^k y_{t−k} / Σ_k s^k: the exponential mean without its bias to 0. (N,) -> (N,)

    In the metric's unit. It starts anew at each index of `starts`; a row that is not finite stays so and counts for
    nothing. Raises LabError if `smoothing` is not in [0, 1).
    """
    if not 0 <= smoothing < 1:
        raise LabError(f"The smoothing is {smoothing:g}: use a number from 0 up to, but not including, 1.")
    from pandas import Series  # a third of a second, which the first page of a server need not wait for

    values = np.asarray(values, float)
    smooth = np.full(values.size, np.nan)
    for begin, end in pairwise(sorted({0, values.size, *(start for start in starts if start < values.size)})):
        rows = begin + np.flatnonzero(np.isfinite(values[begin:end]))
        smooth[rows] = Series(values[rows]).ewm(alpha=1 - smoothing).mean()
    return smooth


def smoothed(trace: Trace, metric: str, axis: str = "step",
             smoothing: float = 0.9) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x, raw, smooth) of a run's metric, (M,) each, smoothed anew after each change of a knob."""
    x, y, steps = trace.column(metric, axis)
    starts = np.searchsorted(steps, np.array(trace.breaks), side="right")  # the first row beyond the change
    return x, y, ema(y, smoothing, starts.tolist())


def interpolate(x: np.ndarray, y: np.ndarray, places: np.ndarray) -> np.ndarray:
    """y at `places` (G,), linear between rows (M,), NaN before the first and after the last."""
    if not x.size:
        return np.full(places.shape, np.nan)
    return np.asarray(np.interp(places, x, y, left=np.nan, right=np.nan))


def aligned(traces: Sequence[Trace], metric: str, axis: str, most: int = GRID) -> tuple[np.ndarray, np.ndarray]:
    """(places (G,), values (R, G)): the metric of R runs at the same places of an axis, NaN beyond a run's rows.

    The places are the runs' own rows, evenly thinned to `most` with both ends kept.
    """
    found = [trace.column(metric, axis)[:2] for trace in traces]
    places = places_of([x for x, _ in found], most)
    return places, np.array([interpolate(x, y, places) for x, y in found]).reshape(len(traces), places.size)


def places_of(columns: Sequence[np.ndarray], most: int = GRID) -> np.ndarray:
    """All places of some columns in order, each once, evenly thinned to `most` with both ends kept."""
    places = np.unique(np.concatenate(columns)) if columns else np.empty(0)
    return places if places.size <= most else places[np.linspace(0, places.size - 1, most).round().astype(int)]


def curve(trace: Trace, metric: str, axis: str, smoothing: float = 0.9, most: int = MOST) -> Curve:
    """A run's metric for the screen: smoothed from all rows, then thinned such that no peak of either line is lost."""
    x, raw, smooth = smoothed(trace, metric, axis, smoothing)
    kept = np.union1d(thin(x, raw, most // 2), thin(x, smooth, most // 2)) if x.size > most else slice(None)
    return Curve(x[kept], raw[kept], smooth[kept])


def thin(x: np.ndarray, y: np.ndarray, most: int) -> np.ndarray:
    """Indices of at most `most` of N rows: the first, last, lowest and highest of each stretch of the axis.

    x rises and both are finite.
    """
    if x.size <= most:
        return np.arange(x.size)
    return np.unique(M4Downsampler().downsample(np.ascontiguousarray(x, float), np.ascontiguousarray(y, float),
                                                n_out=max(4, most // 4 * 4)).astype(int))


# ---------------------------------------------------------------- tree
# Forks beside their parents: where a branch leaves the line it grew from, and how far apart they are after it.

def parents(traces: Sequence[Trace]) -> dict[str, Trace]:
    """Run -> the run that it is a fork of, where both are among the traces."""
    known = {trace.run: trace for trace in traces}
    return {trace.run: known[trace.spec.parent[0]] for trace in traces
            if trace.spec and trace.spec.parent and trace.spec.parent[0] in known}


def joint(child: Trace, parent: Trace, metric: str, axis: str,
          smoothing: float = 0.0) -> tuple[float, float, float] | None:
    """(x, y, y smoothed) of the parent at the step where the fork begins; None where it has no such row."""
    assert child.spec is not None and child.spec.parent is not None, "as `parents` finds them"
    x, y, smooth = smoothed(parent, metric, axis, smoothing)
    steps = parent.column(metric, axis)[2]
    at = np.searchsorted(steps, child.spec.parent[1], side="right") - 1
    return (float(x[at]), float(y[at]), float(smooth[at])) if at >= 0 else None


def rooted(child: Trace, parent: Trace, metric: str, axis: str,
           smoothing: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x, raw, smooth) of a fork, (M,) each, with its parent's point in front: both lines begin on its parent's."""
    line = smoothed(child, metric, axis, smoothing)
    root = joint(child, parent, metric, axis, smoothing)
    if root is None or (line[0].size and line[0][0] <= root[0]):
        return line
    x, y, smooth = (np.append(first, rest) for first, rest in zip(root, line, strict=True))
    return x, y, smooth


def branched(group: Group, above: Mapping[str, Trace]) -> bool:
    """Whether all runs of a group are forks of runs in `above`, as `parents` finds them."""
    return all(trace.run in above for trace in group.traces)


def against_parents(group: Group, above: Mapping[str, Trace], metric: str, axis: str,
                    most: int = GRID) -> tuple[np.ndarray, np.ndarray]:
    """(places (G,), differences (S, G)): each fork minus its own parent where both are, NaN elsewhere; 0 at the fork.

    Of a metric's unit. The places are the forks' own rows, evenly thinned to `most`.
    """
    lines = [rooted(trace, above[trace.run], metric, axis)[:2] for trace in group.traces]
    places = places_of([x for x, _ in lines], most)
    return places, np.array([
        interpolate(x, y, places) - interpolate(*above[trace.run].column(metric, axis)[:2], places)
        for trace, (x, y) in zip(group.traces, lines, strict=True)]).reshape(len(lines), places.size)


def against(group: Group, baseline: Group, metric: str, axis: str,
            most: int = GRID) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """(places (G,), mean difference, low, high): a group minus another one, from unsmoothed rows.

    NaN where not all runs of both are. No band where a side has fewer than three seeds.
    """
    sides = [[trace.column(metric, axis)[:2] for trace in side.traces] for side in (group, baseline)]
    places = places_of([x for x, _ in sides[0]], most)
    found = [np.array([interpolate(x, y, places) for x, y in side]).reshape(len(side), places.size) for side in sides]
    return places, *contrast(found, [1.0, -1.0])
