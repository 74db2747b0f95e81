"""Check the fields of a new run's spec one by one, each with a sentence that says what to write instead."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.kinds import Kind
from labcore.catalog.knob import Value, suggestion
from labcore.catalog.llm.models import MODELS
from labcore.catalog.task import Task
from labcore.errors import LabError, quoted
from labcore.runs.files import storage
from labcore.runs.files.paths import path_of
from labcore.runs.spec import model_names

WHOLE = {"seed": (0, 2**31 - 1), "steps": (1, 10_000_000), "threads": (1, 1024)}  # whole numbers, from and to


def known(row: Algorithm, task_key: str, keys: Iterable[str], there: Collection[str]) -> None:
    for key in keys:
        if key not in there:
            raise LabError(f"{row.label} on {quoted(task_key)} has no knob {quoted(key)}: "
                           f"{suggestion(key, list(there))}")


def whole(**numbers: object) -> None:
    for name, value in numbers.items():
        low, high = WHOLE[name]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise LabError(f"{name} must be a whole number from {low} to {high}, not {quoted(value)}.")


def data(task_row: Task, path: str | None) -> None:
    if task_row.data and not path:
        raise LabError(f"The task {task_row.key!r} needs your {task_row.data} file: give --{task_row.data} FILE.")
    if path and not storage.fetch(path_of(path)).is_file():
        raise LabError(f"There is no file {path}: check the path.")


def model(kind_row: Kind, name: str, forked: bool) -> None:
    if not name:
        raise LabError(f"The model is missing: choose {', '.join(MODELS)}, or give an earlier run, a Hugging Face "
                       "folder or a hub id.")
    if len(kind_row.models) == 1 and name != kind_row.model:
        raise LabError(f"A run of the kind {kind_row.key} has no model to choose: leave {quoted(name)} out.")
    if not forked:  # a fork has its weights in a checkpoint, and its parent's first weights may be gone
        model_names.check(name)


def lora(row: Algorithm, source: str, knobs: Mapping[str, Value]) -> None:
    """Check that an adapter is put on weights that have learnt something, and not on random ones."""
    if knobs.get("lora_rank") and source in MODELS and (row.loop == "sft" or not knobs["sft_steps"]):
        raise LabError(f"LoRA leaves the weights of its model as they are, and those of {quoted(source)} would be "
                       "random here: choose an earlier run or a Hugging Face model, or set `lora_rank` to 0.")
