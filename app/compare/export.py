"""A comparison as files: the table, the curves as they are drawn, and every row of every run. UTF-8 CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from app.compare.data import Chosen, judged, runs_of, source_of
from app.compare.lines import Line, Look, ends, gap_of, lines_of
from app.compare.verdict import stand_of
from app.lab import lab
from labcore.analysis.compare.budget import FINAL
from labcore.analysis.compare.groups import groups
from labcore.analysis.compare.statistics import Mean
from labcore.analysis.compare.table import Table
from labcore.runs.files import tables
from labcore.runs.imports import imported
from labcore.runs.store.rows import RunRow
from labcore.runs.traces import AXES, Trace

_COMES_TO = {"A": "beats it", "B": "is beaten", "tie": "tie", "none": "no verdict"}
_MEAN = ("", "_low", "_high")
_SAYS = {"line": "mean", "raw": "mean", "band": "95 % bootstrap band of the mean", "seed": "one seed",
         "gap": "difference of means", "gapband": "95 % interval of the difference (Welch)", "root": "start of a fork"}


def table(found: Table, chosen: Chosen) -> bytes:
    """One line per group, with the states of its runs. Means with the ends of their 95 % intervals; P and the verdict
    against the baseline, or else against the leader, at the place where the page judges; no comparison where the page
    has none."""
    places = {axis: f"{place:.12g}" for axis, place in found.equal.items()}
    stand = stand_of(chosen)
    at = stand.criterion if stand and stand.criterion in found.verdicts else next(iter(found.verdicts), FINAL)
    where = f"{places[at]} {AXES[at]}" if at in places else "the end"
    against = found.baseline or found.leaders[at][0]
    deltas = [FINAL, *places, *(["best"] if found.better else [])] if found.baseline else []
    means = [FINAL, *(["best"] if found.better else []), *(f"at_{place}_{axis}" for axis, place in places.items())]
    header = ["group", "seeds", "runs", "states", "metric", *(f"{name}{end}" for name in means for end in _MEAN),
              *(f"delta_{name}{end}" for name in deltas for end in _MEAN), "against", "p_better_than_it", "verdict",
              "seconds", "memory_mb", "models", "verdict_at", "titles"]
    runs = {run for row in found.rows for run in row.runs}
    keyed = _keyed([trace for trace in chosen.traces if trace.run in runs])
    keyed, lines = {row.label: keyed[row.runs[0]] for row in found.rows}, []
    for row in found.rows:
        comparison = found.comparisons[at][row.label].get(against)
        cells = [row.final, *([row.best] if found.better else []), *(row.equal[axis] for axis in places)]
        ranked = found.verdicts and not chosen.active
        verdict = "" if comparison is None else _COMES_TO[comparison.verdict if ranked else "none"]
        lines.append([keyed[row.label], row.seeds, " ".join(row.runs), " ".join(row.states), found.metric,
                      *(n for c in cells for n in _three(c)),
                      *(n for name in deltas for n in _three(row.deltas.get(name))),
                      keyed[against] if comparison else "", "" if comparison is None else comparison.p, verdict,
                      "" if row.seconds is None else row.seconds.mean, "" if row.memory is None else row.memory.mean,
                      " ".join(row.models), where if comparison else "",
                      ", ".join(chosen.titles[run] for run in row.runs)])
    return tables.written(header, lines)


def _three(mean: Mean | None) -> list[Any]:
    return ["", "", ""] if mean is None else [mean.mean, *("" if end is None else end for end in (mean.low, mean.high))]


def _keyed(traces: Sequence[Trace]) -> dict[str, str]:
    """Run -> its group, called as the command line calls it: a file has the knobs by their keys."""
    return {run: group.label for group in groups(traces) for run in runs_of(group)}


def plotted(chosen: Chosen) -> bytes:
    """The lines of the big chart, one point a line; `what` says what the number is, `smoothing` how it was smoothed."""
    look = Look(chosen.metric, chosen.axis, chosen.smoothing(), chosen.place.traces)
    return tables.written(["group", "run", "what", "metric", "axis", "x", "value", "smoothing", "title"],
                          _points(chosen, look))


def _points(chosen: Chosen, look: Look) -> Iterator[list[Any]]:
    keyed = _keyed(chosen.traces)
    counted = judged(chosen).groups
    base = counted[chosen.groups.index(chosen.baseline)] if chosen.baseline else None
    for place, (group, of) in enumerate(zip(chosen.groups, counted, strict=True)):
        label = keyed[group.traces[0].run]
        begun = [trace.run for trace in of.traces if trace.column(look.metric, look.axis)[0].size]
        lines = lines_of(group, place, look, chosen.above, of) | gap_of(of, place, base, look, chosen.above)
        for key, line in lines.items():
            run = key.partition("seed:")[2] or (begun[0] if len(begun) == 1 else "")
            said = "one seed" if len(begun) == 1 and line["kind"] in ("line", "raw") else _SAYS[line["kind"]]
            smoothing = f"{look.smoothing:g}" if line["kind"] in ("line", "seed", "root") else "0"
            for column, xs, ys in _columns(said, line):
                for x, y in zip(xs, ys, strict=True):
                    yield [label, run, column, look.metric, AXES[look.axis], x, y, smoothing,
                           chosen.titles.get(run, "")]


def _columns(said: str, line: Line) -> list[tuple[str, list[float], list[float]]]:
    """(what, x, y) of a line, or of both ends of a band."""
    if not line["kind"].endswith("band"):
        return [(said, line["x"], line["y"])]
    x, low, high = ends(line)
    return [(f"{said}, low end", x, low), (f"{said}, high end", x, high)]


def rows(chosen: Chosen) -> bytes:
    """Every metric of every step of every run, exactly as logged, one number a line."""
    keyed = _keyed(chosen.traces)
    header = ["run", "group", "seed", "step", "tokens", "env_steps", "seconds", "metric", "value", "title"]
    return tables.written(header, (
        [trace.run, keyed[trace.run], trace.spec.seed if trace.spec else "", *counters, key, value, trace.title]
        for group in chosen.groups for trace in group.traces for *counters, metrics in _steps(chosen, trace)
        for key, value in metrics.items()))


def _steps(chosen: Chosen, trace: Trace) -> Iterator[list[Any]]:
    source = source_of(chosen, trace.run)
    found = lab().store.every_step(source.id, source.step) if isinstance(source, RunRow) else imported.rows(source)
    for step in found:
        yield [step.step, step.tokens, step.env_steps, step.seconds, step.metrics]
