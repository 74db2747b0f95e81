"""Find the best of many settings by one criterion, and how certain that is.

Each setting's seeds are drawn again with replacement; the share of draws in which a setting has the best mean shows how
much of its lead is luck. Left out: a correction for having looked at many settings; the best of many owes part of its
lead to luck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from labcore.analysis.compare import budget, statistics
from labcore.analysis.compare.budget import EQUAL, FINAL
from labcore.analysis.compare.groups import Group
from labcore.analysis.compare.statistics import Mean, Verdict
from labcore.analysis.compare.table import equal_places, values_of
from labcore.catalog.metrics import METRICS
from labcore.errors import LabError
from labcore.runs.traces import AXES, Trace

BEST = "best"
CRITERIA = (*EQUAL, FINAL, BEST)


@dataclass(frozen=True)
class Standing:
    """The standing of settings by one criterion. All fields have the settings' labels as keys.

    `values` are one number per run that has one, `of_run` the same numbers by the run's id, `means` those over seeds,
    `shares` how often each has the best mean when seeds are drawn again (None where a setting has one seed). `leader`
    has the best mean; it `beats` some, `ties` with some, and with the `few` there are too few seeds to compare. `place`
    is the place on the axis of a criterion such as equal tokens; `updates` are the updates that each had made by then.
    """

    criterion: str
    place: float | None
    values: Mapping[str, tuple[float, ...]]
    of_run: Mapping[str, float]
    means: Mapping[str, Mean]
    shares: Mapping[str, float] | None
    leader: str
    beats: tuple[str, ...]
    ties: tuple[str, ...]
    few: tuple[str, ...]
    updates: Mapping[str, float]


def criteria(groups: Sequence[Group], metric: str) -> list[str]:
    """List the criteria for these groups, the usual one first: at equal tokens, …; at the end and at their best where
    that cost all of them about the same."""
    found = _with_rows(groups, metric)
    if not found:
        return []
    able = budget.measures(equal_places(found, metric), spent(found, metric))
    return [*able, *([BEST] if METRICS[metric].better and FINAL in able else [])]


def spent(groups: Sequence[Group], metric: str) -> dict[str, dict[str, float]]:
    """The amounts that the groups with a row of the metric used, see `budget`."""
    return budget.spent_by({group.label: group.traces for group in _with_rows(groups, metric)})


def standing(groups: Sequence[Group], metric: str, criterion: str = "") -> Standing:
    """Rank the groups by `criterion` (empty: the usual one); groups without rows are left out. Raises LabError if no
    group has a row, or the groups cannot be compared by this criterion."""
    found = _with_rows(groups, metric)
    if not found:
        raise LabError("There is nothing to compare yet: wait for the first steps.")
    able = criteria(found, metric)
    criterion = criterion or next(iter(able), FINAL)
    if criterion not in able:
        choices = ", ".join(AXES.get(each, each) for each in able) or "none"
        raise LabError(f"These runs cannot be compared by {AXES.get(criterion, criterion)}: choose one of {choices}.")
    equal = equal_places(found, metric)
    values = {group.label: values_of(group, metric, equal)[criterion] for group in found}
    sign = -1 if METRICS[metric].better == "lower" else 1
    leader = max(values, key=lambda label: sign * float(np.mean(values[label])))
    judged: dict[Verdict, list[str]] = {"A": [], "tie": [], "none": []}
    for label in values.keys() - {leader}:
        comparison = statistics.comparison(np.array(values[leader]), np.array(values[label]), METRICS[metric].better)
        judged[comparison.verdict].append(label)
    beats, ties, few = (tuple(sorted(each, key=list(values).index)) for each in judged.values())
    of_run = {trace.run: value for group in found
              for trace, value in zip(group.traces, values[group.label], strict=True)}
    return Standing(criterion, equal.get(criterion), values, of_run,
                    {label: statistics.mean(np.array(each)) for label, each in values.items()},
                    shares(values, sign), leader, beats, ties, few,
                    _updates(found, criterion, equal.get(criterion, np.inf)))


def _updates(groups: Sequence[Group], axis: str, place: float) -> dict[str, float]:
    """The updates that each group has made at a place of an axis; those at the end where it is no axis."""
    def made(trace: Trace) -> float:
        rows = trace.axes["updates"][trace.axes[axis] <= place] if axis in trace.axes else trace.axes["updates"]
        return float(np.nanmax(rows))

    return {group.label: float(np.mean([made(trace) for trace in group.traces])) for group in groups
            if all("updates" in trace.axes for trace in group.traces)}


def shares(values: Mapping[str, Sequence[float]], sign: int = 1) -> dict[str, float] | None:
    """The share of bootstrap draws of the seeds in which each setting has the best mean; equal means share the win.

    `sign` −1: the lowest is the best. None if a setting has one seed, or there is only one setting.
    """
    if len(values) < 2 or min(map(len, values.values())) < 2:
        return None
    rng = np.random.default_rng(0)
    drawn = np.array([sign * statistics.redrawn(np.asarray(each, float), rng) for each in values.values()])
    best = np.isclose(drawn, drawn.max(0), rtol=1e-9, atol=1e-12)
    return dict(zip(values, (best / best.sum(0)).mean(1).tolist(), strict=True))


def _with_rows(groups: Sequence[Group], metric: str) -> list[Group]:
    """The groups with only those of their runs that have a row of the metric."""
    kept = [Group(group.label, tuple(trace for trace in group.traces if trace.column(metric)[0].size), group.repeats,
                  group.config) for group in groups]
    return [group for group in kept if group.traces]
