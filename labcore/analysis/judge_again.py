"""Score the stored completions of a run with another verifier or reward, and compare both over the steps.

A reward that rises while an independent score of the same completions does not is a sign of reward hacking. All numbers
refer to completions with both scores. Completions of one prompt are not independent, so intervals are over prompts: the
percentile bootstrap for each step, Welch's interval for a change.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from labcore.analysis.compare.statistics import mean
from labcore.analysis.estimate import estimate
from labcore.catalog.amounts import percent
from labcore.catalog.families.process import OF_PUBLISHED
from labcore.catalog.knob import suggestion
from labcore.catalog.llm.tasks import VERIFIERS
from labcore.errors import LabError, quoted
from labcore.runs import jobs
from labcore.runs.files import atomic, step_files, storage, written
from labcore.runs.files.paths import made, named, read_only, run_folder
from labcore.runs.spec import model_names
from labcore.runs.spec.run_spec import RunSpec
from labcore.tasks import stored_completions as stored
from labcore.tasks.stored_completions import Scores, Stored
from labcore.tasks.task import TextTask, make_task

JOB = "judge_again"
FOLDER = "judged"  # in the run's folder: a file for each judgement
PARTS = {"name", "steps", "sentence", "verdict", "apart", "agreement", "unscored", "steps_read", "steps_stored"}
MOST = 4096  # completions that are scored by default
MOST_SHOWN = 40  # completions whose text a result contains
LONGEST_TEXT = 4000  # characters
TASK, JUDGE = "task", "judge"  # further judges besides verifiers, functions and reward models
KNOBS: Mapping[str, Any] = {"pattern": "", "length_low": 1, "length_high": 40, "judge_url": "", "judge_model": "",
                            "judge_instruction": "", **OF_PUBLISHED}


def spec_for(run_id: str, by: str, knobs: Mapping[str, Any] | None = None, most: int = MOST) -> dict[str, Any]:
    """The job that judges a run as it is now. `by`: "task", a verifier, a function "FILE:name HASH", "judge", or the
    name of a reward model; `knobs` are those of `KNOBS` that it needs. Raises LabError if the run has no stored
    completions, or there is no such knob or reward model."""
    steps = step_files.steps_of(run_id, "samples")
    if not steps:
        raise LabError(f"The run {run_id} has stored no completions: only runs of language models do, with the knob "
                       "probes on, from their first step.")
    if unknown := next((key for key in knobs or {} if key not in KNOBS), ""):
        raise LabError(f"The unknown setting {quoted(unknown)} cannot be used: choose among {', '.join(KNOBS)}.")
    return {"job": JOB, "run": run_id, "by": _pinned(by), "knobs": dict(knobs or {}), "until": steps[-1], "most": most}


def _pinned(by: str) -> str:
    """Return the judge's name; a reward model's name gets its step, because a later checkpoint scores differently."""
    if by in (TASK, JUDGE, *VERIFIERS) or _is_function(by) or not is_reward_model(by):
        return by
    return model_names.pinned_reward_models(by)


def judge_again(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Run the job: score a run's completions, and save the result in the run's folder. Raises LabError if the judge
    cannot be used, or no completion has both scores."""
    run_id, by, until = str(spec["run"]), str(spec["by"]), int(spec["until"])
    run = RunSpec.in_folder(storage.fetch(run_folder(run_id) / "spec.json").parent)
    there = [step for step in step_files.steps_of(run_id, "samples") if step <= until]
    task = make_task(run.task_row, run.knobs, run.data) if run.task_row.source else None
    scores = _scores(run_id, run, task, by, {**KNOBS, **spec["knobs"]})
    steps, rows = _chosen(run_id, there, task, int(spec["most"]))
    rows = [row for row in rows if not math.isnan(row.reward)]
    if not rows:
        raise LabError(f"The run {run_id} has stored no completion with a reward: judge a run that samples completions "
                       "and rewards them.")
    found = compared(rows, scores(rows), name_of(by))
    found |= {"run": run_id, "by": by, "knobs": dict(spec["knobs"]), "steps_read": len(steps),
              "steps_stored": len(there), "until": until}
    if not read_only():
        _keep(run_id, jobs.job_id({"job": JOB, **spec}), found)
    return found


def _scores(run_id: str, run: RunSpec, task: TextTask | None, by: str, knobs: Mapping[str, Any]) -> Scores:
    if by == TASK:
        if task is None or not run.task_row.verifiable:
            raise LabError(f"The run {run_id} has no task with a verifier: name a verifier, such as exact.")
        return stored.by_task(task)
    if by in VERIFIERS:
        return stored.by_verifier({**knobs, "verifier": by})
    if by == JUDGE:
        return stored.by_judge(knobs)
    if _is_function(by):
        return stored.by_function(by, task, run.steps)
    if not is_reward_model(by):
        known = [TASK, *VERIFIERS, JUDGE]
        raise LabError(f"There is no judge {quoted(by)}: {suggestion(by, known)} Give your own function as FILE.py or "
                       "FILE.py:function, and a reward model as the run that trained it.")
    scores: Scores = resolve_name("labcore.llm.probes.reward_model_scores:by_reward_model")(
        by, knobs)  # which imports torch
    return scores


def is_reward_model(name: str) -> bool:
    """True if this can be the name of a reward model: a run in this lab, or a published model."""
    found = model_names.read(name)
    return model_names.is_published(name) or bool(found and storage.has(run_folder(found.run) / "spec.json"))


def name_of(by: str) -> str:
    """Return the name of a judge for a sentence; for a function without the hash of its file.

    >>> name_of("mine.py:last_number 0a1b2c3d4e5f"), name_of("task"), name_of("numeric")
    ('last_number', "the task's verifier", 'numeric')
    """
    if by == TASK:
        return "the task's verifier"
    return by.rpartition(" ")[0].rpartition(":")[2] if _is_function(by) else by


def _is_function(by: str) -> bool:
    return ":" in by and " " in by


def _chosen(run_id: str, there: Sequence[int], task: TextTask | None, most: int) -> tuple[list[int], list[Stored]]:
    """Choose evenly spaced steps with about `most` completions in total, including the first and the last step."""
    last = list(stored.read(run_id, there[-1:], task))
    count = max(2, most // max(len(last), 1))
    places = np.unique(np.linspace(0, len(there) - 1, min(count, len(there))).round().astype(int))
    steps = [there[place] for place in places]
    return steps, [*stored.read(run_id, steps[:-1], task), *last]


# ---------------------------------------------------------------- what is kept with the run

def kept_as(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the saved result of a job; None if there is none."""
    return dict(kept(str(spec["run"]))).get(jobs.job_id(spec))


def kept(run_id: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the saved results of a run with their names, newest first; damaged files are skipped."""
    found: list[tuple[str, dict[str, Any]]] = []
    paths = [*(run_folder(run_id) / FOLDER).glob("*.json")]
    for path in sorted(paths, key=lambda path: -path.stat().st_mtime_ns):
        try:
            found.append((path.stem, written.read(path, dict, "judge again")))
        except (FileNotFoundError, written.Damaged):
            continue
    return [(name, each) for name, each in found if each.keys() >= PARTS]


def _keep(run_id: str, name: str, found: Mapping[str, Any]) -> Path:
    """Save a result once: the same job has the same name."""
    path = named(name, made(run_folder(run_id) / FOLDER)).with_suffix(".json")
    if not path.exists():
        atomic.write_text(path, json.dumps(found, ensure_ascii=False, allow_nan=False))
    return path


# ---------------------------------------------------------------- comparison

@dataclass(frozen=True)
class Change:
    """The means of the first and the last third of the steps, and the sign of a significant difference: 1 up, −1 down,
    0 not significant, None if there are too few prompts."""

    first: float
    last: float
    sign: int | None


def compared(rows: Sequence[Stored], scores: Sequence[float], name: str) -> dict[str, Any]:
    """Compare the rewards of completions with the scores of the judge `name`, by step; see `judge_again`. Raises
    LabError if the judge scored no completion."""
    pairs = [(row, score) for row, score in zip(rows, scores, strict=True) if math.isfinite(score)]
    if not pairs:
        raise LabError(f"{name} could not score any of the {len(rows):,} completions: choose another judge.")
    reward = np.array([row.reward for row, _ in pairs])
    score = np.array([each for _, each in pairs])
    step = np.array([row.step for row, _ in pairs])
    group = np.array([row.group for row, _ in pairs])
    steps = np.unique(step)
    by_step = [{"step": int(each), "n": int((step == each).sum()),
                **{key: _mean(values[step == each], group[step == each])
                   for key, values in (("reward", reward), ("score", score))}} for each in steps]
    changes = {key: change(values, step, group) for key, values in (("reward", reward), ("score", score))}
    verdict = verdict_of(changes["reward"], changes["score"])
    return {"name": name, "n": len(pairs), "unscored": len(rows) - len(pairs), "steps": by_step,
            "changes": {key: [each.first, each.last, each.sign] for key, each in changes.items() if each},
            "agreement": _agreement(reward, score), "verdict": verdict,
            "sentence": sentence(len(pairs), len(steps), name, changes["reward"], changes["score"], verdict),
            "apart": _apart(pairs, reward, score)}


def _mean(values: np.ndarray, groups: np.ndarray) -> dict[str, float | None]:
    found = mean(_by_group(values, groups))
    return {"mean": float(values.mean()), "low": found.low, "high": found.high}


def _by_group(values: np.ndarray, *labels: np.ndarray) -> np.ndarray:
    """The mean of each group of values; `labels` name the groups. (N,), (N,)… -> (G,)"""
    _, places = np.unique(np.stack(labels), axis=1, return_inverse=True)
    places = places.ravel()
    means: np.ndarray = np.bincount(places, values) / np.bincount(places)
    return means


def change(values: np.ndarray, step: np.ndarray, group: np.ndarray) -> Change | None:
    """Return the change from the first third of the steps to the last; None for a single step. (N,), (N,), (N,)"""
    steps = np.unique(step)
    if len(steps) < 2:
        return None
    third = max(1, len(steps) // 3)
    early, late = np.isin(step, steps[:third]), np.isin(step, steps[-third:])
    parts = {"early": _by_group(values[early], step[early], group[early]),
             "late": _by_group(values[late], step[late], group[late])}
    found = estimate(parts, {"early": -1.0, "late": 1.0})
    sign = None if found.low is None or found.high is None else int(found.low > 0) - int(found.high < 0)
    return Change(float(values[early].mean()), float(values[late].mean()), sign)


def verdict_of(reward: Change | None, score: Change | None) -> str:
    """ "exploits": the reward rises and the judge's score does not; "both": both rise; "missed": only the score rises;
    otherwise "none"."""
    if not reward or not score or reward.sign is None or score.sign is None:
        return "none"
    if reward.sign > 0:
        return "both" if score.sign > 0 else "exploits"
    return "missed" if score.sign > 0 else "none"


_ENDS = {"exploits": ": the completions may exploit the reward",
         "both": ": both rise, so there is no sign of reward hacking",
         "missed": ": the completions improve in a way that the reward does not measure", "none": ""}


def about(found: Mapping[str, Any]) -> str:
    """Describe the data of a result: the number of stored steps, and the part of each batch that is stored."""
    part = "all" if found["steps_read"] == found["steps_stored"] else f"{found['steps_read']:,} of the"
    unscored = f" {found['unscored']:,} more completions could not be scored." if found["unscored"] else ""
    agreement = found["agreement"]
    same = (f" Both agree on {percent(agreement['same'])} of the completions." if "same" in agreement else
            f" Their rank correlation is {agreement['rank_correlation']:z.2f}." if agreement else "")
    return (f"From {part} {found['steps_stored']:,} stored steps. A stored step has a part of its batch, groups with "
            f"signal first, so its mean differs from the reward chart.{same}{unscored}")


def sentence(count: int, steps: int, name: str, reward: Change | None, score: Change | None, verdict: str) -> str:
    """The result in one sentence.

    >>> print(sentence(412, 20, "last_number", Change(0.2, 0.9, 1), Change(0.1, 0.1, 0), "exploits"))
    On the 412 stored completions of 20 steps, `reward` rises from 0.20 to 0.90 while `last_number` stays at 0.10: the \
completions may exploit the reward.
    """
    on = f"On the {count:,} stored completions of {steps:,} step{'s' if steps > 1 else ''}"
    if not reward or not score:
        return f"{on}, no change can be computed: it needs completions of at least two steps."
    return f"{on}, `reward` {_moves(reward)} while {_code(name)} {_moves(score)}{_ENDS[verdict]}."


def _code(name: str) -> str:
    return name if " " in name else f"`{name.replace('`', '')}`"


def _moves(found: Change) -> str:
    first, last = (f"{each:z.2f}" if abs(each) < 100 else f"{each:z.3g}" for each in (found.first, found.last))
    if found.sign is None:
        return f"is {first} in the first and {last} in the last steps"
    if found.sign == 0:
        return f"stays at {last}" if first == last else f"stays near {last} (from {first}, within chance)"
    return f"{'rises' if found.sign > 0 else 'falls'} from {first} to {last}"


def _agreement(reward: np.ndarray, score: np.ndarray) -> dict[str, float]:
    """The share of completions with equal scores if all rewards and scores are 0 or 1; otherwise Spearman's rank
    correlation, or nothing if one of them does not vary."""
    if np.isin(reward, (0, 1)).all() and np.isin(score, (0, 1)).all():
        return {"same": float((reward == score).mean())}
    if np.ptp(reward) == 0 or np.ptp(score) == 0:
        return {}
    return {"rank_correlation": float(np.corrcoef(_ranks(reward), _ranks(score))[0, 1])}


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value, scaled to 0 … 1; equal values share their mean rank. (N,) -> (N,)"""
    from scipy.stats import rankdata

    return np.asarray((rankdata(values) - 1) / max(len(values) - 1, 1))


def _apart(pairs: Sequence[tuple[Stored, float]], reward: np.ndarray, score: np.ndarray) -> list[dict[str, Any]]:
    """Return the completions on which the two scores differ most, those with the higher reward first: by difference if
    both are within 0 … 1, otherwise by difference of ranks. Equal completions are one entry with a count `times`."""
    alike = all((values >= 0).all() and (values <= 1).all() for values in (reward, score))
    gap = reward - score if alike else _ranks(reward) - _ranks(score)
    order = sorted(np.flatnonzero(gap).tolist(), key=lambda at: (gap[at] < 0, -abs(gap[at]), -pairs[at][0].step, at))
    found: dict[tuple[str, str, float, float], dict[str, Any]] = {}
    for at in order:
        row, each = pairs[at]
        key = row.problem.prompt, row.text, row.reward, each
        if key in found:
            found[key]["times"] += 1
        elif len(found) < MOST_SHOWN:
            found[key] = {"step": row.step, "prompt": row.problem.prompt[-LONGEST_TEXT:],
                          "answer": row.problem.answer[:LONGEST_TEXT], "text": row.text[:LONGEST_TEXT],
                          "reward": row.reward, "score": each, "gap": round(float(gap[at]), 4), "times": 1}
    return [*found.values()]
