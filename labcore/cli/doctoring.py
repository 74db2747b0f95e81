"""The command `doctor`: diagnose runs, and metrics of other tools."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labcore.analysis.compare.groups import groups
from labcore.analysis.compare.loading import is_file, load
from labcore.analysis.doctor.doctor import Doctor, course, payload
from labcore.analysis.doctor.finding import Change, Finding, few_seeds
from labcore.analysis.doctor.rules import ordered
from labcore.analysis.estimate import FEWEST
from labcore.cli.adding import Add
from labcore.errors import LabError
from labcore.runs import fork
from labcore.runs.files.jsonl import read_bytes
from labcore.runs.files.paths import is_import, path_of
from labcore.runs.imports import imported
from labcore.runs.imports.reading import parse
from labcore.runs.spec.run_spec import knobs_of
from labcore.runs.store.rows import ENDED, RunRow
from labcore.runs.store.store import Store
from labcore.runs.titles import with_id


@dataclass(frozen=True)
class Report:
    """One run: what holds at its last step, and all that began and ended before."""

    name: str
    step: int
    findings: list[Finding]
    said: list[Change]
    row: RunRow | None = None  # none of another tool's run

    def since(self, finding: Finding) -> int:
        """The step at which a finding that holds began."""
        return max(change.step for change in self.said if change.rule == finding.rule)


def add_to(add: Add) -> None:
    """Add the command to the parser by its `add(name, command, help)`."""
    sub = add("doctor", doctor, "diagnose a run: findings, their evidence, and fixes")
    sub.add_argument("runs", nargs="+", metavar="RUN|FILE", help="the id of a run or of an imported one, or a metrics "
                     "file of another tool; for several runs, it also says whether they have enough seeds to compare")
    sub.add_argument("--json", action="store_true", help="print JSON")


def doctor(options: argparse.Namespace) -> int:
    """Print the findings. Returns 0 whatever they are: a finding is an answer, not a failure."""
    store = Store()
    traces = load(store, options.runs, metrics=()) if len(options.runs) > 1 else []
    reports = [report for name in options.runs for report in _reports(store, name)]
    few = few_seeds({group.label: len(group.traces) for group in groups(traces)}, FEWEST) if traces else None
    if options.json:
        print(json.dumps({"runs": [_as_json(report) for report in reports],
                          "together": [asdict(few)] if few else []}, ensure_ascii=False, indent=2))
    else:
        print("\n\n".join([*map(_in_words, reports), *(["\n".join(["Together", *_lines(few)])] if few else [])]))
    return 0


def _reports(store: Store, name: str) -> list[Report]:
    """Of a run, of an imported one, or of each run in a metrics file."""
    if is_import(name):
        imported.check(store, name)
        return [_report(imported.with_id(name), *course(None, imported.steps(name)))]
    if is_file(name):
        found = parse(Path(name).name, read_bytes(path_of(name)))
        return [_report(name if len(found) == 1 else f"{name} {run.label}", *course(None, run.steps()))
                for run in found]
    row = store.run(name)
    after, said = course(row.spec, store.every_step(name, row.step), store.events_after(name))
    if row.state == "diverged":
        said = [*said, after.diverged(row.step + 1, row.message)]
    if not said and not after.step:
        raise LabError(f"The run {name} has no step yet: ask the doctor when it has made some.")
    return [_report(name, after, said, row)]


def _report(name: str, after: Doctor, said: list[Change], row: RunRow | None = None) -> Report:
    return Report(name, after.step, after.findings, said, row)


def _as_json(report: Report) -> dict[str, Any]:
    return {"run": report.name, "step": report.step,
            "findings": [asdict(each) | {"since": report.since(each)} for each in report.findings],
            "course": [{"step": change.step} | payload(change) for change in report.said]}


def _in_words(report: Report) -> str:
    """The findings that hold, then those that have passed."""
    passed = ordered([change.finding for change in report.said if change.finding
                      and all(change.finding.rule != each.rule for each in report.findings)])
    name = with_id(report.row) if report.row else report.name
    lines = [f"{name}, step {report.step:,}: " + ("healthy" if not report.findings else
             f"{len(report.findings)} finding{'s' if len(report.findings) > 1 else ''}")]
    for each in report.findings:
        lines += _lines(each, f" (since step {report.since(each):,})", _command(report.row, each))
    lines += [f"  passed   {text}" for text in dict.fromkeys(each.text for each in passed)]
    return "\n".join(lines)


def _lines(each: Finding, since: str = "", command: str = "") -> Sequence[str]:
    return [f"  {each.severity:<8} {each.text}{since}", f"           Fix: {each.fix}",
            *([f"           {command}"] if command else [])]


def _command(row: RunRow | None, each: Finding) -> str:
    """The command that sets the knob of a fix: in the run while the run is active and can take the change, otherwise in
    a fork; empty if neither is possible."""
    if row is None or not each.knob:
        return ""
    [knob] = [knob for knob in knobs_of(row.spec.row, row.spec.task_row) if knob.key == each.knob]
    if row.state not in ENDED and knob.effect != "restart":
        return f"python -m labcore set {row.id} {each.knob}={each.value}"
    if knob not in fork.movable(row.spec, row.spec.algorithm):
        return ""
    return f"python -m labcore fork {row.id} --set {each.knob}={each.value}"
