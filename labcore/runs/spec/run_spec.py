"""RunSpec: everything that determines a run, checked before it starts; faults are sentences."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from labcore.catalog import kinds, watch
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.families.distillation import is_itself
from labcore.catalog.goal import Goal
from labcore.catalog.kinds import Kind
from labcore.catalog.knob import Knob, Value, suggestion
from labcore.catalog.llm import pretrained
from labcore.catalog.llm.difficulty import EASIEST
from labcore.catalog.llm.knobs import ENGINE, LORA, PROMPT
from labcore.catalog.llm.models import MODELS
from labcore.catalog.llm.optimizer import OPTIMIZER
from labcore.catalog.llm.tasks import HELD_OUT, MEASURED, ORDER, ROWS
from labcore.catalog.llm.upkeep import EVERY as UPKEEP
from labcore.catalog.mix import row as mixed
from labcore.catalog.task import Task
from labcore.errors import LabError, quoted
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files import storage
from labcore.runs.files.paths import is_run_id, path_of, run_folder
from labcore.runs.files.untrusted import json_of
from labcore.runs.spec import checks
from labcore.runs.spec.model_names import kind_of
from labcore.runs.spec.together import (
    check_pairs,
    check_together,
    check_turns,
    check_uploads,
    pinned_reward_model,
    pinned_teacher,
)

DEVICES = ("auto", "cpu", "cuda", "mps")
VLLM_CAP = 2.0  # importance_cap where vLLM samples and nothing else is said: its log-probs are not the trainer's
LORA_RANK = LORA[0].key
BASE_SEED = 0  # every run of a task and model starts from the same base, whatever its own seed


@dataclass(frozen=True)
class RunSpec:
    """The spec of a run. Frozen, JSON-clean; `make` fills defaults in and validates.

    `data` is the user's file (prompts, preferences or text); `parent` is (run id, step) of a fork, and `twin` says
    whether it continues with its parent's random numbers or with fresh ones from its seed; `mix` is the name of a mix
    of the user's own, which began from the row `algorithm`, and empty if that row itself is run; `threads` are torch's,
    part of the spec so that a result does not depend on other processes. For a watched run, `tool` is the trainer,
    `task` the run's name, `knobs` the settings that the trainer sent, and `steps` is 0 if the total is unknown.
    """

    kind: str
    algorithm: str
    task: str
    model: str
    knobs: Mapping[str, Value] = field(default_factory=dict)
    seed: int = 0
    steps: int = 150
    device: str = "auto"
    threads: int = 1
    data: str | None = None
    parent: tuple[str, int] | None = None
    twin: bool = True
    mix: str = ""
    tool: str = ""

    @property
    def kind_row(self) -> Kind:
        return kinds.kind(self.kind)

    @property
    def row(self) -> Algorithm:
        if self.mix:
            return mixed.row(self.algorithm, self.mix, self.knobs)
        found = kinds.algorithm(self.algorithm, self.kind)
        return watch.named(found, self.tool, self.knobs) if self.kind_row.elsewhere else found

    @property
    def task_row(self) -> Task:
        return kinds.task(self.task, self.kind)

    @property
    def weights(self) -> str:
        """The way in which it learns its model's weights: see `weights_of`."""
        return weights_of(self.kind_row, self.model, self.knobs)

    @property
    def declared(self) -> tuple[Knob, ...]:
        """The run's knobs, with the defaults of its algorithm on its task and its weights."""
        known = pretrained.of_length(knobs_of(self.row, self.task_row, self.weights), self.knobs)
        return tuple(knob for knob in known if knob.key in self.knobs) if self.kind_row.elsewhere else known

    @property
    def of_task(self) -> dict[str, Value]:
        """The task's own knobs that select its problems, without those that order or measure them."""
        return {knob.key: self.knobs[knob.key] for knob in self.task_row.knobs
                if knob.key not in MEASURED and knob.key != ORDER.key}

    @property
    def stem(self) -> str:
        """The prefix of its runs' ids, which are names of folders.

        A task may be an environment's id, such as ALE/Pong-v5, of any length: its end says most.
        """
        return re.sub(r"[^\w.-]+", "-", f"{self.algorithm}-{self.task[-60:]}")

    def caution(self) -> str:
        """The reason, as a sentence, why the run can start but is unlikely to learn well; usually empty."""
        named = self.kind_row.caution
        return str(resolve_name(named)(self)) if named else ""

    def goal(self) -> Goal:
        """The sentence that says what the run learns. Raises LabError if its task cannot be made."""
        found: Goal = resolve_name(self.kind_row.goal)(self)
        return found

    def to_json(self) -> str:
        fields = {**vars(self)}
        if not self.parent:
            del fields["twin"]  # so that specs without a parent keep their hash, and their base model is found
        for name in ("mix", "tool"):
            if not fields[name]:
                del fields[name]  # likewise for specs without a mix, and for runs that the lab trains
        return json.dumps(fields, ensure_ascii=False, sort_keys=True)

    @staticmethod
    def from_json(text: str | bytes) -> RunSpec:
        """The spec written by `to_json`. Raises LabError where the text is none."""
        try:
            fields = json_of(text)
            fields["parent"] = _parent(fields.get("parent"))
            return _filled(RunSpec(**fields))
        except (ValueError, AttributeError, TypeError, KeyError) as error:
            raise LabError(f"This is not a run's spec.json ({error}): export the run again.") from error

    @staticmethod
    def in_folder(folder: Path) -> RunSpec:
        """The spec that a run keeps in its `folder`.

        Raises:
            OSError: it is not there.
            LabError: it is damaged.
        """
        path = storage.fetch(folder / "spec.json")
        try:
            return RunSpec.from_json(path.read_bytes())
        except LabError as error:
            raise LabError(f"{path} is damaged, so the run can be neither read nor continued: put the file "
                           "back; python -m labcore export RUN --out FOLDER writes a copy of it.") from error

    def hash(self) -> str:
        """Twelve hex digits that name this spec and the content of its file."""
        content = storage.fetch(self.data).read_bytes() if self.data else b""
        return hashlib.sha256(_as_named(self).to_json().encode() + content).hexdigest()[:12]


def check_ours(spec: RunSpec) -> None:
    """Raise LabError for a watched run: the lab cannot start, change or fork it."""
    if spec.kind_row.elsewhere:
        raise LabError(f"The lab only shows this run, so it cannot be started, changed or forked here: use "
                       f"{spec.tool or 'its trainer'} instead.")


def _parent(said: object) -> tuple[str, int] | None:
    """The run and the step that a fork began from. Raises ValueError where `said` is neither such a pair nor empty."""
    if not said:
        return None
    if not isinstance(said, list) or len(said) != 2 or not is_run_id(said[0]) or type(said[1]) is not int:
        raise ValueError(f"its parent is {quoted(said)}, not the id of a run and a step")
    return said[0], said[1]


def _as_named(spec: RunSpec) -> RunSpec:
    """`spec` without the knobs of LoRA, of the engine, of the optimizer, of prompts, of upkeep, of a file's rows and
    of held-out rows where they are off: they came after the first bases had got their names."""
    knobs = spec.knobs
    off = {knob.key for knob in (*ENGINE, *OPTIMIZER, *PROMPT, *UPKEEP, *ROWS)
           if knobs.get(knob.key) in (knob.default, knob.before)}
    off |= {knob.key for knob in (ORDER, EASIEST) if knobs.get(knob.key) == knob.before}
    off |= set() if knobs.get("lora_rank") else {knob.key for knob in LORA}
    off |= set() if knobs.get("held_out") or knobs.get("held_out_file") else {knob.key for knob in HELD_OUT}
    return replace(spec, knobs={key: value for key, value in knobs.items() if key not in off})


def _filled(spec: RunSpec) -> RunSpec:
    """`spec` with the knobs that came after it was written, so that a run does what it did without them."""
    if spec.kind == kinds.WATCH.key:  # it has the settings that its trainer sent
        return spec
    before = _before(spec.kind, spec.algorithm, spec.task, bool(spec.mix))
    if spec.model in MODELS:  # they have no template, so their old runs equal runs with today's default
        before = {**before, **{knob.key: knob.default for knob in PROMPT if knob.key in before}}
    missing = {key: value for key, value in before.items() if key not in spec.knobs}
    return replace(spec, knobs={**spec.knobs, **missing}) if missing else spec


@cache
def _before(kind: str, algorithm: str, task: str, mix: bool) -> Mapping[str, Value]:
    """The values of a run's knobs from before these knobs existed; empty if this lab does not know the algorithm or the
    task, which is reported where they are used."""
    try:
        row = mixed.with_every_knob(algorithm) if mix else kinds.algorithm(algorithm, kind)
        return {knob.key: knob.default if knob.before is None else knob.before
                for knob in knobs_of(row, kinds.task(task, kind))}
    except LabError:
        return {}


def knobs_of(row: Algorithm, task_row: Task, weights: str = pretrained.SCRATCH) -> tuple[Knob, ...]:
    """All knobs of a run: the algorithm's, with the task's defaults, then the task's own.

    `weights` is the way in which the weights are trained (`weights_of`); pretrained weights have other defaults.
    """
    own = task_row.own(row.loop, row.key)
    of_row, of_task = (tuple(knob.with_default(own[knob.key]) if knob.key in own and not is_itself(knob) else knob
                             for knob in knobs) for knobs in (row.knobs, task_row.knobs))
    return pretrained.fitted(of_row + of_task, pretrained.defaults(row, task_row, weights))


def weights_of(kind_row: Kind, model: str, knobs: Mapping[str, Any]) -> str:
    """The way a run trains the weights of `model`: from scratch, all pretrained weights, or adapters on them."""
    return kind_of(model, knobs) if kind_row.pretrained else pretrained.SCRATCH


def steps_of(row: Algorithm, weights: str) -> int:
    """The default number of steps of a run; `weights` as for `knobs_of`."""
    return row.steps if weights == pretrained.SCRATCH else pretrained.STEPS


@cache
def every_knob() -> dict[str, Knob]:
    """Every knob by its key, as the first algorithm that has it declares it."""
    found: dict[str, Knob] = {}
    for kind in kinds.KINDS.values():
        for row in kind.algorithms.values():
            for task in kind.tasks.values():
                if any(knob.key not in found for knob in (*row.knobs, *task.knobs)):
                    for knob in knobs_of(row, task):
                        found.setdefault(knob.key, knob)
    return found


def _named(keys: Sequence[str], most: int = 4) -> str:
    """The keys as alternatives; of many the first ones, and how many there are."""
    if len(keys) <= most:
        return " or ".join(keys)
    return f"{', '.join(keys[:most - 1])} or another of the {len(keys)} algorithms that can"


def make(*, kind: str = "llm", algorithm_key: str, task_key: str, model: str | None = None,
         knobs: Mapping[str, Any] | None = None, seed: int = 0, steps: int | None = None, device: str = "auto",
         threads: int = 1, data: str | None = None, parent: tuple[str, int] | None = None,
         twin: bool = True, mix: str = "", absent: bool = False) -> RunSpec:
    """A validated spec with every knob present. `model` None is the default model of the kind. With a `mix` the spec
    has all knobs of its loop. `absent`: the model and the teacher may be missing on this machine, because the run is
    only looked at. Raises LabError for an unknown name, a value out of bounds, or settings that contradict each
    other."""
    kind_row, row, task_row = kinds.kind(kind), _row(kind, algorithm_key, mix), kinds.task(task_key, kind)
    if not row.learns(task_row):
        if row.check:
            resolve_name(row.check)(task_row, knobs or {})  # raises LabError with its own reason
        fitting = [other.key for other in kind_row.algorithms.values() if other.learns(task_row)]
        why = ("whose completions have several turns" if task_row.has_turns else
               "whose answers have no steps to score" if task_row.verifiable else "which has no verifier")
        raise LabError(f"{row.label} cannot learn from the task {quoted(task_key)}, {why}: "
                       f"use {_named(fitting)}, or another task.")
    model = kind_row.model if model is None else model
    given = dict(knobs or {})
    learnt = weights_of(kind_row, model, {key: row.knob(key).check(given[key]) for key in {LORA_RANK} & given.keys()})
    known = {knob.key: knob for knob in knobs_of(row, task_row, learnt)}
    checks.known(row, task_key, given, known)
    filled = _with_defaults(known, given)
    if mix:
        row = mixed.row(algorithm_key, mix, filled)
    steps = steps_of(row, learnt) if steps is None else steps
    checks.whole(seed=seed, steps=steps, threads=threads)
    if device not in DEVICES:
        raise LabError(f"There is no device {quoted(device)}: {suggestion(device, DEVICES)}")
    checks.data(task_row, data)
    filled = _checked(row, task_row, filled, absent)
    checks.model(kind_row, model, absent or parent is not None)
    checks.lora(row, model, filled)
    for named in filter(None, (kind_row.check, row.check)):
        resolve_name(named)(task_row, filled)
    # A run may be resumed from another working directory, so its paths must be absolute.
    data = str(path_of(Path(data).resolve())) if data else None
    model = str(path_of(Path(model).resolve())) if model not in MODELS and Path(model).is_dir() else model
    twin = twin or parent is None
    return RunSpec(kind, row.key, task_key, model, filled, seed, steps, device, threads, data, parent, twin, mix)


def _checked(row: Algorithm, task: Task, knobs: dict[str, Value], absent: bool) -> dict[str, Value]:
    """The knobs of a run after a check that they fit each other. The names of the reward model and the teacher now have
    their checkpoint steps."""
    check_together(row, knobs)
    check_pairs(task, knobs)
    check_turns(task, knobs)
    knobs |= pinned_reward_model(knobs) | ({} if absent else pinned_teacher(row, knobs))
    check_uploads(knobs)
    return knobs


def _row(kind: str, algorithm_key: str, mix: str) -> Algorithm:
    """The algorithm of a new run; with a `mix` it has every knob of its loop and the mix's name."""
    row = kinds.algorithm(algorithm_key, kind)
    if mix and not mixed.can_be_mixed(row):
        raise LabError(f"{row.label} has no choices to mix: begin from an algorithm of language models, such as grpo "
                       "or dpo.")
    return replace(mixed.with_every_knob(algorithm_key), label=mixed.check_name(mix)) if mix else row


def _with_defaults(known: Mapping[str, Knob], given: Mapping[str, Any]) -> dict[str, Value]:
    """Every knob with the value given, or its default. Raises LabError where one is out of bounds."""
    # A page has some eighty specs made whenever it is drawn, and most of their values are the declared ones.
    filled = {key: value if (value := given.get(key, knob.default)) is knob.default else knob.check(value)
              for key, knob in known.items()}
    for knob in pretrained.of_length((*known.values(),), filled):
        filled[knob.key] = filled[knob.key] if knob.key in given else knob.check(knob.default)
    if filled.get("rollouts") == "vllm" and "importance_cap" not in given:
        filled["importance_cap"] = VLLM_CAP
    return filled


def default_threads(model: str | None) -> int:
    """Torch threads for `model`: the built-in ones (None: the kind's own) gain nothing from more than one."""
    return 1 if model is None or model in kinds.built_in() else os.cpu_count() or 1


def policy_of_run(run_id: str) -> Path:
    """The newest policy of the run `run_id`. Raises LabError where it has none yet."""
    found = checkpoint.newest(run_folder(run_id))
    if found is None:
        raise LabError(f"The run {run_id} has no checkpoint yet: wait for its first step.")
    return found[1] / "policy"


def base_spec(spec: RunSpec) -> RunSpec | None:
    """The SFT run whose result `spec` starts from; None where it starts from given weights.

    Built-in models are first taught by SFT on the same task; the result is cached by this spec's hash. A task
    of preferences teaches the chosen sides.
    """
    if spec.model not in MODELS or spec.row.loop == "sft" or not spec.knobs.get("sft_steps"):
        return None
    task_keys = {knob.key for knob in spec.task_row.knobs} - MEASURED  # how it is measured does not make it another
    own = ("context_share", "context_template") if spec.knobs.get("context_share") else ()
    knobs = {key: value for key, value in spec.knobs.items() if key in (*task_keys, "dtype", "sft_target", *own)}
    return make(kind=spec.kind, algorithm_key="context_sft" if own else "sft", task_key=spec.task, model=spec.model,
                knobs=knobs, seed=BASE_SEED, steps=int(spec.knobs["sft_steps"]), device=spec.device,
                threads=spec.threads, data=spec.data)


def with_knob(spec: RunSpec, key: str, value: object) -> RunSpec:
    """`spec` with one knob changed during the run. Raises LabError as `with_knobs`."""
    return with_knobs(spec, [(key, value)])


def with_knobs(spec: RunSpec, changes: Iterable[tuple[str, object]]) -> RunSpec:
    """`spec` with knobs changed during the run, one after the other; only the result of all changes must be consistent.
    Raises LabError for an unknown knob, a bad value, a knob that needs a new run, or values that contradict each
    other."""
    known = {knob.key: knob for knob in knobs_of(spec.row, spec.task_row)}
    knobs = dict(spec.knobs)
    for key, value in changes:
        checks.known(spec.row, spec.task, [key], known)
        if known[key].effect == "restart":
            raise LabError(f"`{key}` cannot change during a run: start a new run with `{key}={value}`.")
        knobs[key] = known[key].check(value)
    check_together(spec.row, knobs)
    return replace(spec, knobs=knobs)
