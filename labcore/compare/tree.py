"""Forks beside their parents: where a branch leaves the line it grew from, and how far apart they are after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from labcore.compare import statistics
from labcore.compare.curves import GRID, interpolate, places_of, smoothed
from labcore.compare.table import Group
from labcore.compare.traces import Trace


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

    NaN where not all runs of both are. No band where a side has one seed.
    """
    sides = [[trace.column(metric, axis)[:2] for trace in side.traces] for side in (group, baseline)]
    places = places_of([x for x, _ in sides[0]], most)
    found = [np.array([interpolate(x, y, places) for x, y in side]).reshape(len(side), places.size) for side in sides]
    return places, *statistics.gap(*found)

