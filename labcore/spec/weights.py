"""What weights a model has: those of the lab's own sizes, learnt from scratch, or pretrained ones. Loads nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from labcore.catalog.kinds import built_in
from labcore.catalog.llm.models import MODELS
from labcore.catalog.llm.pretrained import FULL, LORA, SCRATCH
from labcore.errors import LabError
from labcore.files import given
from labcore.files.adapters import base_of, is_adapter
from labcore.files.artifacts import fetch
from labcore.files.paths import path_of, run_folder
from labcore.spec.model_names import name_of_model, read

_SHAPE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


def kind_of(model: str, knobs: Mapping[str, Any]) -> str:
    """How a run with these knobs learns the weights of `model`: SCRATCH, FULL or LORA."""
    if not pretrained(model):
        return SCRATCH
    return LORA if knobs.get("lora_rank") else FULL


def pretrained(model: str) -> bool:
    """Whether `model` is none of the lab's own sizes: a hub id, or a folder whose configuration has another shape.

    A folder that cannot be read counts as pretrained: too small a learning rate breaks nothing. One that another
    machine has is what its run began with.
    """
    if model in built_in():
        return False
    try:
        folder = path_of(os.path.expanduser(model))
        if not folder.is_dir() and (found := read(name_of_model(model))):
            return not found.sft and fetch.there(run_folder(found.run) / "spec.json") and pretrained(_begun(found.run))
        config = folder / "config.json"
        if config.is_file():
            return _shape(config, config.stat().st_mtime_ns) not in _OWN
        return not is_adapter(folder) or pretrained(base_of(folder))
    except (LabError, OSError, ValueError, AttributeError, TypeError, KeyError):
        return True


def _begun(run: str) -> str:
    """The model that a run began with."""
    return str(given.read_json(fetch.bring(run_folder(run) / "spec.json"))["model"])


_OWN = {(size.hidden, size.layers, size.heads, size.intermediate) for size in MODELS.values()}


@lru_cache(maxsize=256)  # lists ask for many runs
def _shape(config: Path, changed: int) -> tuple[Any, ...]:
    """The shape that a configuration says; `changed` is when it was written."""
    found = given.read_json(config, constants=True)
    return tuple(found.get(key) for key in _SHAPE)
