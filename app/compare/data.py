"""Read the compared runs once per server and group them by setting, each group with its colour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from app import naming
from app.compare.place import Place
from app.lab import lab
from app.session import missing
from app.theme import DARK, LIGHT
from labcore.analysis.compare import curves
from labcore.analysis.compare.budget import EQUAL
from labcore.analysis.compare.groups import Group, apart, forked, groups
from labcore.analysis.compare.loading import Reader
from labcore.catalog.metric import Metric
from labcore.catalog.metrics import METRICS, ordered
from labcore.catalog.panels import PANELS
from labcore.errors import LabError, cut
from labcore.runs import sweep
from labcore.runs.imports import imported
from labcore.runs.store.rows import ACTIVE, RunRow
from labcore.runs.traces import AXES, Trace

MOST_SETTINGS = 8
CHARTS, MOST_CHARTS = 6, 12  # small charts: as many as usual, and the most that can be chosen
BESIDE = 3  # settings beside a name
MOST_RUNS = 24  # of a project
END = 18  # letters that fit at the end of a line
DASHES = ("solid", "dot", "dash", "dashdot")

Source = RunRow | str  # a run of the store, or the name of an imported one


@st.cache_resource(show_spinner=False)
def reader() -> Reader:
    return Reader(lab().store)


@dataclass(frozen=True)
class Chosen:
    """The compared runs. `traces` hold the metrics that were read so far; `metric` and `axis` are those on show.

    `logged` says what each run logs, `above` are the parents of the forks among the runs.
    """

    place: Place
    sources: tuple[Source, ...]
    traces: tuple[Trace, ...]
    groups: tuple[Group, ...]
    metric: str
    axis: str
    logged: Mapping[str, frozenset[str]]

    @property
    def run_ids(self) -> list[str]:
        return [trace.run for trace in self.traces]

    @property
    def stored(self) -> list[RunRow]:
        """The runs that are the lab's own."""
        return [source for source in self.sources if not isinstance(source, str)]

    @property
    def titles(self) -> dict[str, str]:
        """Run -> its title."""
        return {trace.run: trace.title for trace in self.traces}

    def metric_of(self, key: str = "") -> Metric:
        """Return the metric `key` (default: the chosen one) under the name that it has in these runs."""
        return naming.metric(key or self.metric, [trace.spec for trace in self.traces])

    @property
    def above(self) -> Mapping[str, Trace]:
        return curves.parents(self.traces)

    def smoothing(self, key: str = "") -> float:
        """The smoothing of a metric's lines; of the one looked at without a `key`."""
        if self.place.smooth is not None:
            return self.place.smooth
        kinds = [trace.spec.kind_row for trace in self.traces if trace.spec]
        return max((kind.smoothing.get(key or self.metric, 0.0) for kind in kinds), default=0.0)

    @property
    def active(self) -> bool:
        """Whether one of the runs is going, or will."""
        return any(trace.state in ACTIVE for trace in self.traces)

    @property
    def baseline(self) -> Group | None:
        """The group with which the others are compared."""
        return next((group for group in self.groups if self.place.baseline in runs_of(group)), None)

    def place_of(self, run: str) -> int:
        """The number of the group that has a run."""
        return next(place for place, group in enumerate(self.groups) if run in runs_of(group))

    def with_metrics(self, metrics: Sequence[str], sources: Sequence[Source] | None = None) -> Chosen:
        """A copy with these metrics loaded too; `sources` are the runs if they were read again."""
        sources = self.sources if sources is None else tuple(sources)
        traces = tuple(reader().traces(sources, metrics))
        return replace(self, sources=sources, traces=traces, groups=regrouped(self, traces))

    def again(self, sources: Sequence[Source] | None = None) -> Chosen:
        """A copy with the present state of the runs, without deleted runs; `sources` if they were read already."""
        kept, sources = set(self.run_ids), find(self.place)[0] if sources is None else sources
        return self.with_metrics([self.metric], [source for source in sources if name_of(source) in kept])


def judged(chosen: Chosen) -> Chosen:
    """The runs that verdicts and mean lines use. While some are running, these are only the runs that have ended, once
    every group has one; before that only runs that are at least half as far as the furthest of their group.

    Otherwise all runs would be compared at the first step of a run that has just begun.
    """
    if not chosen.active:
        return chosen
    kept = _ended(chosen.groups)
    if not all(group.traces for group in kept):
        kept = [replace(group, traces=tuple(trace for trace in group.traces if 2 * _steps(trace) >= max(
            map(_steps, group.traces)))) for group in chosen.groups]
    return replace(chosen, groups=tuple(kept), traces=tuple(trace for group in kept for trace in group.traces))


def basis(chosen: Chosen) -> str:
    """The sentence on the runs that verdicts and mean lines use while others are running; empty if they use all."""
    of, count = len(chosen.traces), len(judged(chosen).traces)
    whose = "that have ended" if all(group.traces for group in _ended(chosen.groups)) else (
        "that are at least half as far as the furthest of their group")
    return f"based on the {count} of {of} runs {whose}" if count < of else ""


def _ended(found: Sequence[Group]) -> list[Group]:
    return [replace(group, traces=tuple(trace for trace in group.traces if trace.state not in ACTIVE
                                        and trace.axes["step"].size)) for group in found]


def _steps(trace: Trace) -> float:
    """The progress of a run."""
    steps = trace.axes["step"]
    return float(steps[-1]) if steps.size else 0.0


def regrouped(before: Chosen, traces: Sequence[Trace]) -> tuple[Group, ...]:
    """The groups of the same runs brought up to date. They change only if a knob was moved or a seed was repeated."""
    moved = {trace.run: trace.changes for trace in before.traces} != {trace.run: trace.changes for trace in traces}
    if moved or any(group.repeats for group in before.groups):
        return tuple(groups(traces, naming.setting, naming.preset))
    now = {trace.run: trace for trace in traces}
    return tuple(replace(group, traces=tuple(now[trace.run] for trace in group.traces)) for group in before.groups)


def runs_of(group: Group) -> list[str]:
    return [*(trace.run for trace in group.traces), *group.repeats]


def name_of(source: Source) -> str:
    return source if isinstance(source, str) else source.id


def source_of(chosen: Chosen, run: str) -> Source:
    return next(source for source in chosen.sources if name_of(source) == run)


def find(place: Place) -> tuple[list[Source], list[str]]:
    """The runs that a link names, and a sentence for each that does not exist."""
    if place.project and not place.runs and not place.sweep:
        newest = of_project(place.project)
        return newest, [] if newest else [f"The project “{cut(place.project)}” has no run that made a step."]
    if place.sweep:
        try:
            return list(sweep.sweep(lab().store, place.sweep).runs), []
        except LabError:
            return [], [f"There is no sweep “{cut(place.sweep)}” here. Its runs were deleted (the page Runs can "
                        "restore them for a week), or the link is from another lab."]
    found: list[Source] = []
    faults = []
    own = lab().store.runs_named(place.runs)
    for name in place.runs:
        if imported.known(lab().store, name):
            found.append(name)
        elif run := own.get(name):
            found.append(run)
        else:
            faults.append(missing(name))
    return found, faults


def of_project(name: str) -> list[Source]:
    """The newest runs and imported metrics of a project, oldest first, as many as are compared."""
    store = lab().store
    found: list[tuple[float, Source]] = [(run.created, run) for run in store.runs(
        limit=MOST_RUNS, project=name, begun=True)]
    found += [(each.created, each.id) for each in imported.listed(store) if each.project == name]
    return [source for _, source in sorted(found, key=lambda each: each[0])[-MOST_RUNS:]]


def choose(place: Place, sources: Sequence[Source]) -> tuple[Chosen, list[str]]:
    """The runs with the metric on show. Runs that do not fit are left out, and a message names them."""
    logged = logged_by(sources)
    metric = place.metric or _metric(sources, logged)
    faults: list[str] = []
    traces: list[Trace] = []
    kept: list[Source] = []
    with suppress(LabError):  # all in a few queries; below, each is known already, or says what is wrong with it
        reader().traces(sources, [metric])
    for source in sources:
        try:
            traces += reader().traces([source], [metric])
            kept.append(source)
        except LabError as error:  # an imported run with damaged files
            faults.append(str(error))
    found = groups(traces, naming.setting, naming.preset)
    if not place.sweep and len(found) > MOST_SETTINGS:
        beyond = {run for group in found[MOST_SETTINGS:] for run in runs_of(group)}
        names = [trace.title for trace in traces if trace.run in beyond]
        faults.append(f"{MOST_SETTINGS} settings fit into one chart, so {', '.join(names)} "
                      f"{'is' if len(beyond) == 1 else 'are'} left out.")
        kept = [source for source, trace in zip(kept, traces, strict=True) if trace.run not in beyond]
        traces = [trace for trace in traces if trace.run not in beyond]
        found = found[:MOST_SETTINGS]
    axes = axes_of(traces)
    axis = place.x if place.x in axes else usual_axis(traces, place.by)
    if place.x in AXES and traces and place.x not in axes:
        faults.append(f"None of these runs records {AXES[place.x]}, so the horizontal axis is {axes[axis]}.")
    chosen = Chosen(place, tuple(kept), tuple(traces), tuple(found), metric, axis, logged)
    if place.baseline and traces and chosen.baseline is None:
        faults.append(f"The baseline {place.baseline} is not among the compared runs. Choose another one.")
    return chosen, faults


def offered_metrics(chosen: Chosen) -> list[str]:
    """The metrics that any of the runs logs, those of the first run's charts first."""
    there = set().union(*chosen.logged.values())
    return [key for key in panel_metrics(chosen.sources) if key in there or key == chosen.metric]


def logged_by(sources: Iterable[Source]) -> dict[str, frozenset[str]]:
    """Run -> the metrics that any of its rows has; runs without rows are left out."""
    found = {}
    for source in sources:
        try:
            found[name_of(source)] = reader().logged(source)
        except LabError:  # an imported run: `choose` says so
            continue
    return {run: keys for run, keys in found.items() if keys}


def _metric(sources: Sequence[Source], logged: Mapping[str, frozenset[str]]) -> str:
    """The first metric of the first run's charts that all runs log and that is better when higher; else any."""
    shared = frozenset.intersection(*logged.values()) if logged else frozenset()
    order = [key for key in panel_metrics(sources) if key in METRICS and METRICS[key].about == "training"]
    for among in (shared, set().union(*logged.values()), set(order)):
        ranked = [key for key in order if key in among and METRICS[key].better]
        if ranked:
            return next((key for key in ranked if METRICS[key].better == "higher"), ranked[0])
    return "reward"


def panel_metrics(sources: Sequence[Source]) -> list[str]:
    """All metrics, those of the first run's charts first."""
    row = next((source.spec.row for source in sources if not isinstance(source, str)), None)
    panels = [key for panel in row.panels for key in PANELS[panel].metrics] if row else []
    return list(dict.fromkeys([*panels, *METRICS]))


def small_panels(chosen: Chosen) -> list[str]:
    """The metrics of the small charts: those of the link, otherwise the headline metrics of the first run's charts that
    some run logs, without the metric on show."""
    if chosen.place.charts:
        return list(chosen.place.charts[:MOST_CHARTS])
    row = next((source.spec.row for source in chosen.sources if not isinstance(source, str)), None)
    there = set().union(*chosen.logged.values())
    heads = [PANELS[panel].metrics[0] for panel in row.panels] if row else ordered(there)
    return [key for key in dict.fromkeys(heads) if key != chosen.metric and (key in there or not there)][:CHARTS]


def axes_of(traces: Sequence[Trace]) -> dict[str, str]:
    """The horizontal axes that at least one run has, beginning with the default axis of the comparison and then those
    of the first run's kind."""
    there = {axis for trace in traces for axis in trace.axes}
    first = next((trace.spec.kind_row.axes for trace in traces if trace.spec), AXES)
    return {axis: AXES[axis] for axis in dict.fromkeys([*_shared(traces)[:1], *first, *AXES]) if axis in there}


def usual_axis(traces: Sequence[Trace], by: str) -> str:
    """The default axis of the curves: the one on which the verdict `by` compares the runs, so that the curves show the
    verdict."""
    return by if by in _shared(traces) else next(iter(axes_of(traces)), "step")


def _shared(traces: Sequence[Trace]) -> list[str]:
    """The axes that all runs count which have begun, and that can be made equal."""
    begun = [trace.axes for trace in traces if trace.axes["step"].size]
    return [axis for axis in EQUAL if begun and all(axis in axes for axes in begun)]


def look_of(chosen: Chosen) -> list[dict[str, Any]]:
    """Each group as the browser draws it: its name, a note on its seeds, colour by theme, dash, whether it is bold.

    `short` is the name without a fork's parent, and in a sweep of one algorithm without the algorithm. `end` is written
    at the end of the line, where there is little room: a long name also leaves out an algorithm that others have too.
    """
    short = [_without_parent(group) for group in chosen.groups]
    short = [name if short.count(name) == 1 else group.label for name, group in zip(short, chosen.groups, strict=True)]
    algorithms, settings = [_algorithm(group) for group in chosen.groups], settings_of(chosen.groups)
    if chosen.place.sweep and len(short) > 1 and len({*algorithms}) == 1:  # the head of the sweep names it
        short = [name.removeprefix(f"{algorithms[0]} ") for name in short]
    notes = [" · ".join(filter(None, (note(group, chosen.metric, counted), beside)))
             for group, counted, beside in zip(chosen.groups, judged(chosen).groups, settings, strict=True)]
    return [{"label": group.label, "short": short[place],
             "end": short[place] if len(short[place]) <= END or algorithms.count(algorithms[place]) == 1 else
             short[place].removeprefix(f"{algorithms[place]} ").removeprefix("task "),
             "note": notes[place], "colour": [LIGHT[place % 6], DARK[place % 6]],
             "dash": DASHES[place // 6 % 4], "bold": group is chosen.baseline}
            for place, group in enumerate(chosen.groups)]


def settings_of(found: Sequence[Group]) -> list[str]:
    """The note beside the name of each group: its values of the first settings that differ, unless its label already
    has them."""
    columns = apart(found)
    said = []
    for place, group in enumerate(found):
        spec = group.traces[0].spec
        words = [naming.setting(key, values[place], spec) for key, values in columns.items()
                 if spec and values[place] is not None]
        said.append(", ".join([each for each in words if each not in group.label][:BESIDE]))
    return said


def _without_parent(group: Group) -> str:
    """A group's label, which of a fork says the step alone."""
    first = group.traces[0]
    if first.spec is None or first.spec.parent is None:
        return group.label
    return group.label.replace(forked(first), f"fork at step {first.spec.parent[1]}")


def _algorithm(group: Group) -> str:
    spec = group.traces[0].spec
    return spec.row.label if spec else ""


def note(group: Group, metric: str, counted: Group | None = None) -> str:
    """The number of seeds behind a group's line; `counted` are the runs that the line and the verdict use.

    Seeds that have not started are counted; one seed is no evidence.
    """
    begun = [trace for trace in group.traces if trace.axes["step"].size]
    if begun and not any(metric in trace.metrics for trace in begun):
        return f"no {metric}"
    waiting = len(group.traces) - len(begun)
    what = "run" if group.imported else "seed"
    if not begun:
        return "waiting" if any(trace.state in ACTIVE for trace in group.traces) else "no rows"
    if counted and len(counted.traces) < len(begun):
        return f"{len(counted.traces)} of {len(group.traces)} {what}s compared"
    if waiting and any(trace.state in ACTIVE for trace in group.traces):
        return f"{len(begun)} of {len(group.traces)} {what}s started"
    return f"{len(begun)} {what}s" if len(begun) > 1 else f"1 {what}: not evidence"
