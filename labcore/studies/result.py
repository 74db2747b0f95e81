"""The result of a study: what its finished runs say of the claim, contrast by contrast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labcore.compare.loading import load
from labcore.compare.statistics import LEVEL
from labcore.errors import LabError
from labcore.jobs import jobs
from labcore.store.store import Store
from labcore.studies import measures, verdict
from labcore.studies.plan import Runs
from labcore.studies.study import Contrast, Measure, Study
from labcore.studies.verdict import Estimate, Verdict


@dataclass(frozen=True)
class Finding:
    """A contrast in numbers."""

    contrast: Contrast
    estimate: Estimate
    verdict: Verdict


@dataclass(frozen=True)
class Result:
    """A study's findings and their verdict together. `values`: a number per seed for each measure and setting."""

    findings: tuple[Finding, ...]
    verdict: Verdict
    values: Mapping[tuple[Measure, str], tuple[float, ...]]
    seconds: float  # that its runs took, together


def needed(study: Study, runs: Runs) -> list[jobs.Spec]:
    """The jobs that a result needs beside the runs' own rows, each once."""
    found = [spec for measure, label in _wanted(study) for row in runs.finished()[label]
             if (spec := measures.asked(measure, row))]
    return list({jobs.job_id(spec): spec for spec in found}.values())


def result(store: Store, study: Study, runs: Runs) -> Result | None:
    """What the finished runs say; None where a setting has none, or a job that is `needed` is not done.

    Raises:
        LabError: a run does not have the number that is compared, its knobs were changed mid-run, or a job failed.
    """
    finished = runs.finished()
    if not all(finished.values()) or not _done(study, runs):
        return None
    values = {}
    rows = {row.id: row for each in finished.values() for row in each}
    metrics = dict.fromkeys(metric for measure, _ in _wanted(study) for metric in measures.metrics_of(measure))
    traces = {trace.run: trace for trace in load(store, list(rows), list(metrics))}
    if moved := next((trace.run for trace in traces.values() if trace.changes), None):
        raise LabError(f"A knob of the run {moved} was changed mid-run, so it is no longer the study's: delete the "
                       "run, then run what is missing of the study.")
    for measure, label in _wanted(study):
        values[measure, label] = tuple(measures.of_run(measure, row, traces[row.id]) for row in finished[label])
    level = verdict.level_of(len(study.deciding))
    findings = tuple(_finding(contrast, {label: values[contrast.measure, label] for label in contrast.weights}, level)
                     for contrast in study.contrasts)
    return Result(findings, verdict.together(each.verdict for each in findings if each.contrast.decides), values,
                  sum(row.seconds for row in runs.all))


def _finding(contrast: Contrast, values: Mapping[str, tuple[float, ...]], level: float) -> Finding:
    found = verdict.estimate(values, contrast.weights, level if contrast.decides else LEVEL)
    return Finding(contrast, found, verdict.judged(found, contrast.low, contrast.high))


def _wanted(study: Study) -> list[tuple[Measure, str]]:
    """Which number of which setting, each once."""
    return list(dict.fromkeys((contrast.measure, label) for contrast in study.contrasts for label in contrast.weights))


def _done(study: Study, runs: Runs) -> bool:
    for spec in needed(study, runs):
        outcome = jobs.outcome(jobs.job_id(spec))
        if outcome is None:
            return False
        if outcome.result is None:
            raise LabError(f"{study.title} cannot be measured: {outcome.error}")
    return True
