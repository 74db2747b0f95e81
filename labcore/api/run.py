"""A run as an object of Python."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from labcore.api import processes
from labcore.api.processes import POLL_SECONDS, computed, launcher, shown, store
from labcore.catalog.metrics import ordered
from labcore.errors import LabError
from labcore.exports import cell
from labcore.exports.folder import export_run
from labcore.runs import fork as forks
from labcore.runs import models, titles
from labcore.runs.files import step_files
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import ACTIVE, COUNTERS, ENDED, Control, RunRow

ANSWER_SECONDS = 30.0


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
        return cell.html(store(), self._row, _completions(self._samples(kept[-1])) if kept else ())

    @property
    def _row(self) -> RunRow:
        return store().run(self.id)

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
        steps = store().every_step(self.id, store().run(self.id).step)  # a long run's in parts, to save memory
        count = len(steps)
        counters = {key: np.zeros(count, float if key == "seconds" else int) for key in COUNTERS}
        logged: dict[str, np.ndarray] = {}
        for place, row in zip(range(count), steps, strict=False):  # a run may log more meanwhile
            for key, column in counters.items():
                column[place] = getattr(row, key)
            for key, value in row.metrics.items():
                if key not in logged:
                    logged[key] = np.full(count, np.nan)
                logged[key][place] = value
        return pd.DataFrame({**counters, **{key: logged[key] for key in ordered(logged)}}).set_index("step")

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
        return step_files.steps_of(self.id, "samples")

    def set(self, **knobs: Any) -> Run:
        """Change knobs of a running run, and wait until its worker has done so.

        Live knobs take effect at the next update, others at the next batch. Raises:
            LabError: the run has ended, has no such knob, the value is out of bounds, or the worker is silent for
                `ANSWER_SECONDS` (a long step); in this case the worker changes the knob later.
        """
        ids = {store().ask(self.id, "set", {"knob": key, "value": value}) for key, value in knobs.items()}
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
        return [each for each in store().controls(self.id) if each.id in ids]

    def pause(self) -> Run:
        """Pause the run after its present step. Raises LabError where it has ended."""
        return self._ask("pause")

    def resume(self, background: bool = False) -> Run:
        """Continue a paused run, or one that ended before its last step: here, or with `background` in a process of
        its own. Raises LabError where it is running or finished."""
        if self.state not in ENDED:
            return self._ask("resume")
        if background:
            launcher().resume(self.id)
            return self
        store().requeue(self.id, mine=True)
        processes.drive(self, True)
        return self

    def stop(self) -> Run:
        """Stop the run after its present step, with a checkpoint. Raises LabError where it has ended."""
        return self._ask("stop")

    def wait(self, seconds: float | None = None, progress: bool = True) -> Run:
        """Wait until the run has ended, at most `seconds` (None: as long as it takes)."""
        until = None if seconds is None else time.monotonic() + seconds
        with shown(self, progress) as show:
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
        spec = forks.fork_spec(store(), self.id, step, algorithm=algorithm, knobs=knobs, twin=not fresh, steps=steps)
        return started(spec, background, progress)

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
        found = computed({"job": "answer", "models": [model], "prompt": prompt, "answer": answer, "count": count,
                          "temperature": temperature, "top_k": 0, "top_p": 1.0, "seed": seed,
                          "max_new_tokens": int(knobs["max_new_tokens"])})
        return pd.DataFrame(found["columns"][0]["answers"])[["text", "exact", "logprob", "base_logprob"]]

    def export(self, folder: str | Path, *, tensorboard: bool = False, best: bool = False) -> Path:
        """Write metrics, events, spec and a checkpoint that transformers loads into `folder`; return it.

        Raises:
            LabError: the run has no checkpoint yet, or the folder cannot be written.
        """
        return export_run(store(), self.id, folder, tensorboard=tensorboard, best=best)

    def _samples(self, step: int) -> dict[str, Any]:
        return step_files.read(step_files.path_of(self.id, "samples", step), "choose another step")

    def _ask(self, command: str) -> Run:
        store().ask(self.id, command)
        return self


def started(spec: RunSpec, background: bool, progress: bool) -> Run:
    """A new run of `spec`: trained here, or with `background` in a process of its own."""
    if background:
        return Run(launcher().start(spec))
    run = Run(store().create(spec, mine=True))
    processes.drive(run, progress)
    return run


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
