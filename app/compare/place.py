"""The link parameters of the Compare page: the runs, and the view of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app import link
from app.link import param
from app.session import SMOOTHEST
from labcore.analysis.compare.best import CRITERIA
from labcore.catalog.metrics import METRICS
from labcore.runs.traces import AXES

CURVES = "curves"
VIEWS = {CURVES: "Curves", "sweep": "Sweep", "table": "Table", "plane": "Two metrics", "answers": "Answers",
         "batch": "One batch"}


@dataclass(frozen=True)
class Place:
    """Runs by their ids, or all those of a `sweep` or of a `project`. If `metric` or `x` is empty, the runs determine
    it. `x` is an axis, or in the view of two metrics a metric; `charts` are the small charts beside the big one.
    `batch` belongs to the view of that name; `by` is the criterion of the comparison.

    `smooth`: the smoothing of all lines, instead of the usual one of their metric.

    `baseline` is a run of the group with which the others are compared; `traces`: each seed is drawn as well.
    """

    runs: tuple[str, ...] = param((), link.names)
    sweep: str = param("")
    project: str = param("")
    metric: str = param("", link.one_of(METRICS))
    x: str = param("", link.one_of({**AXES, **METRICS}))
    charts: tuple[str, ...] = param((), link.some_of(METRICS))
    smooth: float | None = param(None, link.number(0, SMOOTHEST))
    baseline: str = param("")
    traces: bool = param(False, link.switch)
    view: str = param(CURVES, link.one_of(VIEWS))
    batch: str = param("")
    by: str = param("", link.one_of(CRITERIA))


def change(**parts: Any) -> None:
    """Other parts of the place that the link names by now."""
    link.turn(Place, **parts)


def go(place: Place) -> None:
    """Go to another place."""
    link.go(link.written(place))
