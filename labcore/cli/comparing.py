"""The commands `compare` and `import`: compare runs, also with runs of other tools. Neither trains anything."""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from labcore.analysis.compare import budget, frontier
from labcore.analysis.compare.budget import FINAL
from labcore.analysis.compare.groups import CHANGED, changes_text, groups
from labcore.analysis.compare.loading import load
from labcore.analysis.compare.statistics import LAST, Comparison, Mean
from labcore.analysis.compare.table import Row, Table, compare
from labcore.analysis.estimate import FEWEST
from labcore.catalog.metrics import METRICS
from labcore.cli.adding import Add
from labcore.errors import LabError, listed, quoted
from labcore.exports.capsules.importing import import_capsule
from labcore.runs.files.jsonl import read_bytes
from labcore.runs.files.paths import path_of
from labcore.runs.files.untrusted import opened
from labcore.runs.imports import imported
from labcore.runs.store.store import Store
from labcore.runs.titles import title, with_titles
from labcore.runs.traces import AXES

_NONE = "–"
_WORDS = {"parent": "fork of", "twin": "its parent's random numbers"}  # what is no knob, as the pages call it


def add_to(add: Add) -> None:
    """Add both commands to the parser by its `add(name, command, help)`."""
    side = add("compare", compare_runs, "compare runs: their results, costs and statistical evidence")
    side.add_argument("runs", nargs="*", metavar="RUN", help="the id of a run or of an imported one, or a metrics "
                      "file")
    side.add_argument("--project", help="compare all runs of this project as well")
    side.add_argument("--metric", help="the metric (default: the first chart that all of them have)")
    side.add_argument("--axis", choices=list(AXES), help="compare at equal values of this axis only (default: of every "
                      "axis that the runs share)")
    side.add_argument("--baseline", metavar="RUN", help="the run whose group is the baseline")
    side.add_argument("--json", action="store_true", help="print JSON")

    take = add("import", import_files, "import the metrics of another tool (TRL, verl, W&B, Stable-Baselines3) as CSV, "
               "JSON or Parquet, or the run of a capsule")
    take.add_argument("files", nargs="*", metavar="FILE", help="without FILE: list the imports")
    take.add_argument("--label", default="", help="the group it is compared in; files of one label are its seeds")
    take.add_argument("--json", action="store_true", help="print JSON")


def compare_runs(options: argparse.Namespace) -> int:
    """Print the table of some runs."""
    if options.metric and options.metric not in METRICS:
        raise LabError(f"There is no metric {quoted(options.metric)}: see the header of an exported metrics.csv.")
    store = Store()
    names = list(dict.fromkeys([*options.runs, *(of_project(store, options.project) if options.project else [])]))
    if not names:
        raise LabError("There is nothing to compare: name some runs, or give --project.")
    traces = load(store, names)
    table = compare(traces, options.metric, options.baseline)
    if shared := budget.shared_time(store.runs_named([trace.run for trace in traces if trace.spec]).values()):
        table = replace(table, notes=(*table.notes, shared))
    if options.axis:
        table = table.only(options.axis)
    judged = groups([trace for trace in traces if trace.metrics])
    leading = next(iter(table.verdicts), FINAL)
    if leading in table.equal:  # the plane shows what the first verdict is of
        judged = [group.until(leading, table.equal[leading]) for group in judged]
    plane = frontier.points(judged, table.metric) if table.better == "higher" else []
    if options.json:
        print(json.dumps(table.to_json() | {"frontier": [asdict(point) for point in plane]}, ensure_ascii=False,
                         indent=2))
    else:
        parts = (_head(table), _verdicts(table), _plane(plane, _where(table, leading)), _settings(table, store),
                 "\n".join(table.notes))
        print("\n\n".join(filter(None, parts)))
    return 0


def of_project(store: Store, project: str) -> list[str]:
    """The runs of a project that have made a step, and its imported metrics, oldest first. Raises LabError if it has
    none of either."""
    rows = [(row.created, row.id, row.project) for row in store.runs(begun=True)]
    rows += [(each.created, each.id, each.project) for each in imported.listed(store)]
    found = [name for _, name, theirs in sorted(rows) if theirs.casefold() == project.casefold()]
    if not found:
        known = f" (known: {listed([*store.projects()])})" if store.projects() else ""
        raise LabError(f"The project {quoted(project)} has no run that made a step{known}: python -m labcore mark RUN "
                       f"--project NAME puts runs into a project.")
    return found


def import_files(options: argparse.Namespace) -> int:
    """Import metrics files, all or none of them, or run capsules; without files list what was imported."""
    if any(map(_is_zip, options.files)):
        return _import_capsules(options)
    contents = [(path.name, read_bytes(path)) for path in map(path_of, options.files)]
    store = Store()
    kept = imported.keep_all(store, contents, options.label)
    shown = kept if options.files else imported.listed(store)
    if options.json:
        print(json.dumps([asdict(about) for about in shown], ensure_ascii=False, indent=2))
        return 0
    if not shown:
        print("Nothing imported yet: python -m labcore import log_history.csv")
    for about in shown:
        print(f"{about.id:<40} {about.steps:>6} rows  {about.label}")
        if options.files:
            pairs = ", ".join(key if key == column else f"{key} from {column}" for key, column in about.mapped.items())
            print("\n".join([f"    read: {pairs}", *(f"    left in the file: {', '.join(columns)} ({why})"
                                                     for why, columns in imported.by_reason(about.left).items()),
                             *(f"    {note}" for note in about.notes)]))
    return 0


def _is_zip(file: str) -> bool:
    with opened(path_of(file)) as content:
        return file.lower().endswith(".zip") or (zipfile.is_zipfile(content) and not file.lower().endswith(".xlsx"))


def _import_capsules(options: argparse.Namespace) -> int:
    if options.label or not all(map(_is_zip, options.files)):
        raise LabError("Import run capsules without other files; each keeps its own name: remove --label and metrics "
                       "files.")
    store = Store()
    kept = [import_capsule(store, file) for file in options.files]
    for run_id in kept:
        run = store.run(run_id)
        print(f"labcore: {title(run)}: {with_titles(run.message, lambda: store)}", file=sys.stderr)
    print(json.dumps(kept) if options.json else "\n".join(kept))
    return 0


def _head(table: Table) -> str:
    """One line per group: its results and their cost."""
    metric = METRICS[table.metric]
    unit = ", ".join(part for part in (metric.unit, f"{table.better} is better" if table.better else "") if part)
    titles = ["group", "seeds", "final [95 %]", *(["best"] if table.better else []), *(
        f"at {place:z,.4g} {AXES[axis]}" if place < 1e4 else f"at {place:z,.0f} {AXES[axis]}"
        for axis, place in table.equal.items()), "mean seconds (range)", "memory MB", "holds"]
    lines = [[row.label + (" *" if row.label == table.baseline else ""), str(row.seeds),
              _mean(row.final, metric.digits),
              *([_number(row.best, metric.digits)] if table.better else []),
              *(_number(row.equal.get(axis), metric.digits) for axis in table.equal),
              _range(row), _number(row.memory, 0), " + ".join(row.models) or _NONE] for row in table.rows]
    pinned = ["* the baseline"] if table.baseline else []
    said = f"{metric.key}{f' ({unit})' if unit else ''}, value per run: mean of its last {LAST} steps"
    return "\n".join([said, *lay_out([titles, *lines], right=True), *pinned])


def _verdicts(table: Table) -> str:
    """The comparisons: each group with the baseline, else the leader with each."""
    if len(table.rows) < 2:
        return ""
    parts, digits = [], METRICS[table.metric].digits
    for measure in table.verdicts:
        leader, _ = table.leaders[measure]
        where = _where(table, measure)
        if table.baseline:
            lines = [[row.label, f"Δ {_mean(row.deltas[measure], digits, sign=True)}",
                      _compared(row.comparisons[measure], row.label, table.baseline)]
                     for row in table.rows if row.label != table.baseline]
            parts.append("\n".join([f"{where}, against {table.baseline}", *lay_out(lines)]))
        else:
            against = table.comparisons[measure][leader]
            lines = [[label, _compared(each, leader, label)] for label, each in against.items()]
            parts.append("\n".join([f"{where}, {leader} against", *lay_out(lines)]))
    return "\n".join([*parts, *filter(None, [budget.why_not_at_the_end(table.spent)])])


def _where(table: Table, measure: str) -> str:
    return "at the end" if measure == FINAL else f"at equal {AXES[measure]} ({table.equal[measure]:z,.6g} each)"


def _compared(comparison: Comparison, a: str, b: str) -> str:
    """"P 0.89 [0.67, 1.00], p = 0.20: tie"; words alone where the numbers of a few seeds would mean nothing."""
    if comparison.verdict == "none":
        return f"no comparison: too few seeds, {FEWEST} on each side are needed"
    said = {"A": f"{a} wins", "B": f"{b} wins", "tie": "tie"}[comparison.verdict]
    return (f"P(A>B) {comparison.p:z.2f} [{comparison.low:z.2f}, {comparison.high:z.2f}], "
            f"{comparison.p_value_text}: {said}")


def _plane(points: Sequence[frontier.Point], where: str) -> str:
    if len(points) < 2:
        return ""
    lines = [[point.label, f"{point.reward:z.3f}", f"{point.cost:z.4f}", "Pareto-optimal" if point.on_front else ""]
             for point in sorted(points, key=lambda point: point.cost)]
    return "\n".join([f"reward and KL to the reference (nats/token), {where}", *lay_out(lines)])


def _settings(table: Table, store: Store) -> str:
    """The settings that differ, one line each."""
    if not table.config:
        return ""
    lines = [[_WORDS.get(key, key), *(with_titles(_value(value, key), lambda: store) for value in values)]
             for key, values in table.config.items()]
    return "\n".join(lay_out([["what differs", *(row.label for row in table.rows)], *lines]))


def _value(value: Any, key: str) -> str:
    if value is None:
        return _NONE
    if key == "twin":
        return "on" if value else "off"
    if key == CHANGED:
        value = changes_text(value)
    text = f"{value:g}" if isinstance(value, float) else str(value).replace("\n", " ")
    return text if len(text) <= 40 else f"{text[:39]}…"


def _number(mean: Mean | None, digits: int) -> str:
    return _NONE if mean is None else f"{mean.mean:z.{digits}f}"


def _range(row: Row) -> str:
    """The mean of the seconds of a group's runs, and their range where there are several."""
    ends = f" ({min(row.durations):z.1f} to {max(row.durations):z.1f})" if len(row.durations) > 1 else ""
    return _number(row.seconds, 1) + ends


def _mean(mean: Mean | None, digits: int, sign: bool = False) -> str:
    if mean is None:
        return _NONE
    form = f"{'+' if sign else ''}.{digits}f"
    return f"{mean.mean:{form}}" + ("" if mean.low is None else f" [{mean.low:{form}}, {mean.high:{form}}]")


def lay_out(rows: Sequence[Sequence[str]], right: bool = False) -> list[str]:
    """Lines of columns in line: the first to the left, the others too or to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) if right and index else cell.ljust(width)
                      for index, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip() for row in rows]
