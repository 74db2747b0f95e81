"""The table of a comparison: groups of runs that differ by their seed only, judged by one metric.

Final and best, and where all groups can be judged at the same updates, tokens or seconds; what each costs; what sets
their settings apart. Each run counts once; of two runs with one seed the longer is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from labcore.analysis.compare import budget, statistics
from labcore.analysis.compare.budget import EQUAL, FINAL
from labcore.analysis.compare.statistics import Comparison, Mean
from labcore.analysis.estimate import FEWEST
from labcore.catalog import choices
from labcore.catalog.metrics import METRICS
from labcore.catalog.mix import row as mixed
from labcore.errors import LabError, listed
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.traces import AXES, WHERE, Trace, metric_of, setting

_NOT_CONFIG = ("knobs", "seed")
_UNSAID = {"twin": True}  # what a label need not say of a fork
_PARENT, CHANGED = "parent", "changed mid-run"  # keys of a setting that are no knobs
Changes = Sequence[tuple[str, Any, int]]  # a setting's value of CHANGED: knob, value, the step after which


@dataclass(frozen=True)
class Group:
    """Runs of one setting, `seeds` apart. `repeats` are runs left out: their seed is there already.

    `config` are the setting's keys and values; for an imported group there is none.
    """

    label: str
    traces: tuple[Trace, ...]
    repeats: tuple[str, ...]
    config: Mapping[str, Any]

    @property
    def imported(self) -> bool:
        return self.traces[0].imported

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(trace.spec.seed for trace in self.traces if trace.spec)

    def until(self, axis: str, place: float) -> Group:
        """The same runs up to a place of an axis."""
        return replace(self, traces=tuple(trace.until(axis, place) for trace in self.traces))


@dataclass(frozen=True)
class Row:
    """One group in numbers, each a mean over its seeds; None where it has no such number.

    `values` are the runs' own: measure ("final", "updates", …) -> one number per seed. `deltas` and `comparisons` are
    against the baseline, this group being A. `durations` are the active seconds of the runs that tell, `seconds` their
    mean. `spent` is what the group used up of each axis up to its end.
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
    def spent(self) -> budget.Spent:
        """The amounts that each group used: label -> axis -> amount."""
        return {row.label: row.spent for row in self.rows}

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        changed = [changes and changes_text(changes) for changes in self.config.get(CHANGED, ())]
        return asdict(self) | {"config": {**self.config, **({CHANGED: changed} if changed else {})}}

    def only(self, axis: str) -> Table:
        """The same table, judged at the end and at one axis. Raises LabError where the runs do not share it."""
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


def _words(key: str, value: Any, spec: RunSpec) -> str:
    """A setting in a label by its key, as files and the command line have it."""
    return f"{key} {_shown(value)}"


Words = Callable[[str, Any, RunSpec], str]
Named = Callable[[RunSpec], str]


def _unnamed(spec: RunSpec) -> str:
    """No setting has a name of its own, as in files and on the command line."""
    return ""


def groups(traces: Sequence[Trace], words: Words = _words, named: Named = _unnamed) -> list[Group]:
    """The traces by setting, in the order of their first runs. Knobs changed mid-run are part of the setting.

    `words` says a setting with its value in the labels; `named` is the name of all settings of a run, such as a
    preset's, which stands for them.
    """
    found: dict[str, list[Trace]] = {}
    for trace in traces:
        found.setdefault(_setting(trace), []).append(trace)
    kept = [_one_per_seed(same) for same in found.values()]
    configs = [_config(same) for same, _ in kept]
    labels = _labels([same[0] for same, _ in kept], configs, words, named)
    return [Group(label, tuple(same), tuple(repeats), config)
            for label, (same, repeats), config in zip(labels, kept, configs, strict=True)]


def compare(traces: Sequence[Trace], metric: str | None = None, baseline: str | None = None,
            words: Words = _words, named: Named = _unnamed) -> Table:
    """The table of some runs. `baseline` is a run of the group that the others are measured against; `words` and
    `named` as in `groups`.

    Raises:
        LabError: no runs, none of them has rows, they share no metric, or the baseline is none of them.
    """
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


def differing(found: Sequence[Group]) -> dict[str, tuple[Any, ...]]:
    """The keys of the settings that differ between groups, with each group's value; None where it has no such key."""
    keys = dict.fromkeys(key for group in found for key in group.config)
    columns = {key: tuple(group.config.get(key) for group in found) for key in keys}
    return {key: values for key, values in columns.items()
            if len({json.dumps(value, default=str) for value in values}) > 1}


def apart(found: Sequence[Group]) -> dict[str, tuple[Any, ...]]:
    """The knobs, and the task and the model, that at least two groups have with different values: what makes a
    comparison uneven. Choices that make an algorithm what it is are left out where the algorithms differ."""
    columns = differing(found)
    own = {family.key for family in choices.FAMILIES} if "algorithm" in columns else set()
    left_out = {"algorithm", "kind", "mix", _PARENT, "twin", CHANGED, *WHERE, *own}
    return {key: values for key, values in columns.items() if key not in left_out and
            len({json.dumps(value, default=str) for value in values if value is not None}) > 1}


def _setting(trace: Trace) -> str:
    """What runs of one group have in common, as text."""
    if trace.spec is None:
        return f"imported {trace.label}"
    return json.dumps([setting(trace.spec), trace.origin, trace.changes])


def _config(same: Sequence[Trace]) -> dict[str, Any]:
    """The setting's keys and values: algorithm and task first, then the knobs, what was changed mid-run last.

    Where runs of one group were computed differently, all of it is named: "1, 4". Knobs of choices that a mix did not
    take are left out.
    """
    trace = same[0]
    if trace.spec is None:
        return {}
    fields = json.loads(trace.spec.to_json())
    first = {key: fields[key] for key in ("kind", "algorithm", "task", "model")}
    if trace.spec.parent:
        fields["parent"] = "{} at step {}".format(*trace.spec.parent)
    rest = {key: value for key, value in fields.items() if key not in _NOT_CONFIG}
    for key in WHERE:
        found = dict.fromkeys(getattr(each.spec, key) for each in same)
        rest |= {key: ", ".join(map(str, found))} if len(found) > 1 else {}
    moved = [(knob, value, step) for (step, knob), value in trace.moves.items()]
    spec = trace.spec
    knobs = {key: value for key, value in fields["knobs"].items() if not (
        spec.mix and mixed.idle(spec.algorithm, key, spec.knobs))}
    return first | knobs | rest | ({CHANGED: moved} if moved else {})


def changes_text(changes: Changes, name: Callable[[str], str] = str) -> str:
    """
    >>> changes_text([("beta", 0.5, 1), ("clip_low", 0.1, 2)])
    'beta=0.5 after step 1; clip_low=0.1 after step 2'
    """
    return "; ".join(f"{name(knob)}={value} after step {step}" for knob, value, step in changes)


def _one_per_seed(same: Sequence[Trace]) -> tuple[list[Trace], list[str]]:
    """(one trace per seed, the runs left out). A run made twice is one observation, not two."""
    longest: dict[Any, Trace] = {}
    for trace in same:
        seed = trace.run if trace.spec is None else trace.spec.seed
        if seed not in longest or trace.axes["step"].size > longest[seed].axes["step"].size:
            longest[seed] = trace
    kept = sorted(longest.values(), key=lambda trace: trace.spec.seed if trace.spec else 0)
    return kept, [trace.run for trace in same if trace not in kept]


def _labels(firsts: Sequence[Trace], configs: Sequence[Mapping[str, Any]], words: Words, named: Named) -> list[str]:
    """A short name for each group: its algorithm, and what sets it apart from others of that algorithm."""
    labels = []
    for first, config in zip(firsts, configs, strict=True):
        if first.spec is None:
            labels.append(f"{first.label} (imported)")
            continue
        like = [other for other in configs if _algorithm(other) == _algorithm(config)]
        kin = [other for other in like if other["kind"] == config["kind"]]  # the others' tasks say all that they need
        apart = [key for key, value in config.items() if value is not None and key not in WHERE and any(
            other.get(key, _UNSAID.get(key)) != value for other in (like if key == "task" else kin))]
        parts = ", ".join(forked(first) if key == _PARENT else words(key, config[key], first.spec)
                          for key in [key for key in apart if key != CHANGED][:3])
        changed = "(knobs changed)" if CHANGED in apart else ""
        name = named(first.spec) if parts else ""
        labels.append(" ".join(filter(None, (name or f"{first.spec.row.label} {parts}".strip(), changed))))
    return [label if labels.count(label) == 1 else f"{label} ({first.title or first.run})"
            for label, first in zip(labels, firsts, strict=True)]


def forked(trace: Trace) -> str:
    """Of which run it is a fork, as the label of its group says it; empty for a run that is none."""
    if trace.spec is None or trace.spec.parent is None:
        return ""
    run_id, step = trace.spec.parent
    return f"from {trace.parent or run_id} at step {step}"


def _algorithm(config: Mapping[str, Any]) -> tuple[Any, Any]:
    """What a run learns by: a row, or a mix that began from it."""
    return config.get("algorithm"), config.get("mix")


def _shown(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else "/".join(map(str, value)) if isinstance(value, list) else \
        str(value)
    return text if len(text) <= 24 else f"{text[:23]}…"


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
    """Measure -> one number per run: `statistics.last_mean` of the rows at or before that place; "best" of as many
    steps, wherever."""
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
               spec.row.models if spec else (), values, deltas, comparisons, spent)


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
    """What a reader must know: few seeds, runs left out or not finished, groups that do not compare, who wins when.
    `titles` are the titles of the runs."""
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
