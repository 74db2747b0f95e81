"""LoRA: W + (α/r) B A with W frozen and A, B learnt, by the layers of `peft`.

    policy      W + (α/r) B A
    reference   W alone, the same tensors: a second model that takes no memory
    critic      W + (α/r) B' A' in its trunk, and a head of its own

B begins at zero, so every network begins as it was. `peft` takes a second to import: only a run that uses it does.
Adapters are read and written as `peft` has them, in safetensors only.
"""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import GENERATION_CONFIG_NAME

from labcore.errors import LabError, first_line
from labcore.llm.nets.folder import find
from labcore.runs.files.adapters import WEIGHTS, base_of
from labcore.runs.files.hub_models import PICKLES

FINGERPRINT = "base_sha256"  # in the metadata of an adapter: of the weights that it was trained on
TEMPLATE = "chat_template.jinja"  # beside the tokenizer, as transformers writes it
HEAD = "head."  # of a critic, learnt in full
_NAME, _PREFIX, _MARK = "default", "base_model.model.", "lora_"

Load = Callable[[str], tuple[PreTrainedModel, PreTrainedTokenizerBase]]


@dataclass(frozen=True)
class Lora:
    """Rank and α of the adapters of a run, and the seed of their A."""

    rank: int
    alpha: int
    seed: int

    @staticmethod
    def of(knobs: Mapping[str, Any], seed: int) -> Lora | None:
        """The LoRA of the knobs; None where it is off."""
        rank = int(knobs.get("lora_rank", 0))
        return Lora(rank, int(knobs["lora_alpha"]), seed) if rank else None

    def put_on(self, model: nn.Module) -> None:
        """Freeze the layers of `model` and add adapters to the layers that are usual for its architecture, in place.

        Raises:
            LabError: `peft` knows no usual layers for it.
        """
        if adapted(model):
            return
        from peft import LoraConfig

        _inject(LoraConfig(r=self.rank, lora_alpha=self.alpha, lora_dropout=0.0), _trunk(model), self.seed)


def adapted(model: nn.Module) -> bool:
    """Whether there are adapters on `model`."""
    return any(_MARK in name for name, _ in model.named_parameters())


def own(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of an adapted network that are not the frozen weights: its adapter, and a critic's head."""
    return {name: value for name, value in model.named_parameters() if _MARK in name or name.startswith(HEAD)}


@torch.no_grad()
def put(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Write the tensors that `own` returned back into the network. Raises LabError if they do not fit."""
    there = own(model)
    if why := _misfit(there, tensors):
        raise LabError(f"the adapter does not fit: {why}")
    for name, value in tensors.items():
        there[name].copy_(value)


def share(model: nn.Module) -> nn.Module:
    """A copy of `model` that shares its frozen weights; only the trainable weights are copied."""
    return copy.deepcopy(model, {id(weight): weight for weight in model.parameters() if not weight.requires_grad})


@torch.no_grad()
def merge(model: nn.Module) -> None:
    """Add the adapters to the weights they are on, and take them off, in place."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, layer in list(model.named_modules()):
        if isinstance(layer, BaseTunerLayer):
            layer.merge()
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, layer.get_base_layer())
    if hasattr(model, "peft_config"):
        del model.peft_config


@torch.no_grad()
def merged(model: nn.Module) -> dict[str, Tensor]:
    """The weights that `merge` would leave, W + (α/r) B A, under the names that they have then; `model` stays as it is.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    change = {f"{name}.weight": layer.get_delta_weight(_NAME) for name, layer in model.named_modules()
              if isinstance(layer, BaseTunerLayer)}
    plain = {name.replace(".base_layer.", "."): value for name, value in model.state_dict().items()
             if _MARK not in name}
    return {name: value + change[name] if name in change else value for name, value in plain.items()}


# ---------------------------------------------------------------- folders


def save_adapter(model: PreTrainedModel, base: str, folder: Path) -> None:
    """Write the adapter as `peft` loads it. `base` is the folder or hub id of the weights that it is on."""
    folder.mkdir(parents=True, exist_ok=True)
    config = copy.copy(model.peft_config[_NAME])
    config.base_model_name_or_path, config.task_type, config.inference_mode = base, "CAUSAL_LM", True
    config.save_pretrained(folder)
    tensors = {_stored(name): value.detach().cpu().contiguous() for name, value in own(model).items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt", FINGERPRINT: _fingerprint(find(base))})


def read_adapter(model: nn.Module, folder: Path) -> None:
    """Load the adapter of a checkpoint into a policy with LoRA. Raises LabError if it does not fit."""
    tensors = load_file(folder / WEIGHTS)
    names = {_stored(name): name for name in own(model)}
    put(model, {names.get(name, name): value for name, value in tensors.items()})


def load_adapted(folder: Path, load: Load) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The base model of the adapter in `folder`, which `load` loads, with the adapter merged into its weights.

    Raises:
        LabError: the base is not there or another one, or the adapter does not fit it.
    """
    base = base_of(folder)
    try:
        model, tokenizer = load(base)
    except LabError as error:
        raise LabError(f"The adapter in {folder} is for the model {base}, which cannot be loaded: {error}") from error
    _as_trained(folder, model, tokenizer)
    tensors = _tensors(folder, base)
    wear(model, folder)
    names = {_stored(name): name for name in own(model)}
    if why := _misfit({stored: own(model)[name] for stored, name in names.items()}, tensors):
        raise LabError(f"The adapter in {folder} does not fit the model {base}: {why}. Use the model that it was "
                       "trained on.")
    put(model, {names[stored]: value for stored, value in tensors.items()})
    merge(model)
    return model.requires_grad_(True), tokenizer


def _as_trained(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Take over how the adapter's run wrote prompts and where its completions ended, which its base may not know."""
    template, generation = folder / TEMPLATE, folder / GENERATION_CONFIG_NAME
    try:
        if template.is_file():
            tokenizer.chat_template = template.read_text("utf-8")
        ends = GenerationConfig.from_pretrained(folder).eos_token_id if generation.is_file() else None
    except (OSError, ValueError, TypeError) as error:
        raise LabError(f"The adapter in {folder} has a {TEMPLATE} or a {GENERATION_CONFIG_NAME} that cannot be read "
                       f"({first_line(error)[:200]}): copy the adapter again.") from error
    if ends is not None:
        model.generation_config.eos_token_id = ends


def wear(model: nn.Module, folder: Path) -> None:
    """Put adapters of the form that the configuration in `folder` says on `model`, in place.

    Raises:
        LabError: the configuration says something that `peft` cannot do with this model.
    """
    from peft import PeftConfig

    try:
        _inject(PeftConfig.from_pretrained(str(folder)), _trunk(model), seed=0)
    except (ValueError, TypeError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".:")
        raise LabError(f"The adapter in {folder} does not fit the model {base_of(folder)} ({reason}): use the model "
                       "that it was trained on.") from error


def _tensors(folder: Path, base: str) -> dict[str, Tensor]:
    path = folder / WEIGHTS
    if not path.is_file():
        pickles = sorted(found.name for pattern in PICKLES for found in folder.glob(pattern))
        if pickles:
            raise LabError(f"The adapter in {folder} has only pickle weights ({pickles[0]}), which can run any code: "
                           f"save it as {WEIGHTS}.")
        raise LabError(f"The adapter in {folder} has no weights: put {WEIGHTS} into it.")
    try:
        with safe_open(path, "pt") as file:
            wanted = (file.metadata() or {}).get(FINGERPRINT)
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise LabError(f"The adapter {path} cannot be read ({error}): copy it again.") from error
    if wanted and wanted != _fingerprint(find(base)):
        raise LabError(f"The adapter in {folder} was trained on other weights than those now in {base}: put the "
                       "original back, or train the adapter again.")
    return tensors


def _misfit(there: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str:
    """Why tensors cannot be those of a network; empty where they can."""
    if lacking := sorted(there.keys() - given.keys()):
        return f"it lacks {len(lacking)} of {len(there)} tensors, such as {lacking[0]}"
    if unknown := sorted(given.keys() - there.keys()):
        return f"the model has no place for {len(unknown)} of its tensors, such as {unknown[0]}"
    for name, value in given.items():
        if value.shape != there[name].shape:
            return f"{name} is {tuple(value.shape)}, and the model needs {tuple(there[name].shape)}"
    return ""


def _inject(config: Any, model: nn.Module, seed: int) -> None:
    from peft import inject_adapter_in_model

    kind = getattr(model.config, "model_type", "unknown")
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that GPT-2 keeps its matrices transposed, which peft then sees to
            torch.manual_seed(seed)
            inject_adapter_in_model(config, model, _NAME)
    except ValueError as error:
        if config.target_modules is not None:
            raise
        raise LabError(f"There are no usual layers for LoRA on a model of the type {kind}: set `lora_rank` to 0, or "
                       "choose a Llama, Qwen, Mistral, Gemma or GPT-2 model.") from error


def _trunk(model: nn.Module) -> nn.Module:
    """The part that adapters are put on: of a critic all but its head."""
    return getattr(model, "trunk", model)


def _stored(name: str) -> str:
    return _PREFIX + name.replace(f".{_NAME}.", ".")


def _fingerprint(folder: Path) -> str:
    """The SHA-256 of a folder's weights."""
    files = tuple((str(path), path.stat().st_mtime_ns) for path in sorted(folder.glob("*.safetensors")))
    return _hashed(files)


@lru_cache(maxsize=8)
def _hashed(files: tuple[tuple[str, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, _ in files:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
