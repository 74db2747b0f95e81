"""Run a capsule again and compare every number of every step with the recorded one, bit for bit.

The run starts from the capsule's first checkpoint, in a lab of its own that goes away again, and its knobs change
after exactly as many updates as they did. Left out of the comparison: measurements of the machine (seconds, speed,
memory), and steps that were logged before a resume which changed a knob at or before them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from labcore.catalog.metrics import METRICS, ordered
from labcore.errors import LabError, quoted
from labcore.exports.capsules import packing
from labcore.exports.capsules.packing import sha256
from labcore.exports.capsules.reading import Capsule, unpacked
from labcore.runs import versions
from labcore.runs.files import atomic, removal
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.adapters import BESIDE
from labcore.runs.files.paths import CHECKPOINTS, run_folder
from labcore.runs.files.storage import in_home
from labcore.runs.knob_history import has_place, overtaken
from labcore.runs.spec.model_names import teacher_here
from labcore.runs.spec.session import Record
from labcore.runs.spec.together import absent_teacher
from labcore.runs.store.rows import Step
from labcore.runs.store.store import Store
from labcore.runs.versions import Versions
from labcore.workers.training import OnRecord

# What of the versions is named first where numbers differ: the likelier cause first.
_CAUSES = {"device": "the device", "code": "the lab's code", "torch": "torch", "threads": "the number of threads",
           "instructions": "the processor's instructions", "processor": "the processor", "machine": "the machine",
           "system": "the system", "transformers": "transformers", "numpy": "numpy", "gymnasium": "gymnasium",
           "tokenizers": "tokenizers", "python": "Python"}


@dataclass(frozen=True)
class Difference:
    """The first number that came out otherwise; None where one side does not have it."""

    step: int
    metric: str
    expected: float | None
    found: float | None


@dataclass(frozen=True)
class Replayed:
    """The result of a replay. `steps` were compared, each with up to `metrics` numbers; `overtaken` were not."""

    run: str
    steps: int
    metrics: int
    overtaken: tuple[int, ...]
    difference: Difference | None
    causes: tuple[str, ...]

    @property
    def matches(self) -> bool:
        return self.difference is None


def replay(path: Path | str, steps: int | None = None, *, model: str | None = None, device: str | None = None,
           watch: Callable[[Store], OnRecord] | None = None) -> Replayed:
    """Run the capsule at `path` again, up to its last step or the step `steps`, or the first that differs.

    `model` is a folder or hub id with the weights that a capsule was too small for. `watch` is called with the store of
    the rerun, and returns a function to call after each of its steps. Raises LabError if the capsule is damaged or
    cannot be run here, or has no such step or no step to compare.
    """
    with unpacked(path) as capsule, removal.folder("replay") as lab:
        teacher = _teacher(capsule)  # looked up here, before the rerun has a lab of its own
        with in_home(lab):
            return _Rerun(capsule, _last_step(capsule, steps), model, device, watch, teacher).result()


def compared(metrics: Mapping[str, float]) -> dict[str, float]:
    """The numbers that a run has to give again: those of the training, not of the machine."""
    return {key: value for key, value in metrics.items() if METRICS[key].about == "training"}


def first_difference(expected: Step, record: Record) -> Difference | None:
    """The first number of a step that is not the very same, its counters included."""
    counters = {"tokens": (expected.tokens, record.tokens), "env_steps": (expected.env_steps, record.env_steps)}
    before, now = compared(expected.metrics), compared(record.metrics)
    pairs = counters | {key: (before.get(key), now.get(key)) for key in ordered({*before, *now})}
    for key, (left, right) in pairs.items():
        if left is None or right is None or float(left).hex() != float(right).hex():
            return Difference(expected.step, key, left, right)
    return None


def changed(before: Versions, now: Versions) -> tuple[str, ...]:
    """The versions that differ from those of the run, in words; the likeliest cause of other numbers first."""
    return tuple(f"{words} ({before[key]} then, {now[key]} now)" for key, words in _CAUSES.items()
                 if key in before and key in now and before[key] != now[key])


class _Rerun:
    """A capsule's run, made again in the lab that `home()` names."""

    def __init__(self, capsule: Capsule, last: int, model: str | None, device: str | None,
                 watch: Callable[[Store], OnRecord] | None, teacher: str = ""):
        self._capsule, self._last = capsule, last
        self._rows = {row.step: row for row in capsule.rows}
        self._logged = {key for row in capsule.rows for key in row.metrics}  # later versions of the lab log more
        self._overtaken = overtaken(capsule.events, [step for step in self._rows if step <= last])
        if not any(step <= last and step not in self._overtaken for step in self._rows):
            raise LabError(f"No step of {capsule.run} up to {last} can be compared: the run went back before each of "
                           "them and changed a knob, so replay more of its steps, or another run.")
        self._difference: Difference | None = None
        self._steps = 0
        self._metrics: set[str] = set()
        self._store = Store()
        self._shown = watch(self._store) if watch else None
        self._run_id = self._store.create(capsule.located(_model(capsule, model), capsule.data, device,
                                                          teacher=teacher), mine=True)
        for folder in [capsule.first, capsule.first.parent / BESIDE] if capsule.first else []:
            if folder.is_dir():
                shutil.copytree(folder, run_folder(self._run_id) / CHECKPOINTS / folder.name, copy_function=atomic.link)
        for event in capsule.events:
            if has_place(event):
                self._store.log(self._run_id, event.kind, event.payload, event.step)
        for key, value in capsule.spec.kind_row.unwatched.items():  # the pace of a maze that somebody looks at
            self._store.ask(self._run_id, "set", {"knob": key, "value": value})

    def result(self) -> Replayed:
        from labcore.workers.worker import drive  # brings torch in, which reading a capsule does without

        state = drive(self._store, self._run_id, on_record=self._look)
        row = self._store.run(self._run_id)
        if state not in ("finished", "stopped"):
            raise LabError(f"The replay of {self._capsule.run} was {state} at step {row.step}: {row.message}")
        if not self._difference and row.step < self._last:
            self._difference = Difference(row.step + 1, "", None, None)
        causes = self._causes(self._difference) if self._difference else ()
        return Replayed(self._capsule.run, self._steps, len(self._metrics),
                        tuple(sorted(self._overtaken)), self._difference, causes)

    def _look(self, run_id: str, record: Record, seconds: float) -> None:
        if run_id != self._run_id:  # the SFT run of a base
            return
        if self._shown:
            self._shown(run_id, record, seconds)
        expected = self._rows.get(record.step)
        if expected and record.step not in self._overtaken:
            known = {key: value for key, value in record.metrics.items() if key in self._logged}
            self._difference = first_difference(expected, replace(record, metrics=known))
            self._steps += 1
            self._metrics |= set(compared(expected.metrics))
        if self._difference or record.step >= self._last:
            self._store.ask(run_id, "stop")

    def _causes(self, difference: Difference) -> tuple[str, ...]:
        """Possible causes of a difference: other weights, and the versions that differ at the step in question."""
        made_with = [entry for entry in self._capsule.manifest["made_with"] if entry.get("from", 0) < difference.step]
        before = made_with[-1] if made_with else self._capsule.manifest["exported_with"]
        found = changed(before, (versions.noted(run_folder(self._run_id)) or [versions.here()])[-1])
        return (*(["the model, whose weights are others than those the run began with"] if self._other_model() else []),
                *found)

    def _other_model(self) -> bool:
        """Whether the weights that a capsule was too small for are not those that were given in their place."""
        wanted = self._capsule.manifest["left_out"].get("weights")
        policy = checkpoint.steps(run_folder(self._run_id))[0][1] / "policy"
        return wanted is not None and wanted != {path.name: sha256(path) for path in policy.glob("*.safetensors")}


def _teacher(capsule: Capsule) -> str:
    """The folder of the run's teacher if it is a model of this lab; empty if the teacher is found by its name. Raises
    LabError if the run learns from a model that is not here."""
    spec = capsule.spec
    if absent := absent_teacher(spec.row, spec.knobs):
        raise LabError(f"The teacher {absent} of {capsule.run} is not in the capsule: add that model to this lab "
                       "first, under the same name.")
    found = teacher_here(str(spec.knobs.get("teacher", "")))
    return str(found) if found else ""


def _last_step(capsule: Capsule, steps: int | None) -> int:
    last = capsule.rows[-1].step
    if steps is None:
        return last
    first = capsule.rows[0].step
    if not first <= steps <= last:
        raise LabError(f"{capsule.name} holds the steps {first} to {last}: give --steps one of them, not {steps}.")
    return steps


def _model(capsule: Capsule, given: str | None) -> str:
    """The place from which the rerun loads its model: the weights in the capsule, or those `given` instead."""
    spec = capsule.spec
    if len(spec.kind_row.models) == 1:  # it is no choice, and the checkpoint has all of it
        return spec.model
    if capsule.first:
        return str(capsule.first / "policy")
    if spec.parent:
        raise LabError(f"The fork {capsule.run} began with a checkpoint of "
                       f"{capsule.manifest['left_out']['bytes'] / 2**30:.1f} GiB, too large for a capsule, so it "
                       "cannot be replayed: replay the run that it was forked from.")
    if not given and packing.starts_anew(spec):  # of a light one
        return spec.model
    if not given and "/" not in spec.model:
        raise LabError(f"The model {quoted(spec.model)} was too large for {capsule.name}: give its folder with --model."
                       "")
    return given or spec.model
