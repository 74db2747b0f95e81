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

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from labcore.analysis.compare.loading import load as traces_of
from labcore.analysis.compare.table import compare as table_of
from labcore.catalog import kinds
from labcore.catalog.metrics import METRICS, ordered
from labcore.cli.data_files import kept_data
from labcore.errors import LabError, quoted
from labcore.exports import cell
from labcore.exports.folder import export_run
from labcore.runs import fork as forks
from labcore.runs import jobs, models, titles
from labcore.runs.files import storage, written
from labcore.runs.files.paths import path_of, run_folder
from labcore.runs.lists.all_runs import Shelf
from labcore.runs.lists.search import search
from labcore.runs.spec import cautions
from labcore.runs.spec.model_names import model_of_name
from labcore.runs.spec.run_spec import RunSpec, default_threads, make
from labcore.runs.spec.session import Record
from labcore.runs.store.dialects import store_url
from labcore.runs.store.rows import ACTIVE, COUNTERS, ENDED, Control, RunRow
from labcore.runs.store.store import Store
from labcore.runs.summary import headline
from labcore.tasks.file_kinds import task_for
from labcore.tasks.layouts import names_of
from labcore.tasks.task import check_data
from labcore.workers.launcher import Launcher

__all__ = ["Run", "close", "compare", "load", "runs", "train"]

POLL_SECONDS = 0.2
ANSWER_SECONDS = 30.0
DRAW_SECONDS = 2.0  # between two drawings of a run in a notebook


class Run:
    """A run of the lab. Every method reads the store anew, so it shows the run as it is now.

    Made by `train`, `load` and `Run.fork`.
    """

    def __init__(self, run_id: str):
        self.id = run_id

    def __repr__(self) -> str:
        row = self._row
        return f"{titles.title(row)} ({self.id}): {row.state}, step {row.step:,} of {row.spec.steps:,}"

    def _repr_html_(self) -> str:
        """The run as a notebook shows it: state, charts and completions."""
        kept = self.steps_with_rollouts()
        return cell.html(_store(), self._row, _completions(self._samples(kept[-1])) if kept else ())

    @property
    def _row(self) -> RunRow:
        return _store().run(self.id)

    @property
    def state(self) -> str:
        """queued, starting, running, paused, finished, interrupted, stopped, failed or diverged."""
        return self._row.state

    @property
    def message(self) -> str:
        """A sentence on the state, such as the reason of a failure."""
        return self._row.message

    @property
    def step(self) -> int:
        """The last step that is in the store."""
        return self._row.step

    @property
    def spec(self) -> RunSpec:
        """All that determines the run, with the value of every knob at its start."""
        return self._row.spec

    @property
    def checkpoints(self) -> list[int]:
        """The steps that have a checkpoint, from which the run can be forked."""
        return forks.steps_to_fork(self.id)

    def metrics(self) -> pd.DataFrame:
        """A row for each step (the index), with the counters and then the metrics that the run has logged.

        NaN where a step did not log a metric. Units are in `labcore.catalog.metrics.METRICS`.
        """
        steps = _store().steps_after(self.id)
        rows = [{"step": row.step, "tokens": row.tokens, "env_steps": row.env_steps, "seconds": row.seconds,
                 **row.metrics} for row in steps]
        logged = {key for row in steps for key in row.metrics}
        return pd.DataFrame(rows, columns=[*COUNTERS, *ordered(logged)]).set_index("step")

    def rollouts(self, step: int | None = None) -> pd.DataFrame:
        """The completions that were recorded at a step (None: the newest with any), one row each.

        The columns are step, group (0, 1, …), side ("sampled"; of a pair that the loop learns from "chosen" or
        "rejected"), prompt, completion, and where the loop has them reward, exact (the verifier's judgement), advantage
        and lists with an entry for each token, such as tokens, logprobs (nats), ratio and kl.

        Raises:
            LabError: the run kept none of that step, or none at all.
        """
        kept = self.steps_with_rollouts()
        at = step if step is not None else max(kept, default=0)
        if kept and at not in kept:
            near = min(kept, key=lambda other: abs(other - at))
            raise LabError(f"The run {self.id} kept no completions of step {at}: the nearest step with some is {near}.")
        if not (rows := list(_completions(self._samples(at) if kept else {}))):
            raise LabError(f"The run {self.id} has no completions to show: it trains no language model, its knob "
                           "probes is off, or its first step is not done.")
        return pd.DataFrame([{"step": at, **row} for row in rows])

    def steps_with_rollouts(self) -> list[int]:
        """The steps whose completions were kept."""
        names = {path.name for path in _folder(self.id).glob("step-*.json")} | {*storage.names(self.id, "samples")}
        return sorted(int(Path(name).stem.removeprefix("step-")) for name in names)

    def set(self, **knobs: Any) -> Run:
        """Change knobs of a running run, and wait until its worker has done so.

        Live knobs take effect at the next update, others at the next batch. Raises:
            LabError: the run has ended, has no such knob, the value is out of bounds, or the worker is silent for
                `ANSWER_SECONDS` (a long step); in this case the worker changes the knob later.
        """
        ids = {_store().ask(self.id, "set", {"knob": key, "value": value}) for key, value in knobs.items()}
        until = time.monotonic() + ANSWER_SECONDS
        while any(each.state == "asked" for each in self._controls(ids)):
            if time.monotonic() > until:
                raise LabError(f"The worker of {self.id} has not answered for {ANSWER_SECONDS:.0f} s: it changes "
                               f"{', '.join(knobs)} at the end of its present step.")
            time.sleep(POLL_SECONDS)
        if refused := [each.refused for each in self._controls(ids) if each.refused]:
            raise LabError(" ".join(refused))
        return self

    def _controls(self, ids: Collection[int]) -> list[Control]:
        return [each for each in _store().controls(self.id) if each.id in ids]

    def pause(self) -> Run:
        """Pause the run after its present step. Raises LabError where it has ended."""
        return self._ask("pause")

    def resume(self, background: bool = False) -> Run:
        """Continue a paused run, or one that ended before its last step: here, or with `background` in a process of
        its own. Raises LabError where it is running or finished."""
        if self.state not in ENDED:
            return self._ask("resume")
        if background:
            _launcher().resume(self.id)
            return self
        _store().requeue(self.id, mine=True)
        return _driven(self, True)

    def stop(self) -> Run:
        """Stop the run after its present step, with a checkpoint. Raises LabError where it has ended."""
        return self._ask("stop")

    def wait(self, seconds: float | None = None, progress: bool = True) -> Run:
        """Wait until the run has ended, at most `seconds` (None: as long as it takes)."""
        until = None if seconds is None else time.monotonic() + seconds
        with _shown(self, progress) as show:
            while (row := self._row).state in ACTIVE and (until is None or time.monotonic() < until):
                show(row.step, {})
                time.sleep(POLL_SECONDS)
            show(row.step, {})
        return self

    def fork(self, step: int | None = None, *, algorithm: str | None = None, steps: int | None = None,
             fresh: bool = False, background: bool = False, progress: bool = True, **knobs: Any) -> Run:
        """Train a fork: a run that begins where this one was at a checkpoint, with other knobs or another algorithm.

        `step` is that of the checkpoint (None: the newest), `steps` the step at which the fork ends (None: where this
        run does). It has this run's random numbers unless `fresh`, so any difference is due to the change.

        Raises:
            LabError: there is no such checkpoint, or a knob cannot be changed.
        """
        spec = forks.fork_spec(_store(), self.id, step, algorithm=algorithm, knobs=knobs, twin=not fresh, steps=steps)
        return _started(spec, background, progress)

    def answer(self, prompt: str, count: int = 4, *, answer: str | None = None, step: int | None = None,
               temperature: float = 1.0, seed: int = 0) -> pd.DataFrame:
        """Let the trained model (of a step, None: the newest checkpoint) answer a prompt `count` times.

        The columns are text, logprob (nats, of the whole completion), base_logprob (the same under the base model) and
        exact: whether the task's verifier accepts the text as `answer`; None where no answer is given.

        Raises:
            LabError: the run is no language model, or has no such checkpoint.
        """
        knobs = models.spec_of(self.id).knobs
        model = self.id if step is None else f"{self.id}@{step}"
        found = _computed({"job": "answer", "models": [model], "prompt": prompt, "answer": answer, "count": count,
                           "temperature": temperature, "top_k": 0, "top_p": 1.0, "seed": seed,
                           "max_new_tokens": int(knobs["max_new_tokens"])})
        return pd.DataFrame(found["columns"][0]["answers"])[["text", "exact", "logprob", "base_logprob"]]

    def export(self, folder: str | Path, *, tensorboard: bool = False, best: bool = False) -> Path:
        """Write metrics, events, spec and a checkpoint that transformers loads into `folder`; return it.

        Raises:
            LabError: the run has no checkpoint yet, or the folder cannot be written.
        """
        return export_run(_store(), self.id, folder, tensorboard=tensorboard, best=best)

    def _samples(self, step: int) -> dict[str, Any]:
        path = storage.fetch(_folder(self.id) / f"step-{step:06d}.json")
        return written.read(path, dict, "choose another step")

    def _ask(self, command: str) -> Run:
        _store().ask(self.id, command)
        return self


def train(algorithm: str | None = None, *, task: str | None = None, kind: str = "llm", model: str | None = None,
          data: str | Path | None = None, seed: int = 0, steps: int | None = None, device: str = "auto",
          background: bool = False, progress: bool = True, **knobs: Any) -> Run:
    """Train a run: `train("grpo", task="sort", steps=50, beta=0.1)`.

    It shows a progress bar and returns when the run has ended; with `background` it returns at once. Omitted arguments
    have the defaults of the `kind` ("llm", "exact", "maze" or "cartpole"). `model` is a built-in model, a Hugging Face
    folder or id, or an earlier run; `data` is a file of prompts, preferences or text. `python -m labcore list` shows
    algorithms, tasks and knobs. The `state` and `message` of the run tell if it failed, and why.

    Raises:
        LabError: an unknown name, a value out of bounds, a file that cannot be read, or settings that do not fit.
    """
    return _started(_spec(algorithm, task, kind, model, data, seed, steps, device, knobs), background, progress)


def load(run_id: str) -> Run:
    """The run of this id, as `runs()` and the pages show it. Raises LabError where there is none."""
    _store().run(run_id)
    return Run(run_id)


def runs(query: str = "") -> pd.DataFrame:
    """Your runs, newest first, one row each (the index is the id), or those that a search finds. Runs of lessons and of
    studies are left out, unless the query names their project: `runs("project=Lessons")`.

    The columns are title, algorithm, task, model, seed, state, step, steps, seconds, metric, last, best and tags. A
    query is that of the page Runs: `runs("grpo beta>0.05 -failed tag=paper")`.

    Raises:
        LabError: the query cannot be read.
    """
    found = search(Shelf(_store()).entries(), query)
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
    table = table_of(traces_of(_store(), [each if isinstance(each, str) else each.id for each in compared]), metric)
    rows = [{"group": row.label, "seeds": row.seeds, **_of_mean(row.final), "best": row.best and row.best.mean,
             "seconds": row.seconds and row.seconds.mean, **{
                 f"better_than: {measure}": [
                     other for other, each in table.comparisons[measure].get(row.label, {}).items()
                     if each.verdict == "A"] for measure in table.verdicts}}
            for row in table.rows]
    frame = pd.DataFrame(rows).set_index("group")
    frame.attrs.update(metric=table.metric, notes=list(table.notes))
    return frame


def close() -> None:
    """Stop the runs in the background that this process started. They save checkpoints and can be resumed.

    The end of the process does the same.
    """
    while _launchers:
        _launchers.popitem()[1].close()


# ---------------------------------------------------------------- internals


_stores: dict[str, Store] = {}
_launchers: dict[str, Launcher] = {}


def _store() -> Store:
    """The store of the lab's present home: a script may change RL_LAB_HOME between two calls. Runs whose process is
    gone, such as a notebook's that was restarted, are marked as interrupted, so that nobody waits for them."""
    if (url := store_url()) not in _stores:
        _stores[url] = Store(url)
    _stores[url].reconcile()
    return _stores[url]


def _launcher() -> Launcher:
    """The launcher that starts runs and jobs in their own processes and ends with this process."""
    store = _store()
    if store.url not in _launchers:
        _launchers[store.url] = Launcher(store)
    return _launchers[store.url]


def _folder(run_id: str) -> Path:
    return run_folder(run_id) / "samples"


def _completions(samples: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each completion in a file of samples."""
    for place, group in enumerate(samples.get("groups", ())):
        for each in group["completions"]:
            yield {"group": place, "side": "sampled", "prompt": group["prompt"], "completion": each["text"],
                   **_plain(each)}
    for place, pair in enumerate(samples.get("pairs", ())):
        for side in ("chosen", "rejected"):
            yield {"group": place, "side": side, "prompt": pair["prompt"], "completion": pair[side]["text"],
                   **_plain(pair[side])}


def _plain(completion: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in completion.items() if key not in ("text", "met")}


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


def _started(spec: RunSpec, background: bool, progress: bool) -> Run:
    if background:
        return Run(_launcher().start(spec))
    return _driven(Run(_store().create(spec, mine=True)), progress)


def _driven(run: Run, progress: bool) -> Run:
    """Train the run here, in this process."""
    from labcore.workers.worker import drive  # imports torch, which nothing else here needs

    with _shown(run, progress) as show:
        def on_record(run_id: str, record: Record, seconds: float) -> None:
            if run_id == run.id:  # not the SFT run that makes its base model
                show(record.step, record.metrics)
        drive(_store(), run.id, on_record=on_record)
    return run


@contextmanager
def _shown(run: Run, progress: bool) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
    """Within it a progress bar with the headline metric, and in a notebook the run itself, drawn again as it goes on.

    Yields the function that is told the step and its metrics.
    """
    row = _store().run(run.id)
    metric, output, drawn = headline(row.spec), _output(run) if progress else None, time.monotonic()
    with tqdm(total=row.spec.steps, initial=row.step, desc=titles.title(row), unit="step", disable=not progress) as bar:
        def show(step: int, metrics: Mapping[str, float]) -> None:
            nonlocal drawn
            if metric in metrics:
                bar.set_postfix({metric: f"{metrics[metric]:.3g}"}, refresh=False)
            bar.update(step - bar.n)
            if output and time.monotonic() - drawn > DRAW_SECONDS:
                output.update(run)
                drawn = time.monotonic()
        yield show
    if output:
        output.update(run)


def _output(run: Run) -> Any:
    """The place of a notebook's cell in which the run is drawn; None outside a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if not hasattr(shell, "kernel"):  # a terminal
        return None
    return sys.modules["IPython.display"].display(run, display_id=True)


def _computed(spec: jobs.Spec) -> dict[str, Any]:
    """The result of a job, which a process of its own computes. Raises LabError with the job's error."""
    job = _launcher().compute(spec)
    while (found := jobs.outcome(job)) is None:
        time.sleep(POLL_SECONDS)
        _launcher().compute(spec)
    if found.result is None:
        raise LabError(found.error)
    return found.result
