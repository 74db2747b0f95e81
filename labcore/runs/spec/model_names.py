"""The names of models, in specs, jobs, links, on the page and the command line.

| name            | model |
|-----------------|-------|
| `RUN`           | the newest checkpoint of a run |
| `RUN@STEP`      | one of its checkpoints |
| `RUN@best`      | that which is the best by held-out rows; read as `RUN@STEP` of it |
| `base:RUN`      | what the run started from: what SFT made, or the weights it was given |
| `start:RUN`     | what that SFT started from: random weights |
| `SFT base HASH` | what SFT made, by the hash of its spec: it outlives the runs that started from it |
| `PRM HASH`      | a process reward model that comes with the lab, where a reward model is named |

A run starts from a folder, so `model_of_name` gives the folder of those that have one; `labcore.runs.models` says
where the models of a run come from. Any other text is a model that comes with the lab, a Hugging Face folder or a hub
id. Imports no torch; nothing is loaded here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from labcore.catalog.kinds import built_in
from labcore.catalog.llm.models import MODELS
from labcore.catalog.llm.pretrained import FULL, LORA, SCRATCH
from labcore.errors import LabError, os_reason, quoted
from labcore.runs.files import bases, storage, untrusted
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.adapters import base_of, is_adapter
from labcore.runs.files.paths import home, is_run_id, path_of, run_folder

BASE, START, BEST = "base", "start", "best"
REWARD_WEIGHTS = "reward_model.safetensors"  # in the checkpoints of a run that trains a reward model
PROCESS_WEIGHTS = "process_reward_model.safetensors"  # of a run that trains one for steps
_NAME = re.compile(rf"(?:(?P<stage>{BASE}|{START}):)?(?P<run>\w[\w.-]*?)(?:@(?P<step>\d{{1,9}}|{BEST}))?|"
                   r"SFT base (?P<sft>\w+)")
_WITH_LAB = re.compile(r"PRM (?P<base>\w+)")
_FOLDER = re.compile(r"(?P<run>[\w.-]+)/checkpoints/step-(?P<step>\d+)/policy|base/(?P<sft>\w+)/model")


@dataclass(frozen=True)
class Model:
    """A name taken apart. `stage` is BASE, START, or "" for a checkpoint; without `step` the newest.

    `sft` is the hash of a base model, which belongs to no run.
    """

    run: str
    stage: str = ""
    step: int | None = None
    sft: str = ""

    @property
    def name(self) -> str:
        if self.sft:
            return f"SFT base {self.sft}"
        return f"{self.stage}:{self.run}" if self.stage else self.run + ("" if self.step is None else f"@{self.step}")

    @property
    def pinned(self) -> Model:
        """A copy with the step of the newest checkpoint. Raises LabError if the run has no checkpoint yet."""
        if self.stage or self.sft or self.step is not None:
            return self
        step = checkpoint.newest_step(run_folder(self.run))
        if step is None and not storage.has(run_folder(self.run) / "spec.json"):
            raise no_run(self.run)
        if step is None:
            raise LabError(f"The run {self.run} has no checkpoint yet: wait for its first step.")
        return replace(self, step=step)


def read(name: str) -> Model | None:
    """The model that `name` means; None if it is not of one of these forms."""
    found = _NAME.fullmatch(name.strip())
    if found is None or (found["stage"] and found["step"]):
        return None
    return _best(found["run"]) if found["step"] == BEST else _model(found)


def _best(run: str) -> Model:
    """The best checkpoint of a run, by its step. Raises LabError where there is none."""
    step = checkpoint.best_step(run_folder(run)) if is_run_id(run) else None
    if step is None:
        raise LabError(f"The run {run} has no best checkpoint, since no held-out rows were measured: write {run}, or "
                       f"{run}@STEP for one of its checkpoints.")
    return Model(run, step=step)


def parse(name: str) -> Model:
    """The model of a run that `name` means. Raises LabError where it is no such name."""
    model = read(name)
    if model is None or model.sft:
        raise LabError(f"{quoted(name)} names no model: write the id of a run, id@step for one of its checkpoints, "
                       "base:id for the model that it started from, or start:id for the untrained weights.")
    return model


def name_of_model(model: str) -> str:
    """The name of a folder that the lab itself made; any other model as it is."""
    if not model.endswith(("policy", "model")):  # lists ask for thousands
        return model
    path = Path(model)
    found = _FOLDER.fullmatch(path.relative_to(home()).as_posix()) if path.is_relative_to(home()) else None
    return _model(found).name if found else model


def model_of_name(name: str) -> str:
    """The folder of the model of this name; for a run without a step, of its newest checkpoint. Any other text stays as
    it is.

    Models that come with the lab take precedence, because an imported run may have the same name. Raises LabError where
    a base that comes with the lab cannot be copied into the lab's folder.
    """
    model = None if name in built_in() else read(name)
    folder = model and _folder(model)
    return str(folder) if folder else name


def may_be_hub_id(name: str) -> bool:
    """True if a text that is no folder here may be the id of a model on the hub.

    >>> [may_be_hub_id(name) for name in ("Qwen/Qwen2.5-0.5B", "/no/such/model", "./mine", "~/mine", "a/b/c")]
    [True, False, False, False, False]
    """
    return name.count("/") == 1 and not name.startswith((".", "~", "/")) and "\\" not in name


def check(model: str) -> None:
    """Raise LabError where `model` is no folder and no hub id, and no run here has such a model. Fetches nothing."""
    if model in built_in() or storage.has(path_of(os.path.expanduser(model))) or may_be_hub_id(model):
        return
    found = read(model)
    if not found or found.stage or found.sft or not _left_anything(found.run):
        raise missing(model)
    policies = _policies(found.run)
    if not policies:
        raise LabError(f"The run {found.run} has no language model to start from: take one that has made a "
                       "checkpoint in the LLM lab.")
    if found.step is not None and found.step not in policies:
        raise LabError(f"The run {found.run} has no checkpoint of step {found.step}: take one of "
                       f"{', '.join(map(str, sorted(policies)))}.")


def members(names: str) -> list[str]:
    """The names of the reward models of an ensemble, which a knob has with commas between.

    >>> members("judge@60, other@60")
    ['judge@60', 'other@60']
    """
    return [name.strip() for name in names.split(",") if name.strip()]


def is_published(name: str) -> bool:
    """True if a reward model is a Hugging Face folder or a hub id, and no run's.

    >>> is_published("Skywork/Skywork-Reward-V2-Qwen3-0.6B"), is_published("judge@60")
    (True, False)
    """
    return may_be_hub_id(name) or (path_of(os.path.expanduser(name)).is_dir() and not _left_anything(name))


def reward_model_of(name: str, looks: bool = False) -> Path:
    """The checkpoint of the run that trained the reward model `name`, RUN or RUN@STEP. One that comes with the lab is
    copied into the lab's folder, unless somebody only `looks`. Raises LabError if there is no run of that name, it
    trained no reward model, or the checkpoint cannot be fetched."""
    return storage.fetch(_reward_model(name, looks))


def _reward_model(name: str, looks: bool = False) -> Path:
    """The folder of the reward model of that name, without fetching it from the object store."""
    if (kept := _WITH_LAB.fullmatch(name.strip())) and (folder := _base(kept["base"], looks)):
        return folder
    found = read(name)
    if found is None or found.stage or found.sft or not _left_anything(found.run):
        raise LabError(f"There is no reward model {quoted(name)} here: set `reward_model` to the id of a run of the "
                       "algorithm reward_model (RUN or RUN@STEP), or to the folder or hub id of a Hugging Face model "
                       "with one score.")
    there = dict(checkpoint.steps(run_folder(found.run)))
    step = found.pinned.step
    if step not in there:
        raise LabError(f"The run {found.run} has no checkpoint of step {step}: take one of "
                       f"{', '.join(map(str, there))}.")
    if not any(storage.has(there[step] / weights) for weights in (REWARD_WEIGHTS, PROCESS_WEIGHTS)):
        raise LabError(f"The run {found.run} trained no reward model: set `reward_model` to a run of the algorithm "
                       "reward_model or prm.")
    return there[step]


def pinned_reward_models(names: str) -> str:
    """The names of reward models with their steps, because a newer checkpoint may follow. Raises LabError as
    `reward_model_of`, or if one is named twice."""
    pinned = [_pinned_reward_model(name) for name in members(names)]
    if twice := [name for name in pinned if pinned.count(name) > 1]:
        raise LabError(f"The reward model {twice[0]} is named twice: an ensemble has different ones, for example of "
                       "different seeds.")
    return ",".join(pinned)


def _pinned_reward_model(name: str) -> str:
    """One that has its step and whose run is not here is left as it is: checkpoints hold their own copy."""
    if is_published(name):
        folder = path_of(os.path.expanduser(name))
        if folder.is_dir() and not (folder / "config.json").is_file():
            raise LabError(f"The folder {name} has no config.json: give the folder of a Hugging Face model with one "
                           "score.")
        return str(folder.resolve()) if folder.is_dir() else name
    if (kept := _WITH_LAB.fullmatch(name.strip())) and bases.there(kept["base"]):
        return name.strip()
    found = read(name)
    if found and found.step is not None and not _left_anything(found.run):
        return name
    _reward_model(name)
    return parse(name).pinned.name


def pinned_teacher(name: str) -> str:
    """The name of a teacher as a spec keeps it: a run's with its step, a folder's as a whole path. The name RUN@STEP of
    a run that is not here stays as it is. Raises LabError if there is no such model, or it has not been trained."""
    folder, found = path_of(os.path.expanduser(name)), read(name)
    if name in built_in():
        raise LabError(f"The teacher {quoted(name)} has random weights, from which nothing can be learnt: set "
                       "`teacher` to an earlier run, a Hugging Face folder, or a hub id.")
    if folder.is_dir():
        return str(folder.resolve())
    if may_be_hub_id(name) or (found and found.sft and bases.there(found.sft)):
        return name
    here = found is not None and bool(found.run) and _left_anything(found.run)
    if found and found.step is not None and not here:
        return name
    if found is None or found.stage or not here:
        raise LabError(f"There is no teacher {quoted(name)} here: set `teacher` to an earlier run (RUN, RUN@STEP or "
                       "RUN@best), a Hugging Face folder, or a hub id.")
    check(name)
    return found.pinned.name


def teacher_here(name: str) -> Path | None:
    """The folder of a teacher that is a run's or comes with the lab; None if it is another kind of model, or is not
    here."""
    found = None if name in built_in() or may_be_hub_id(name) else read(name)
    if found is None or path_of(os.path.expanduser(name)).is_dir():
        return None
    folder = _base(found.sft, looks=True) if found.sft else _folder(found)
    return folder if folder and folder.is_dir() else None


def is_here(teacher: str) -> bool:
    """Whether a teacher can be loaded: from this lab, from a folder, or from the hub."""
    return may_be_hub_id(teacher) or path_of(os.path.expanduser(teacher)).is_dir() or teacher_here(teacher) is not None


def missing(model: str) -> LabError:
    """The sentence for an unknown model."""
    return LabError(f"There is no model {quoted(model)}: choose {', '.join(MODELS)}, an earlier run (RUN, RUN@STEP or "
                    "RUN@best), a Hugging Face folder, or a hub id such as HuggingFaceTB/SmolLM2-135M.")


def no_run(run: str) -> LabError:
    """The sentence for a run that has left no files."""
    return LabError(f"The run {run} has no model here: it has not started yet, or was deleted.")


def without_folders(sentence: str) -> str:
    """The sentence with the lab's own models by their names, and uploads by the names of their files."""
    inside = rf"(?<![\w./-]){re.escape(str(home()))}/"
    sentence = re.sub(inside + r"uploads/\w+/(?=\w)", "", sentence)
    return re.sub(rf"{inside}(?:{_FOLDER.pattern})(?![\w/-]|\.\w)", lambda found: _model(found).name, sentence)


def _model(found: re.Match[str]) -> Model:
    parts = found.groupdict()
    return Model(parts["run"] or "", parts.get("stage") or "", int(parts["step"]) if parts["step"] else None,
                 parts["sft"] or "")


def _folder(model: Model) -> Path | None:
    """The model's Hugging Face folder, where it has one: fetched when it is loaded."""
    if model.sft:
        return _base(model.sft)
    policies = {} if model.stage else _policies(model.run)
    return policies.get(max(policies, default=0) if model.step is None else model.step)


def _base(name: str, looks: bool = False) -> Path | None:
    """The folder of a base's weights, also of one that comes with the lab and was never wanted yet: who only `looks`
    reads it from the package."""
    try:
        found = bases.readable(name) if looks else bases.take(name)
    except OSError as error:
        raise LabError(f"The base model {name} cannot be copied to {home()} ({os_reason(error)}): free some space, or "
                       "check the folder's permissions.") from error
    return found / "model" if found and (found / "model").is_dir() else None


def _policies(run: str) -> dict[int, Path]:
    """The folders of a run's language models by their steps; those that are published may not be here."""
    found = checkpoint.steps(run_folder(run)) if is_run_id(run) else ()
    return {step: folder / "policy" for step, folder in found if (folder / "policy").is_dir() or not folder.exists()}


def _left_anything(run: str) -> bool:
    """True if a run can be called so, and has files here or published."""
    return is_run_id(run) and (run_folder(run).is_dir() or storage.has(run_folder(run) / "spec.json"))


# ---------------------------------------------------------------- weights
# What weights a model has: those of the lab's own sizes, learnt from scratch, or pretrained ones. Loads nothing.

_SHAPE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


def kind_of(model: str, knobs: Mapping[str, Any]) -> str:
    """The way a run with these knobs trains the weights of `model`: SCRATCH, FULL or LORA."""
    if not pretrained(model):
        return SCRATCH
    return LORA if knobs.get("lora_rank") else FULL


def pretrained(model: str) -> bool:
    """True if `model` is none of the lab's own sizes: a hub id, or a folder whose configuration has another shape.

    A folder that cannot be read counts as pretrained: too small a learning rate breaks nothing. A folder on another
    machine is judged by the model with which its run began.
    """
    if model in built_in():
        return False
    try:
        folder = path_of(os.path.expanduser(model))
        if not folder.is_dir() and (found := read(name_of_model(model))):
            there = not found.sft and storage.has(run_folder(found.run) / "spec.json")
            return there and pretrained(_begun(found.run))
        config = folder / "config.json"
        if config.is_file():
            return _shape(config, config.stat().st_mtime_ns) not in _OWN
        return not is_adapter(folder) or pretrained(base_of(folder))
    except (LabError, OSError, ValueError, AttributeError, TypeError, KeyError):
        return True


def _begun(run: str) -> str:
    """The model that a run began with."""
    return str(untrusted.read_json(storage.fetch(run_folder(run) / "spec.json"))["model"])


_OWN = {(size.hidden, size.layers, size.heads, size.intermediate) for size in MODELS.values()}


@lru_cache(maxsize=256)  # lists ask for many runs
def _shape(config: Path, changed: int) -> tuple[Any, ...]:
    """The shape that a configuration says; `changed` is when it was written."""
    found = untrusted.read_json(config, constants=True)
    return tuple(found.get(key) for key in _SHAPE)
