"""The result of a study: the verdict of its finished runs on the claim, contrast by contrast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from labcore.analysis.compare.loading import load
from labcore.analysis.estimate import LEVEL, Estimate, estimate, level_of
from labcore.analysis.studies import verdict
from labcore.analysis.studies.plan import Runs
from labcore.analysis.studies.study import Contrast, Measure, Study
from labcore.analysis.studies.verdict import Verdict
from labcore.catalog import choices
from labcore.errors import LabError
from labcore.llm.sizing.cost import cost_asked
from labcore.runs import jobs
from labcore.runs.files import step_files, storage
from labcore.runs.store.rows import RunRow
from labcore.runs.store.store import Store
from labcore.runs.traces import Trace

# ---------------------------------------------------------------- measures
# The numbers that studies compare, one of a run each. What a checkpoint has to be asked for is a job's affair.

PROMPTS = 256  # that a checkpoint answers for "top_mass"
QUESTIONS = 1024  # for "solved": the same ones for every run of a study, drawn as the task draws them


def of_run(measure: Measure, row: RunRow, trace: Trace) -> float:
    """The value of a measure for one run. Raises LabError if the run does not have it."""
    found = _TAKEN[measure.how](measure, row, trace)
    if not np.isfinite(found):
        raise LabError(f"The run {row.id} has no data for {measure.words!r}: run the study again.")
    return float(found)


def metrics_of(measure: Measure) -> list[str]:
    """The metrics of a run from which a measure is taken."""
    return [measure.metric] if measure.how in ("last", "mean", "change") else []


def asked(measure: Measure, row: RunRow) -> jobs.Spec | None:
    """The job that computes the measure, if the run's own rows do not have it."""
    if measure.how == "step_seconds":
        return {**cost_asked(row.spec), "repeat": row.spec.seed}
    if measure.how == "solved":
        knobs = {key: row.spec.knobs[key] for key in ("temperature", "top_k", "top_p", "max_new_tokens")}
        return {"job": "quiz", "models": [f"{row.id}@{row.step}"], "count": QUESTIONS, "seed": 0, **knobs}
    if measure.how != "top_mass":
        return None
    name = f"{measure.model}:{row.id}" if measure.model else f"{row.id}@{row.step}"
    return {"job": "action_space", "models": [name], "count": PROMPTS, "seed": row.spec.seed}


def _column(measure: Measure, trace: Trace) -> np.ndarray:
    column = trace.column(measure.metric)[1]
    return column if column.size else np.array([np.nan])


def _last(measure: Measure, row: RunRow, trace: Trace) -> float:
    return float(_column(measure, trace)[-measure.rows:].mean())


def _mean(measure: Measure, row: RunRow, trace: Trace) -> float:
    return float(_column(measure, trace).mean())


def _change(measure: Measure, row: RunRow, trace: Trace) -> float:
    column = _column(measure, trace)
    return float(column[-measure.rows:].mean() - column[:measure.rows].mean())


def _step_seconds(measure: Measure, row: RunRow, trace: Trace) -> float:
    """Of the fastest step that the job made, processor time: what else the machine does can only make one slower."""
    found = jobs.outcome(jobs.job_id(asked(measure, row) or {}))
    return min(found.result["seconds"]) if found and found.result else np.nan


def _models(measure: Measure, row: RunRow, trace: Trace) -> float:
    """Networks in memory. A verifier counts as the reward model in whose place it stands."""
    spec = row.spec
    scorer = choices.needs_reward_model(spec.knobs)
    return len(spec.row.models) + (len(str(spec.knobs["reward_model"]).split(",")) if scorer else 1)


def _top_mass(measure: Measure, row: RunRow, trace: Trace) -> float:
    """The mass of the likeliest tokens, mean over the positions after the first that the job looked at."""
    found = jobs.outcome(jobs.job_id(asked(measure, row) or {}))
    return mass_of(found.result, measure.top) if found and found.result else np.nan


def mass_of(result: Mapping[str, Any], top: int) -> float:
    """The mean of the job's masses of the `top` likeliest tokens, each position weighing as its completions."""
    rows, place = result["columns"][0]["positions"][1:], result["top"].index(top)
    if not rows:
        return np.nan
    return float(np.average([row["mass"][place] for row in rows], weights=[row["samples"] for row in rows]))


def _solved(measure: Measure, row: RunRow, trace: Trace) -> float:
    """The share of right answers, one for each prompt, at the run's own temperature."""
    found = jobs.outcome(jobs.job_id(asked(measure, row) or {}))
    if not found or not found.result:
        return np.nan
    return float(np.mean([bool(answer["exact"]) for answer in found.result["columns"][0]["answers"]]))


def _wrong_length(measure: Measure, row: RunRow, trace: Trace) -> float:
    """Mean length in tokens of the completions that are not right, in the sampled steps among the last `rows`.

    Older samples hold the first groups of a batch in place of all its lengths: a part that was not chosen either."""
    storage.fetch_run(row.id)
    lengths = [length for step in step_files.steps_of(row.id, "samples") if step > row.step - measure.rows
               for length in _wrong_lengths(step_files.read(step_files.path_of(row.id, "samples", step),
                                                            "run the study's run again"))]
    return float(np.mean(lengths)) if lengths else np.nan


def _wrong_lengths(samples: Mapping[str, Any]) -> list[int]:
    if "wrong_lengths" in samples:
        return list(samples["wrong_lengths"])
    return [len(completion["tokens"]) for group in samples["groups"] for completion in group["completions"]
            if completion["exact"] is False]


_TAKEN = {"last": _last, "mean": _mean, "change": _change, "step_seconds": _step_seconds, "models": _models,
          "top_mass": _top_mass, "wrong_length": _wrong_length, "solved": _solved}


# ---------------------------------------------------------------- result

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

    @property
    def by_label(self) -> dict[str, tuple[Estimate, Verdict]]:
        return {each.contrast.label: (each.estimate, each.verdict) for each in self.findings}


def needed(study: Study, runs: Runs) -> list[jobs.Spec]:
    """The jobs whose results are needed besides the runs' own rows, each once."""
    found = [spec for measure, label in _wanted(study) for row in runs.finished()[label]
             if (spec := asked(measure, row))]
    return list({jobs.job_id(spec): spec for spec in found}.values())


def result(store: Store, study: Study, runs: Runs) -> Result | None:
    """The result of the finished runs; None where a setting has none, or a job that is `needed` is not done. Raises
    LabError if a run does not have the number that is compared, its knobs were changed mid-run, or a job failed."""
    finished = runs.finished()
    if not all(finished.values()) or not _done(study, runs):
        return None
    values = {}
    rows = {row.id: row for each in finished.values() for row in each}
    metrics = dict.fromkeys(metric for measure, _ in _wanted(study) for metric in metrics_of(measure))
    traces = {trace.run: trace for trace in load(store, list(rows), list(metrics))}
    if moved := next((trace.run for trace in traces.values() if trace.changes), None):
        raise LabError(f"A knob of the run {moved} was changed mid-run, so it no longer matches the study: delete it, "
                       "then run the missing runs of the study.")
    for measure, label in _wanted(study):
        values[measure, label] = tuple(of_run(measure, row, traces[row.id]) for row in finished[label])
    level = level_of(len(study.deciding))
    findings = tuple(_finding(contrast, {label: values[contrast.measure, label] for label in contrast.weights}, level)
                     for contrast in study.contrasts)
    return Result(findings, verdict.together(each.verdict for each in findings if each.contrast.decides), values,
                  sum(row.seconds for row in runs.counted))


def _finding(contrast: Contrast, values: Mapping[str, tuple[float, ...]], level: float) -> Finding:
    found = estimate(values, contrast.weights, level if contrast.decides else LEVEL)
    return Finding(contrast, found, verdict.judged(found, contrast.low, contrast.high))


def _wanted(study: Study) -> list[tuple[Measure, str]]:
    """The distinct pairs of a measure and a setting that the result needs."""
    return list(dict.fromkeys((contrast.measure, label) for contrast in study.contrasts for label in contrast.weights))


def _done(study: Study, runs: Runs) -> bool:
    for spec in needed(study, runs):
        outcome = jobs.outcome(jobs.job_id(spec))
        if outcome is None:
            return False
        if outcome.result is None:
            raise LabError(f"{study.title} cannot be measured: {outcome.error}")
    return True
