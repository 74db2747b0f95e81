"""How a large sweep stands, from one number of each run: what is ranked, where knobs are compared, and its words."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import streamlit as st

from app.compare.sweep.grid import words
from app.compare.wording import NONE
from app.compare.wording import mean as mean_words
from app.lab import lab
from app.theme import number
from labcore.catalog.knob import Value
from labcore.catalog.metrics import METRICS, Metric
from labcore.compare import ranking, statistics
from labcore.compare.ranking import Axis, Effect, Ends, Setting, Values
from labcore.compare.table import LAST
from labcore.runs.halving import Halving
from labcore.runs.sweep import Sweep
from labcore.store.rows import ACTIVE, RunRow


@st.cache_resource(show_spinner=False)
def ends() -> Ends:
    return Ends(lab().store)


@dataclass(frozen=True)
class Standing:
    """The runs of a sweep by a metric. `aside` are those left out since a knob was moved in them by hand."""

    rows: tuple[RunRow, ...]
    aside: int
    metric: Metric
    axes: tuple[Axis, ...]
    early: Halving | None
    values: Values

    @property
    def active(self) -> bool:
        return any(row.state in ACTIVE for row in self.rows)

    @cached_property
    def ranked(self) -> list[Setting]:
        return ranking.ranking(self.rows, self.axes, self.values, self.metric.key)

    @cached_property
    def alike(self) -> tuple[str, Values]:
        """Where runs can be compared for a knob, in words, and their values there."""
        if self.early:
            at = self.early.min_steps
            return f"at step {at:,}, where all runs come by", ends().values(self.rows, self.metric.key, at)
        done = {row.id for row in self.rows if row.state == "finished"}
        return "of the runs that finished", {run: value for run, value in self.values.items() if run in done}

    @cached_property
    def effects(self) -> list[Effect]:
        return ranking.effects(self.rows, self.axes, self.alike[1])

    @cached_property
    def of_seeds(self) -> float | None:
        return ranking.of_seeds(self.rows, self.axes, self.alike[1])

    def name(self, setting: Setting) -> str:
        """A setting by its values: "β 0.05 · G 32"."""
        return " · ".join(value_words(axis, value, True) for axis, value in zip(self.axes, setting.values, strict=True)
                          if value is not None) or setting.runs[0].spec.row.label


def value_words(axis: Axis, value: Value | None, named: bool = False) -> str:
    """A value of an axis as people write it, `named` with the knob."""
    if value is None:
        return NONE
    if axis.knob is None:
        return str(value)
    return words(axis.knob, value) if named else words(axis.knob, value).removeprefix(axis.knob.name).strip()


def standing(sweep_id: str, rows: Sequence[RunRow], metric: str, early: Halving | None) -> Standing:
    """How the runs of a sweep stand now."""
    moved = lab().store.moved(sweep_id)
    kept = tuple(row for row in rows if row.id not in moved)
    axes = ranking.axes_of(kept, Sweep(sweep_id, kept).axes)
    return Standing(kept, len(rows) - len(kept), METRICS[metric], tuple(axes), early, ends().values(kept, metric))


def headline(now: Standing) -> str:
    """Who is ahead, and how sure that is, as HTML."""
    metric, whole = now.metric, [setting for setting in now.ranked if setting.whole]
    if not metric.better:
        return f"Neither more nor less {html.escape(metric.inline)} is better: nothing is ranked by it."
    if not whole:
        return html.escape(_best_run(now))
    best = whole[0]
    assert best.mean
    so_far = f"So far, of the {len(whole):,} settings that are done, " if now.active else "Of " + (
        f"{len(whole):,} settings " if len(whole) == len(now.ranked) else
        f"the {len(whole):,} of {len(now.ranked):,} settings of which all runs finished, ")
    said = (f"{so_far}the best: {now.name(best)} ({number(best.mean.mean, metric.digits)}, "
            f"{_seeds(best.mean.count)}).")
    return html.escape(f"{said} {_against(now, whole)}".strip())


def _best_run(now: Standing) -> str:
    """Where of no setting all runs finished."""
    ended = {run.id: (setting, run) for setting in now.ranked for run in setting.runs
             if run.state == "finished" and run.id in now.values}
    if not ended:
        return "No run has finished yet." if now.active else "No run finished."
    best = (min if now.metric.better == "lower" else max)(ended, key=lambda run_id: now.values[run_id])
    setting, run = ended[best]
    assert setting.mean
    return (f"The best of the {len(ended):,} runs that {'have finished so far' if now.active else 'finished'}: "
            f"{now.name(setting)}, seed {run.spec.seed} ({number(now.values[best], now.metric.digits)}). "
            f"{setting.mean.count:,} of {len(setting.runs):,} runs of its setting finished.")


def _against(now: Standing, whole: Sequence[Setting]) -> str:
    """How the best stands against the next one."""
    if len(whole) < 2:
        return ""
    first, second = (np.array([setting.results[run.id] for run in setting.runs]) for setting in whole[:2])
    if min(first.size, second.size) < statistics.FEWEST:
        return "One or two seeds are no evidence."
    ahead = statistics.comparison(first, second, now.metric.better).verdict == "A"
    told = "It is ahead of the next" if ahead else "Seeds alone can explain its lead over the next"
    return f"{told}, {now.name(whole[1])}; the best of many settings owes part of its lead to luck."


def _seeds(count: int) -> str:
    return f"{count:,} seed{'s' if count > 1 else ''}"


def shown(now: Standing, setting: Setting) -> str:
    """The number of a setting as HTML: a mean with its interval. Of the finished runs alone there is no interval, since
    they are the better ones."""
    if setting.mean is None:
        return NONE
    if setting.whole:
        return mean_words(setting.mean, now.metric.digits)
    many = f"{setting.mean.count:,}" if setting.mean.count > 1 else "one"
    return f"{number(setting.mean.mean, now.metric.digits)}<small>of the {many} that finished</small>"


MEASURED = (f"The number of a run is the mean of its last {LAST} rows, that of a setting the mean over its seeds with "
            "its 95 % interval.")
