"""The recorded results of the studies, as the lab's authors ran them: shown beside a reader's own result."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from labcore.analysis.estimate import Estimate
from labcore.analysis.studies import plan
from labcore.analysis.studies.result import Result
from labcore.analysis.studies.rows import STUDIES
from labcore.analysis.studies.study import Study
from labcore.analysis.studies.verdict import Verdict

FILE = Path(__file__).with_name("recorded.json")


@dataclass(frozen=True)
class Recorded:
    """A study's result with its `date`, the kind of `machine`, and the `seconds` that its `runs` took together.

    `findings` have an estimate and a verdict by the contrast's label. `capsule` is the file of the winner's capsule in
    docs/studies, `run` the run in it, and `digest` the SHA-256 of that file. If a claim needed more seeds, there are
    more `runs` than the study's default number, which stands for a number that was not recorded.
    """

    date: str
    machine: str
    seconds: float
    verdict: Verdict
    findings: dict[str, tuple[Estimate, Verdict]]
    capsule: str = ""
    run: str = ""
    digest: str = ""
    runs: int = 0

    def seconds_of(self, study: Study, count: int) -> float:
        """The time that so many runs of the study took."""
        return self.seconds / (self.runs or len(plan.every(study))) * count

    def to_json(self) -> dict[str, Any]:
        """As `read` takes it."""
        return {**asdict(self), "findings": {label: {**asdict(found), "verdict": verdict}
                                             for label, (found, verdict) in self.findings.items()}}


def of_result(found: Result, **rest: Any) -> Recorded:
    """A result as it is kept; `rest` are the other fields."""
    return Recorded(seconds=round(found.seconds), verdict=found.verdict, findings=found.by_label, **rest)


@cache
def read() -> dict[str, Recorded]:
    """The recorded results by the study's key, without studies whose contrasts have changed since."""
    if not FILE.exists():
        return {}
    found = {key: _one(fields) for key, fields in json.loads(FILE.read_text("utf-8")).items() if key in STUDIES}
    return {key: each for key, each in found.items()
            if {*each.findings} == {contrast.label for contrast in STUDIES[key].contrasts}}


def _one(fields: dict[str, Any]) -> Recorded:
    findings = {label: (Estimate(found["mean"], found["low"], found["high"], found["seeds"]), found["verdict"])
                for label, found in fields["findings"].items()}
    return Recorded(**{**fields, "findings": findings})
