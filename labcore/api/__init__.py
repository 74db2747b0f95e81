"""The lab from Python: train, steer, compare and export runs in a script or a notebook.

    from labcore import api

    run = api.train("grpo", task="sort", steps=50, beta=0.1)
    run.metrics()["reward"].plot()
    api.compare(run, run.fork(beta=0.0))

It uses the same store as the pages and the command line, and the numbers are the same. torch is imported only when a
run starts in this process; runs in the background have their own processes. Every error that the user can fix is a
`LabError`, whose message says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from labcore.analysis.compare.loading import load as traces_of
from labcore.analysis.compare.table import compare as table_of
from labcore.api.processes import close, store
from labcore.api.run import Run, started
from labcore.catalog import kinds
from labcore.catalog.metrics import METRICS
from labcore.cli.data_files import kept_data
from labcore.errors import LabError, quoted
from labcore.runs.files.paths import path_of
from labcore.runs.lists.all_runs import Shelf
from labcore.runs.lists.search import search
from labcore.runs.spec import cautions
from labcore.runs.spec.model_names import model_of_name
from labcore.runs.spec.run_spec import RunSpec, default_threads, make
from labcore.tasks.file_kinds import task_for
from labcore.tasks.layouts import names_of
from labcore.tasks.task import check_data

__all__ = ["Run", "close", "compare", "load", "runs", "train"]


def train(algorithm: str | None = None, *, task: str | None = None, kind: str = "llm", model: str | None = None,
          data: str | Path | None = None, seed: int = 0, steps: int | None = None, device: str = "auto",
          background: bool = False, progress: bool = True, **knobs: Any) -> Run:
    """Train a run: `train("grpo", task="sort", steps=50, beta=0.1)`.

    It shows a progress bar and returns when the run has ended; with `background` it returns at once. Omitted arguments
    have the defaults of the `kind` ("llm", "exact", "maze" or "cartpole"). `model` is a built-in model, a Hugging Face
    folder or id, or an earlier run; `data` is a file of prompts, preferences or text. `python -m labcore list` shows
    algorithms and tasks, `list grpo` the knobs of one. The `state` and `message` of the run tell if it failed, and why.

    Raises:
        LabError: an unknown name, a value out of bounds, a file that cannot be read, or settings that do not fit.
    """
    return started(_spec(algorithm, task, kind, model, data, seed, steps, device, knobs), background, progress)


def load(run_id: str) -> Run:
    """The run of this id, as `runs()` and the pages show it. Raises LabError where there is none."""
    store().run(run_id)
    return Run(run_id)


def runs(query: str = "") -> pd.DataFrame:
    """Your runs, newest first, one row each (the index is the id), or those that a search finds. Runs of lessons and of
    studies are left out, unless the query names their project: `runs("project=Lessons")`.

    The columns are title, algorithm, task, model, seed, state, step, steps, seconds, metric, last, best and tags. A
    query is that of the page Runs: `runs("grpo beta>0.05 -failed tag=paper")`.

    Raises:
        LabError: the query cannot be read.
    """
    found = search(Shelf(store()).entries(), query)
    return pd.DataFrame([{
        "id": each.id, "title": each.title, "algorithm": each.algorithm, "task": each.task, "model": each.model,
        "seed": each.seed, "state": each.state, "step": each.step, "steps": each.steps, "seconds": each.seconds,
        "metric": each.summary.metric, "last": each.summary.last, "best": each.summary.best, "tags": each.tags}
        for each in found], columns=["id", *_LISTED]).set_index("id")


_LISTED = ("title", "algorithm", "task", "model", "seed", "state", "step", "steps", "seconds", "metric", "last",
           "best", "tags")


def compare(*compared: Run | str, metric: str | None = None) -> pd.DataFrame:
    """Compare runs: runs that differ by their seed only are one group, and each group is a row (the index).

    The columns are seeds, final (mean over the seeds of the last steps), low and high (its 95 % interval, from three
    seeds on), best, seconds, and for each measure at which the runs can be judged ("final", or at equal updates, tokens
    or seconds) `better_than: …`, the groups that this one is better than by Welch's test. `metric` None: the first
    chart that all of them have. `attrs["metric"]` and `attrs["notes"]` say what was compared.

    Raises:
        LabError: there is no such run or metric, or the runs share no metric.
    """
    if metric and metric not in METRICS:
        raise LabError(f"There is no metric {quoted(metric)}: see the columns of Run.metrics().")
    table = table_of(traces_of(store(), [each if isinstance(each, str) else each.id for each in compared]), metric)
    rows = [{"group": row.label, "seeds": row.seeds, **_of_mean(row.final), "best": row.best and row.best.mean,
             "seconds": row.seconds and row.seconds.mean, **{
                 f"better_than: {measure}": [
                     other for other, each in table.comparisons[measure].get(row.label, {}).items()
                     if each.verdict == "A"] for measure in table.verdicts}}
            for row in table.rows]
    frame = pd.DataFrame(rows).set_index("group")
    frame.attrs.update(metric=table.metric, notes=list(table.notes))
    return frame


def _of_mean(mean: Any) -> dict[str, float | None]:
    return {"final": mean and mean.mean, "low": mean and mean.low, "high": mean and mean.high}


def _spec(algorithm: str | None, task: str | None, kind: str, model: str | None, data: str | Path | None, seed: int,
          steps: int | None, device: str, knobs: Mapping[str, Any]) -> RunSpec:
    """The spec that `train` is asked for. Raises LabError."""
    usual = kinds.kind(kind)
    algorithm = algorithm or usual.algorithm
    named = model and model_of_name(model)
    kept = kept_data(path_of(data)) if data else None
    if kept and (task is None or kinds.task(task, kind).data):
        row = kinds.task(task or next(key for key, each in usual.tasks.items() if each.data), kind)
        task = task_for(kept, row, [kinds.algorithm(algorithm, kind)], usual.tasks, names_of(knobs)).key
    spec = make(kind=kind, algorithm_key=algorithm, task_key=task or usual.task, model=named,
                knobs={**usual.unwatched, **knobs}, seed=seed, steps=steps, device=device,
                threads=default_threads(named), data=str(kept) if kept else None)
    if spec.data:
        check_data(spec.task_row, spec.data, spec.knobs)
    if why := cautions.fault(spec):
        raise LabError(why)
    return spec
