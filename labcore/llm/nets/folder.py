"""Find a Hugging Face model's folder, and say in words why it cannot be used, before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from labcore.errors import LabError, quoted
from labcore.files import hub_models
from labcore.files.adapters import is_adapter
from labcore.files.artifacts import fetch
from labcore.files.given import read_json
from labcore.files.hub_models import CONFIG, PICKLES, TOKENIZER_FILES
from labcore.files.paths import path_of
from labcore.llm.nets.size import check_size
from labcore.llm.nets.table import TYPE, SoftmaxTable
from labcore.spec.activity import report
from labcore.spec.model_names import may_be_hub_id, missing

OWN = {TYPE: SoftmaxTable.__name__}  # the lab's own, of which a folder needs no code either

CheckKind = Callable[[Path | str, Mapping[str, Any]], None]


def find(name_or_path: str | Path, check_kind: CheckKind | None = None, weights: bool = True) -> Path:
    """The folder of a local path, or of a hub id, fetched where the cache does not hold it. `check_kind` refuses what
    is not wanted by its config.json: by default all but causal language models. Of a hub id only what describes the
    model is fetched where its `weights` are not wanted.

    Raises:
        LabError: there is no such folder, no such id, the hub cannot be reached, or the model there cannot be used.
    """
    name = str(name_or_path)
    folder = fetch.bring(path_of(os.path.expanduser(name_or_path)))  # Path's own raises for an unknown user
    if folder.is_dir():
        return folder
    if folder.exists():
        raise LabError(f"{name} is a file, not a model: give the folder that holds its config.json.")
    if folder.is_absolute() or not may_be_hub_id(name):
        raise missing(name)
    def check(there: Path) -> None:
        (check_kind or _check_kind)(name, described := config_of(there))
        check_size(name, described)

    return hub_models.fetch(name, report, weights, check)


def download(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The job `download`: {"folder"} of the model that the hub calls `name`, complete and checked.

    Raises LabError as `find` and `check_folder`.
    """
    name = str(spec["name"])
    if not may_be_hub_id(name):
        raise LabError(f"{quoted(name)} is no model of the hub: write organisation/name.")
    folder = find(name)
    if not is_adapter(folder):
        check_folder(folder)
    return {"folder": str(folder)}


def check_folder(folder: Path, check_kind: CheckKind | None = None) -> None:
    """Check a model's folder by its file names and config.json; `check_kind` as in `find`.

    Raises:
        LabError: no config, no tokenizer, no safetensors, no causal language model that runs without its own code, or
            one that does not fit in this machine's memory.
    """
    config = config_of(folder)
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise LabError(f"The folder {folder} has no tokenizer (such as tokenizer.json): save the model's into "
                       "it with tokenizer.save_pretrained.")
    if not any(folder.glob("*.safetensors")):
        pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        if pickles:
            raise LabError(f"The folder {folder} has only pickle weights ({pickles[0]}), which can run any code: "
                           "convert them to model.safetensors with model.save_pretrained.")
        raise LabError(f"The folder {folder} has no weights: put model.safetensors into it.")
    (check_kind or _check_kind)(folder, config)
    check_size(folder, config)


def _check_kind(folder: Path | str, config: Mapping[str, Any]) -> None:
    known, named = {**MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, **OWN}, config.get("architectures")
    own = [str(name)[:80] for name in named] if isinstance(named, list) else []
    kind = str(config.get("model_type"))[:80]
    if kind not in known and config.get("auto_map"):
        raise LabError(f"The model in {folder} ({kind}) needs code of its own, which the lab does not run: choose a "
                       "model that transformers knows.")
    heads = {head for names in known.values() for head in ([names] if isinstance(names, str) else names)}
    if kind not in known or config.get("is_encoder_decoder") or (own and not heads & set(own)):
        raise LabError(f"The model in {folder} ({', '.join(own) or kind}) is not a causal language model: choose one "
                       "such as LlamaForCausalLM.")


def config_of(folder: Path) -> dict[str, Any]:
    """What the config.json of a folder says. Raises LabError where there is none, or it is no model's."""
    path = folder / CONFIG
    if not path.is_file():
        raise LabError(f"The folder {folder} has no config.json: give the folder of a Hugging Face model.")
    try:
        config = read_json(path, constants=True)  # Mamba2 writes Infinity
    except ValueError as error:
        raise LabError(f"{path} is not JSON ({error}): copy it again.") from error
    if not isinstance(config, dict):
        raise LabError(f"{path} is not a model's configuration: copy it again.")
    return config
