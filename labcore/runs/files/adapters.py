"""Folders that hold a LoRA adapter alone, as `peft` writes them: find the base model without loading anything."""

from __future__ import annotations

import re
from pathlib import Path

from labcore.errors import LabError
from labcore.runs.files import bases, storage, untrusted
from labcore.runs.files.paths import path_of

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
BESIDE = "base"  # in a capsule, beside the checkpoints: the weights that their adapters are on
_MADE_HERE = re.compile(r"(?:.*/)?base/(?P<sft>\w+)/model")


def is_adapter(folder: Path) -> bool:
    """True if the folder holds an adapter alone, and not a whole model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def base_of(folder: Path) -> str:
    """The folder or hub id of the base weights of the adapter in `folder`. Raises LabError if its configuration cannot
    be read, or is not LoRA's."""
    try:
        config = untrusted.read_json(folder / CONFIG, constants=True)
        kind, base = config["peft_type"], str(config["base_model_name_or_path"] or "")
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{folder / CONFIG} is not the configuration of an adapter ({error}): save the adapter again "
                       "with save_pretrained.") from error
    if kind != "LORA":
        raise LabError(f"The adapter in {folder} is of the type {kind}, and the lab reads LoRA only: merge it into its "
                       "base model first.")
    if not base:
        raise LabError(f"The adapter in {folder} does not say which model it is for: write its folder or hub id into "
                       f"base_model_name_or_path of {CONFIG}.")
    if (here := storage.fetch(path_of(base))).is_dir():
        if Path(base).resolve() == folder.resolve():
            raise LabError(f"The adapter in {folder} names itself as its base model: write the folder or hub id of the "
                           f"model that it was trained on into base_model_name_or_path of {CONFIG}.")
        return base if path_of(base).is_dir() else str(here)
    beside, made_here = folder.parents[1] / BESIDE, _MADE_HERE.fullmatch(base)
    if beside.is_dir():
        return str(beside)
    found = bases.take(made_here["sft"]) if made_here else None
    return str(found / "model") if found else base


def base_folder(folder: Path) -> Path | None:
    """The folder of the base weights of the adapter in `folder`; None if they are the hub's, or the folder holds no
    adapter."""
    if not is_adapter(folder):
        return None
    base = Path(base_of(folder))
    return base if base.is_dir() else None
