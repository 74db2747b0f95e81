"""A run's rows as columns, the input of every comparison: one form for the lab's runs and for runs of other tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from labcore.catalog.metrics import METRICS, ordered
from labcore.catalog.panels import PANELS
from labcore.errors import LabError, quoted
from labcore.runs.knob_history import KnobHistory
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import COUNTERS, Event, RunRow, Step
from labcore.runs.titles import title

# What runs can be drawn along and compared at, with the names that a reader sees.
AXES = {"step": "steps", "updates": "updates", "tokens": "tokens", "env_steps": "environment steps",
        "seconds": "seconds"}
WHERE = ("device", "threads")  # of a spec: where a run was computed
Column = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)  # columns have no single truth: a trace is itself only
class Trace:
    """One run. `axes` and `metrics` are columns of N rows; NaN where a row has no such number.

    `title` is the title of the run, `parent` that of its parent, or the parent's id if it was deleted for good.
    `breaks` are the steps after which a knob was changed by hand. `label` names an imported run's group; `spec` is None
    for it. `changes` are the knobs changed mid-run: (step, knob, value). `origin` says, as text, from which setting and
    step a fork began; equal for forks of seeds of one setting.
    """

    run: str
    spec: RunSpec | None
    state: str
    axes: Mapping[str, np.ndarray]
    metrics: Mapping[str, np.ndarray]
    breaks: tuple[int, ...] = ()
    changes: tuple[tuple[int, str, Any], ...] = ()
    label: str = ""
    origin: str = ""
    notes: tuple[str, ...] = field(default=(), repr=False)
    title: str = ""
    parent: str = ""
    _columns: dict[tuple[str, str], Column] = field(default_factory=dict, init=False, repr=False)

    @property
    def imported(self) -> bool:
        """True if another tool made it."""
        return self.spec is None

    @property
    def moves(self) -> dict[tuple[int, str], Any]:
        """The changes as they are read: of those of a knob after one step the last value. {(step, knob): value}"""
        return {(step, knob): value for step, knob, value in self.changes}

    def column(self, metric: str, axis: str = "step") -> Column:
        """(x, y, step) of the rows that have both numbers, each (M,). x rises: of rows at one place the last is kept.

        Empty where the run has no such metric or axis. Found once: a verdict asks for each a dozen times.
        """
        if (metric, axis) not in self._columns:
            self._columns[metric, axis] = self._column(metric, axis)
        return self._columns[metric, axis]

    def _column(self, metric: str, axis: str) -> Column:
        steps = self.axes["step"]
        if metric not in self.metrics or axis not in self.axes:
            return (np.empty(0),) * 3
        x, y = self.axes[axis], self.metrics[metric]
        there = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        last = np.append(np.diff(x[there]) > 0, True) if there.size else np.empty(0, bool)
        kept = there[last]
        return x[kept], y[kept], steps[kept]

    def until(self, axis: str, place: float) -> Trace:
        """The run up to a place of an axis, without later rows; the whole run if it does not count that axis."""
        if axis not in self.axes:
            return self
        kept = ~(self.axes[axis] > place)
        return replace(self, axes={key: column[kept] for key, column in self.axes.items()},
                       metrics={key: column[kept] for key, column in self.metrics.items()})


def trace(row: RunRow, steps: Sequence[Step], events: Iterable[Event] = (), origin: str = "",
          parent: str = "") -> Trace:
    """A run of the lab as a trace."""
    metrics = columns_of(steps)
    axes = axes_of([[getattr(step, key) for step in steps] for key in COUNTERS], metrics)
    return Trace(row.id, row.spec, row.state, axes, metrics, *changes_of(row.spec, events), origin=origin,
                 title=title(row), parent=parent)


def setting(spec: RunSpec) -> str:
    """The setting of a run as text: all but the seed, the parent, and where the run was computed.

    Threads and device change rounding and speed, and nothing that a setting is chosen for.
    """
    return replace(spec, seed=0, parent=None, **{key: getattr(RunSpec, key) for key in WHERE}).to_json()


def columns_of(steps: Sequence[Step]) -> dict[str, np.ndarray]:
    """The metrics of N rows, (N,) each, in the catalog's order; NaN where a row has none."""
    keys = {key for step in steps for key in step.metrics}
    return {key: np.array([step.metrics.get(key, np.nan) for step in steps]) for key in ordered(keys)}


def axes_of(counters: Iterable[Sequence[float] | np.ndarray],
            metrics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The axes of a run from its `COUNTERS`, N rows each; one that never leaves 0 is none of this run's."""
    axes = {key: np.array(values, float) for key, values in zip(COUNTERS, counters, strict=True)}
    axes = {key: column for key, column in axes.items() if key == "step" or column.any()}
    return axes | ({"updates": metrics["updates"]} if "updates" in metrics else {})


def changes_of(spec: RunSpec, events: Iterable[Event]) -> tuple[tuple[int, ...], tuple[tuple[int, str, Any], ...]]:
    """(breaks, changes): the steps after which knobs were changed mid-run, and what was changed.

    The step before the first one that a change counts in, also where it was made in the middle of that.
    """
    changes = tuple((each.step - 1, each.knob, each.value) for each in KnobHistory(spec, events).changes)
    return tuple(sorted({step for step, _, _ in changes})), changes


def metric_of(traces: Sequence[Trace], wanted: str | None = None) -> str:
    """The metric to compare by: `wanted`, else the first metric of the first run's charts that has a better direction.
    Raises LabError if there is no such metric, or the runs have none in common."""
    shared = set.intersection(*(set(each.metrics) for each in traces)) if traces else set()
    if wanted:
        if wanted in shared:
            return wanted
        if wanted not in METRICS:
            raise LabError(f"There is no metric {quoted(wanted)}: the runs share {_listed(shared)}.")
        without = next(each.run for each in traces if wanted not in each.metrics)
        raise LabError(f"The run {without} has no {wanted}: compare by {_listed(shared)}.")
    ranked = [key for key in _ranked(traces) if key in shared and METRICS[key].about == "training"]
    if not ranked:
        raise LabError("The runs share no metric in which one direction is better: compare runs of one kind, once they "
                       "have rows.")
    return next((key for key in ranked if METRICS[key].better == "higher"), ranked[0])


def _ranked(traces: Sequence[Trace]) -> list[str]:
    """Metrics that tell better from worse, in the order of the first run's charts, then of the catalog."""
    spec = next((each.spec for each in traces if each.spec), None)
    charts = [key for panel in spec.row.panels for key in PANELS[panel].metrics] if spec else []
    return [key for key in dict.fromkeys([*charts, *METRICS]) if METRICS[key].better]


def _listed(keys: set[str]) -> str:
    return ", ".join(key for key in ordered(keys) if METRICS[key].better) or "no metric"
