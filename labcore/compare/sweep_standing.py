"""How a large sweep stands, from one number of each run: by which metric, which runs count, and what is ranked.

The page and the command line ask here, so that both name the same winner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from labcore.catalog.metric import Metric
from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import PANELS
from labcore.compare import ranking
from labcore.compare.ranking import Axis, Effect, Ends, Setting, Values
from labcore.runs import halving, sweep
from labcore.runs.halving import Halving
from labcore.runs.sweep import Sweep
from labcore.store.rows import ACTIVE, RunRow
from labcore.store.store import Store

LARGE = 64  # runs; of as many each setting has a chart of its own, and each run a line in a list


@dataclass(frozen=True)
class Standing:
    """The runs of a sweep by a metric. `aside` are those left out since a knob was changed mid-run; `values` are at the
    runs' last steps, `first` at the first judgement of early stopping where there is one."""

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
        return ranking.ranking(self.rows, self.axes, self.values, self.metric.key)

    @cached_property
    def alike(self) -> Values:
        """The values of runs where they can be compared for a knob: before any is stopped early, or at their ends."""
        if self.early:
            return self.first
        done = {row.id for row in self.rows if row.state == "finished"}
        return {run: value for run, value in self.values.items() if run in done}

    @cached_property
    def effects(self) -> list[Effect]:
        return ranking.effects(self.rows, self.axes, self.alike)

    @cached_property
    def of_seeds(self) -> float | None:
        return ranking.of_seeds(self.rows, self.axes, self.alike)

    @cached_property
    def ended(self) -> list[Setting]:
        """The settings to draw, in their order: those whose runs all ended as they were to. Where there is none and
        none is to come, all that have a number."""
        over = [setting for setting in self.ranked if setting.over and setting.results]
        return over if over or self.active else [setting for setting in self.ranked if setting.results]

    def extremes(self) -> Mapping[str, Setting]:
        """The best, the median and the worst of those; of two the best and the worst. Empty where the metric has no
        better."""
        there = self.ended
        if not there or not self.metric.better:
            return {}
        places = {"Best": 0, "Median": len(there) // 2, "Worst": len(there) - 1}
        return {name: there[place] for name, place in places.items() if not place or name == "Worst" or len(there) > 2}


def standing(store: Store, found: Sweep, ends: Ends, metric: str = "") -> Standing:
    """How a sweep stands now, by `metric` or by the usual one."""
    early, moved = sweep.early_stopping(store, found.id), store.moved(found.id)
    kept = tuple(row for row in found.runs if row.id not in moved)
    key = metric or (early.metric if early else offered(found.runs)[0])
    axes = tuple(ranking.axes_of(kept, Sweep(found.id, kept).axes))
    return Standing(kept, len(found.runs) - len(kept), METRICS[key], axes, early, ends.values(kept, key),
                    ends.values(kept, key, early.min_steps) if early else {})


def offered(rows: Sequence[RunRow]) -> list[str]:
    """The metrics that can be asked for: of the runs' charts, those that say what is better first."""
    specs = {(row.spec.algorithm, row.spec.mix): row.spec for row in rows}.values()
    better = [key for spec in specs for key in halving.metrics_of(spec)]
    drawn = [key for spec in specs for panel in spec.row.charts(spec.task_row) for key in PANELS[panel].metrics]
    return list(dict.fromkeys([*better, *(key for key in drawn if METRICS[key].about == "training")]))
