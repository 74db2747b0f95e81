"""The table of a comparison: groups of runs (`groups`), judged by one metric.

It has the final and the best values, the values at equal updates, tokens or seconds if all groups count them, the
costs, and the settings that differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import combinations
from typing import Any

import numpy as np

from labcore.analysis.compare import budget, statistics
from labcore.analysis.compare.budget import EQUAL, FINAL
from labcore.analysis.compare.groups import (
    CHANGED,
    Group,
    Named,
    Words,
    by_key,
    changes_text,
    differing,
    groups,
    unnamed,
)
from labcore.analysis.compare.statistics import Comparison, Mean
from labcore.analysis.estimate import FEWEST
from labcore.catalog import choices
from labcore.catalog.metrics import METRICS
from labcore.errors import LabError, listed
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.traces import AXES, Trace, metric_of

NO_KNOBS = {CHANGED, *(field.name for field in fields(RunSpec))}  # of a group's settings


@dataclass(frozen=True)
class Row:
    """One group in numbers, each a mean over its seeds; None where it has no such number.

    `values` are the values of its runs: measure ("final", "updates", …) -> one number per seed. `deltas` and
    `comparisons` compare this group (A) with the baseline. `durations` are the active seconds of the runs that have
    them, `seconds` their mean. `spent` is the amount of each axis that the group used up to its end.
    """

    label: str
    runs: tuple[str, ...]
    seeds: int
    imported: bool
    states: tuple[str, ...]
    final: Mean | None
    best: Mean | None
    equal: Mapping[str, Mean]
    durations: tuple[float, ...]
    seconds: Mean | None
    memory: Mean | None
    models: tuple[str, ...]
    values: Mapping[str, tuple[float, ...]]
    deltas: Mapping[str, Mean]
    comparisons: Mapping[str, Comparison]
    spent: Mapping[str, float]


@dataclass(frozen=True)
class Table:
    """A comparison. `equal`: axis -> where on it all groups were compared. `config`: key -> its value in each group,
    only where they differ. `comparisons`: measure -> A -> B -> the comparison. `leaders`: measure -> the best group's
    label, and the labels that it beats. `verdicts`: the measures at which groups are judged, the leading one first (see
    `budget`). `notes` say what a reader must know."""

    metric: str
    better: str
    baseline: str | None
    rows: tuple[Row, ...]
    equal: Mapping[str, float]
    config: Mapping[str, tuple[Any, ...]]
    comparisons: Mapping[str, Mapping[str, Mapping[str, Comparison]]]
    leaders: Mapping[str, tuple[str, tuple[str, ...]]]
    verdicts: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def config_parts(self) -> tuple[dict[str, tuple[Any, ...]], dict[str, tuple[Any, ...]]]:
        """`config` in two parts: settings of all groups that differ, and settings that only some groups have."""
        differs = {key for key, values in self.config.items() if key in NO_KNOBS
                   or len({str(value) for value in values if value is not None}) > 1}
        return ({key: values for key, values in self.config.items() if key in differs},
                {key: values for key, values in self.config.items() if key not in differs})

    @property
    def spent(self) -> budget.Spent:
        """The amounts that each group used: label -> axis -> amount."""
        return {row.label: row.spent for row in self.rows}

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        changed = [changes and changes_text(changes) for changes in self.config.get(CHANGED, ())]
        return asdict(self) | {"config": {**self.config, **({CHANGED: changed} if changed else {})}}

    def only(self, axis: str) -> Table:
        """A copy with the values at the end and at one axis only. Raises LabError if the runs do not share the axis."""
        if axis not in self.equal:
            shared = ", ".join(self.equal) or "none"
            raise LabError(f"The runs cannot be compared at equal {AXES[axis]}, because not all of them count or have "
                           f"reached it: choose another axis (they share {shared}).")
        kept = (FINAL, axis)
        rows = tuple(replace(row, equal={axis: row.equal[axis]}, values=_of(row.values, (*kept, "best")),
                             deltas=_of(row.deltas, (*kept, "best")), comparisons=_of(row.comparisons, kept))
                     for row in self.rows)
        return replace(self, rows=rows, equal={axis: self.equal[axis]}, comparisons=_of(self.comparisons, kept),
                       leaders=_of(self.leaders, kept), verdicts=tuple(each for each in self.verdicts if each in kept))


def _of(table: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: table[key] for key in keys if key in table}


def compare(traces: Sequence[Trace], metric: str | None = None, baseline: str | None = None,
            words: Words = by_key, named: Named = unnamed) -> Table:
    """The table of some runs. `baseline` is a run of the group with which the others are compared; `words` and `named`
    as in `groups`. Raises LabError if there are no runs, none of them has rows, they share no metric, or the baseline
    is none of them."""
    with_rows = [trace for trace in traces if trace.metrics]
    if not with_rows:
        raise LabError("There is nothing to compare yet: choose runs that have made at least one step.")
    key = metric_of(with_rows, metric)
    found = groups([trace for trace in with_rows if trace.column(key)[0].size], words, named)
    pinned = _pinned(found, baseline)
    equal = equal_places(found, key)
    values = [values_of(group, key, equal) for group in found]
    better = METRICS[key].better
    comparisons = {measure: _duels([group.label for group in found], [numbers[measure] for numbers in values], better)
                   for measure in (FINAL, *equal)}
    spent = budget.spent_by({group.label: group.traces for group in found})
    verdicts = budget.measures(equal, spent)
    rows = tuple(_row(group, key, numbers, values[found.index(pinned)] if pinned and pinned is not group else None,
                      {measure: comparisons[measure][group.label][pinned.label] for measure in comparisons}
                      if pinned and pinned is not group else {}, spent[group.label])
                 for group, numbers in zip(found, values, strict=True))
    leaders = {measure: _leader(rows, measure, comparisons[measure], better) for measure in comparisons}
    titles = {trace.run: trace.title or trace.run for trace in traces}
    left_out = [f"{titles[trace.run]} ({trace.state})" for trace in traces if trace not in with_rows]
    return Table(key, better, pinned.label if pinned else None, rows, equal, differing(found), comparisons, leaders,
                 tuple(verdicts), tuple(_notes(key, found, _of(leaders, verdicts), left_out, titles)))


def _pinned(found: Sequence[Group], baseline: str | None) -> Group | None:
    if baseline is None:
        return None
    for group in found:
        if baseline in group.repeats or any(trace.run == baseline for trace in group.traces):
            return group
    raise LabError(f"The baseline {baseline} is not one of the compared runs: add it to them.")


def equal_places(found: Sequence[Group], metric: str) -> dict[str, float]:
    """Axis -> the largest place that all runs have reached."""
    places = {}
    for axis in EQUAL:
        columns = [trace.column(metric, axis)[0] for group in found for trace in group.traces]
        if all(x.size for x in columns):
            place = min(x[-1] for x in columns)
            if all(x[0] <= place for x in columns):  # else a run's first row lies beyond it
                places[axis] = float(place)
    return places


def values_of(group: Group, metric: str, equal: Mapping[str, float]) -> dict[str, tuple[float, ...]]:
    """Measure -> one number per run: `statistics.last_mean` of the rows up to the equal place or the end; "best" is the
    best mean of as many steps anywhere in the run."""
    def last(trace: Trace, axis: str, place: float) -> float:
        x, y, steps = trace.column(metric, axis)
        return statistics.last_mean(steps[x <= place], y[x <= place])

    measures = {FINAL: ("step", np.inf), **{axis: (axis, place) for axis, place in equal.items()}}
    values = {measure: tuple(last(trace, *where) for trace in group.traces) for measure, where in measures.items()}
    if better := METRICS[metric].better:
        peak = np.min if better == "lower" else np.max
        columns = [(trace.axes["step"][0], *trace.column(metric)) for trace in group.traces]
        values["best"] = tuple(float(peak(statistics.last_means(first, steps, y))) for first, steps, y, _ in columns)
    return values


def _duels(labels: Sequence[str], values: Sequence[tuple[float, ...]], better: str) -> dict[str, dict[str, Comparison]]:
    """A -> B -> the comparison, for all pairs."""
    comparisons: dict[str, dict[str, Comparison]] = {label: {} for label in labels}
    for (a, x), (b, y) in combinations(zip(labels, values, strict=True), 2):
        comparisons[a][b] = statistics.comparison(np.array(x), np.array(y), better)
        comparisons[b][a] = comparisons[a][b].mirrored
    return comparisons


def _row(group: Group, metric: str, values: Mapping[str, tuple[float, ...]],
         against: Mapping[str, tuple[float, ...]] | None, comparisons: Mapping[str, Comparison],
         spent: Mapping[str, float]) -> Row:
    means = {measure: statistics.mean(np.array(numbers)) for measure, numbers in values.items()}
    deltas = {} if against is None else {
        measure: statistics.difference(np.array(values[measure]), np.array(against[measure])) for measure in values}
    spec = group.traces[0].spec
    durations = _peaks(group, "seconds")
    seconds, memory = (statistics.mean(np.array(each)) if each else None
                       for each in (durations, _peaks(group, "memory")))
    return Row(group.label, tuple(trace.run for trace in group.traces), len(group.traces), group.imported,
               tuple(trace.state for trace in group.traces), means[FINAL], means.get("best"),
               {axis: means[axis] for axis in AXES if axis in means}, durations, seconds, memory,
               held(spec) if spec else (), values, deltas, comparisons, spent)


def held(spec: RunSpec) -> tuple[str, ...]:
    """The networks that a run holds in memory: the networks of its row and those that its choices need."""
    brought = (("reward model", choices.needs_reward_model), ("teacher", choices.needs_teacher))
    return *spec.row.models, *(name for name, needed in brought if needed(spec.knobs))


def _peaks(group: Group, key: str) -> tuple[float, ...]:
    """Active seconds, or the peak of the memory (MB), of each run that tells."""
    columns = [trace.axes.get(key) if key in AXES else trace.metrics.get(key) for trace in group.traces]
    return tuple(float(np.nanmax(column)) for column in columns if column is not None and np.isfinite(column).any())


def _leader(rows: Sequence[Row], measure: str, comparisons: Mapping[str, Mapping[str, Comparison]],
            better: str) -> tuple[str, tuple[str, ...]]:
    """(the group with the best mean, the groups that it beats)."""
    sign = -1 if better == "lower" else 1
    first = max(rows, key=lambda row: sign * float(np.mean(row.values[measure])))
    beaten = tuple(label for label, each in comparisons[first.label].items() if each.verdict == "A")
    return first.label, beaten


def _notes(metric: str, found: Sequence[Group], leaders: Mapping[str, tuple[str, tuple[str, ...]]],
           left_out: Sequence[str], titles: Mapping[str, str]) -> list[str]:
    """Cautions for the reader: few seeds, missing or unfinished runs, groups that cannot be compared, a winner that
    depends on the axis. `titles` are the titles of the runs."""
    notes = []
    if few := [group.label for group in found if len(group.traces) < FEWEST]:
        notes.append(f"{listed(few)}: fewer than {FEWEST} seeds are not enough to compare; run more seeds.")
    if not METRICS[metric].better:
        notes.append(f"No direction of {metric} is better: A beats B means only that A's value is larger.")
    if left_out:
        notes.append(f"{listed(left_out)}: no rows, left out.")
    for group in found:
        if group.repeats:
            again = listed([titles[run] for run in group.repeats])
            notes.append(f"{group.label}: {again} repeats a seed and is left out.")
        if going := [trace for trace in group.traces if trace.state not in ("finished", "imported")]:
            states = dict.fromkeys(trace.state for trace in going)
            runs = listed([titles[trace.run] for trace in going])
            notes.append(f"{group.label}: {runs} not finished ({', '.join(states)}).")
        notes += dict.fromkeys(f"{group.label}: {note}" for trace in group.traces for note in trace.notes)
    for key in ("kind", "task"):
        if len(values := dict.fromkeys(group.config[key] for group in found if key in group.config)) > 1:
            notes.append(f"The groups differ in {key} ({listed([*values])}): their numbers are not comparable.")
    if len({label for label, beaten in leaders.values() if beaten}) > 1:
        winners = [f"{label} at {'the end' if measure == FINAL else f'equal {AXES[measure]}'}"
                   for measure, (label, beaten) in leaders.items() if beaten]
        notes.append(f"The winner depends on the criterion: {', '.join(winners)}.")
    return notes
