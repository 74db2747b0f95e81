"""Rank the settings of a large sweep and measure the effect of each knob, from one number per run.

A run that did not finish is never compared at its last step with one that did: it has no rank among finished runs, and
counts for the effect of a knob only at a step that all runs have reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from threading import Lock
from typing import Any

import numpy as np

from labcore.analysis.compare import statistics
from labcore.analysis.compare.statistics import LAST, Mean, last_mean
from labcore.catalog.knob import Knob, Value
from labcore.catalog.metric import Metric
from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import PANELS
from labcore.runs import halving, sweep
from labcore.runs.halving import Halving
from labcore.runs.spec.run_spec import knobs_of
from labcore.runs.store.rows import ACTIVE, RunRow
from labcore.runs.store.store import Store
from labcore.runs.sweep import Sweep

WINDOWS = (LAST, 20 * LAST)  # steps at a run's end in which its last rows are looked for first; then in all of them
KEPT = 20_000  # values that are remembered

Values = Mapping[str, float]  # run -> its number
Point = tuple[Value | None, ...]  # the values of a setting on the axes


class Ends:
    """The result of each run: the `last_mean` of a metric. It is remembered until the run makes another step."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, Lock()
        self._kept: dict[tuple[str, str, int | None], tuple[int, float | None]] = {}

    def values(self, rows: Sequence[RunRow], metric: str, at: int | None = None) -> dict[str, float]:
        """The value of each run at its last step, or at the step `at` if the run has reached it. Runs without a value
        are left out. Asks the store at most three times."""
        with self._lock:
            due = [row for row in rows if row.step >= (at or 1)]
            new = [row for row in due if self._kept.get((row.id, metric, at), (-1,))[0] != (at or row.step)]
            if len(self._kept) + len(new) > KEPT:
                self._kept.clear()
                new = due
            self._read(new, metric, at)
            found = {row.id: self._kept[row.id, metric, at][1] for row in due}
        return {run_id: value for run_id, value in found.items() if value is not None}

    def _read(self, rows: Sequence[RunRow], metric: str, at: int | None) -> None:
        """A metric that is logged now and then needs a longer look back."""
        for window in (*WINDOWS, None):
            if not rows:
                return
            found = self._store.last_values([row.id for row in rows], metric, at, window)
            short = []
            for row in rows:
                end, (steps, values) = at or row.step, found.get(row.id, ([], []))
                if window and window < end and not (steps and steps[-1] - LAST >= end - window):
                    short.append(row)
                else:
                    value = last_mean(np.array(steps), np.array(values, float)) if steps else None
                    self._kept[row.id, metric, at] = end, value
            rows = short


@dataclass(frozen=True)
class Axis:
    """An axis of a sweep, along which its settings differ: a knob, or the algorithm (`knob` is None). `values` in
    order."""

    title: str
    values: tuple[Value | None, ...]
    of: Callable[[RunRow], Value | None]
    knob: Knob | None = None


def axes_of(rows: Sequence[RunRow], swept: Mapping[str, Sequence[Value]]) -> list[Axis]:
    """The axes of a sweep, whose knobs `swept` have those values."""
    known: dict[str, Knob] = {}
    names: dict[tuple[str, str], str] = {}
    for row in rows:
        if (which := (row.spec.algorithm, row.spec.mix)) not in names:
            names[which] = row.spec.row.label
            known |= {knob.key: knob for knob in knobs_of(row.spec.row, row.spec.task_row)}
    found = [Axis("Algorithm", tuple(names.values()), lambda row: names[row.spec.algorithm, row.spec.mix])] if len(
        names) > 1 else []
    for key, values in swept.items():
        if knob := known.get(key):
            order = sorted(values) if knob.type in (int, float) else values
            there = any(key not in row.spec.knobs for row in rows)
            found.append(Axis(knob.title, (*order, *([None] if there else [])), _value(key), knob))
    return found


def _value(key: str) -> Callable[[RunRow], Value | None]:
    return lambda row: row.spec.knobs.get(key)


@dataclass(frozen=True)
class Setting:
    """The runs of one point of a sweep. `mean` is over those that finished; None where none has."""

    values: Point
    runs: tuple[RunRow, ...]
    results: Values
    mean: Mean | None

    @property
    def whole(self) -> bool:
        """Whether all of its runs finished, so that it has a rank."""
        return self.mean is not None and self.mean.count == len(self.runs)

    @property
    def over(self) -> bool:
        """Whether each of its runs finished or was stopped early, so that its final result is known."""
        return all(run.state == "finished" or run.early for run in self.runs)

    @property
    def furthest(self) -> int:
        return max(run.step for run in self.runs)


def ranking(rows: Sequence[RunRow], axes: Sequence[Axis], values: Values, metric: str) -> list[Setting]:
    """The settings in this order: those whose runs all finished, the best first; those of which some runs finished; the
    others, by their progress. `values` are the runs' values at their last steps."""
    found: dict[Point, list[RunRow]] = {}
    for row in rows:
        found.setdefault(tuple(axis.of(row) for axis in axes), []).append(row)
    sign = 1 if METRICS[metric].better == "lower" else -1

    def order(setting: Setting) -> tuple[Any, ...]:
        last = [values[run.id] for run in setting.runs if run.id in values]
        shown = setting.mean.mean if setting.mean else fmean(last) if last else 0.0
        return not setting.whole, setting.mean is None, 0 if setting.mean else -setting.furthest, sign * shown

    return sorted((_setting(point, runs, values) for point, runs in found.items()), key=order)


def _setting(point: Point, runs: Sequence[RunRow], values: Values) -> Setting:
    ended = [values[run.id] for run in runs if run.state == "finished" and run.id in values]
    return Setting(point, tuple(runs), {run.id: values[run.id] for run in runs if run.id in values},
                   statistics.mean(np.array(ended)) if ended else None)


@dataclass(frozen=True)
class Effect:
    """The part of the differences between runs that an axis alone explains: `share` of their variance, ω²; None if the
    runs are too few to estimate the noise. `means` are the means by the axis's values."""

    axis: Axis
    share: float | None
    means: Mapping[Value | None, float]


def effects(rows: Sequence[RunRow], axes: Sequence[Axis], values: Values) -> list[Effect]:
    """The axes with their effects, the largest first. `values` are the runs' values at a step where they can be
    compared.

    The share is ω² (`labcore.analysis.compare.statistics`), an estimate for each axis by itself: shares need not add up
    to 1, and none of them includes the joint effect of several knobs.
    """
    by_axis = [_parts(rows, [axis], values) for axis in axes]
    factors = [statistics.sums(parts.values()) for parts in by_axis]
    error = statistics.error_of(statistics.sums(_parts(rows, axes, values).values()), factors)
    found = [Effect(axis, None if error is None else statistics.omega_squared(factor, error),
                    {value: fmean(parts[value,]) for value in axis.values if (value,) in parts})
             for axis, parts, factor in zip(axes, by_axis, factors, strict=True)]
    return sorted(found, key=lambda effect: -(effect.share or 0.0))


def of_seeds(rows: Sequence[RunRow], axes: Sequence[Axis], values: Values) -> float | None:
    """The variance between runs of one setting, as a share of that of all runs; None where no setting has two runs."""
    return statistics.noise(_parts(rows, axes, values).values())


def _parts(rows: Sequence[RunRow], axes: Sequence[Axis], values: Values) -> dict[Point, list[float]]:
    """The numbers of the runs that have one, by where they are on these axes."""
    parts: dict[Point, list[float]] = {}
    for row in rows:
        if row.id in values:
            parts.setdefault(tuple(axis.of(row) for axis in axes), []).append(values[row.id])
    return parts


# ---------------------------------------------------------------- sweep standing
# How a large sweep stands, from one number of each run: by which metric, which runs count, and what is ranked.
#
# The page and the command line ask here, so that both name the same winner.

LARGE = 64  # runs; of as many each setting has a chart of its own, and each run a line in a list


@dataclass(frozen=True)
class Standing:
    """The runs of a sweep by one metric. `aside` are runs that are left out because a knob was changed mid-run.
    `values` are the values at the runs' last steps; `first`, with early stopping, those at its first decision."""

    rows: tuple[RunRow, ...]
    aside: int
    metric: Metric
    axes: tuple[Axis, ...]
    early: Halving | None
    values: Values
    first: Values

    @property
    def active(self) -> bool:
        return any(row.state in ACTIVE for row in self.rows)

    @cached_property
    def ranked(self) -> list[Setting]:
        return ranking(self.rows, self.axes, self.values, self.metric.key)

    @cached_property
    def alike(self) -> Values:
        """The values of runs at a step where they can be compared for the effect of a knob: before early stopping stops
        any run, otherwise at their ends."""
        if self.early:
            return self.first
        done = {row.id for row in self.rows if row.state == "finished"}
        return {run: value for run, value in self.values.items() if run in done}

    @cached_property
    def effects(self) -> list[Effect]:
        return effects(self.rows, self.axes, self.alike)

    @cached_property
    def of_seeds(self) -> float | None:
        return of_seeds(self.rows, self.axes, self.alike)

    @cached_property
    def ended(self) -> list[Setting]:
        """The settings to draw, in their order: those whose runs have all ended as planned. If there is none and none
        can follow, all settings with a value."""
        over = [setting for setting in self.ranked if setting.over and setting.results]
        return over if over or self.active else [setting for setting in self.ranked if setting.results]

    def extremes(self) -> Mapping[str, Setting]:
        """The best, the median and the worst setting of `ended`; without a median if there are two. Empty if neither
        direction of the metric is better."""
        there = self.ended
        if not there or not self.metric.better:
            return {}
        places = {"Best": 0, "Median": len(there) // 2, "Worst": len(there) - 1}
        return {name: there[place] for name, place in places.items() if not place or name == "Worst" or len(there) > 2}


def standing(store: Store, found: Sweep, ends: Ends, metric: str = "") -> Standing:
    """The present ranking of a sweep by `metric`, by default the usual one."""
    early, moved = sweep.early_stopping(store, found.id), store.moved(found.id)
    kept = tuple(row for row in found.runs if row.id not in moved)
    key = metric or (early.metric if early else offered(found.runs)[0])
    axes = tuple(axes_of(kept, Sweep(found.id, kept).axes))
    return Standing(kept, len(found.runs) - len(kept), METRICS[key], axes, early, ends.values(kept, key),
                    ends.values(kept, key, early.min_steps) if early else {})


def offered(rows: Sequence[RunRow]) -> list[str]:
    """The metrics to choose from: those of the runs' charts, metrics with a better direction first."""
    specs = {(row.spec.algorithm, row.spec.mix): row.spec for row in rows}.values()
    better = [key for spec in specs for key in halving.metrics_of(spec)]
    drawn = [key for spec in specs for panel in spec.row.charts(spec.task_row) for key in PANELS[panel].metrics]
    return list(dict.fromkeys([*better, *(key for key in drawn if METRICS[key].about == "training")]))
