"""Find a Hugging Face model's folder, and say in words why it cannot be used, before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from labcore.errors import LabError, quoted
from labcore.llm.nets.table import TYPE, SoftmaxTable
from labcore.runs.files import hub_models, storage
from labcore.runs.files.adapters import is_adapter
from labcore.runs.files.hub_models import CONFIG, PICKLES, TOKENIZER_FILES
from labcore.runs.files.paths import path_of
from labcore.runs.files.untrusted import read_json
from labcore.runs.spec.activity import report
from labcore.runs.spec.model_names import may_be_hub_id, missing

# ---------------------------------------------------------------- size
# How large the model of a config.json would be: counted from its numbers alone, before anything is built.
#
# The count is that of a transformer with these sizes, where the architecture is one; of any other only the embeddings
# and one square matrix per layer. It leaves out experts and parts that only some architectures
# have. So the count is a lower bound, by which a model that no machine could hold is refused.

BYTES = 4  # of a parameter
MOST_LAYERS = 1000  # each takes time and memory to build, however narrow it is
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
          "intermediate_size", "max_position_embeddings", "context")
# Architectures each of whose layers is an attention and an MLP of its own, with the sizes under their usual names.
PLAIN = ("gemma", "gpt2", "gpt_neox", "llama", "mistral", "opt", "phi", "qwen2", "qwen3")
_LARGEST_SHOWN = 10**21
_LONGEST_TABLE = 64  # a table of two tokens with prefixes as long as that has more rows than any machine


def check_size(folder: Path | str, config: Mapping[str, Any]) -> None:
    """Check the sizes in a model's configuration; `folder` is the model's name in error texts.

    Raises:
        LabError: one is no whole number from 1, or the model would not fit in this machine's memory.
    """
    sizes = _sizes(folder, config)
    count, memory = _count(config, sizes), psutil.virtual_memory().total
    if count * BYTES > memory:
        raise LabError(f"The model in {folder} would have {_many(count)} parameters, which take "
                       f"{_many(count * BYTES)}B of memory, and this machine has {_many(memory)}B: choose a smaller "
                       "model, or correct its config.json.")
    if (layers := sizes.get("num_hidden_layers", 0)) > MOST_LAYERS:
        raise LabError(f"The model in {folder} would have {_many(layers)} layers with {_many(count)} parameters, and "
                       f"the lab builds at most {MOST_LAYERS:,} layers: choose another model, or correct its "
                       "config.json.")


def _sizes(folder: Path | str, config: Mapping[str, Any]) -> dict[str, int]:
    """The sizes that are known, by their usual names: those that are written, else those of the architecture."""
    kind, found = config["model_type"], {}
    usual = CONFIG_MAPPING[kind] if kind in CONFIG_MAPPING else object  # noqa: SIM401 (it loads what is asked for)
    text = config.get("text_config")  # of a model that reads more than text
    written = {**config, **text} if isinstance(text, dict) else config
    for name in _SIZES:
        own = getattr(usual, "attribute_map", {}).get(name, name)
        value = next((written[key] for key in (own, name) if written.get(key) is not None), None)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | list)
                                  or (isinstance(value, int) and value < 1)):
            raise LabError(f"The model in {folder} has {quoted(str(value))} as its {own}: write a whole number from 1 "
                           "into its config.json.")
        value = getattr(usual, own, None) if value is None else value
        if isinstance(value, int):  # some architectures have a list of one for each layer
            found[name] = value
    return found


def _count(config: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """At least how many parameters a model of these sizes has."""
    tokens, hidden = sizes.get("vocab_size", 1), sizes.get("hidden_size", 1)
    if config["model_type"] == TYPE:
        context = sizes.get("context", 1)
        rows: int = tokens ** min(context, _LONGEST_TABLE)
        return max(rows, tokens * context)
    layers, embeddings = sizes.get("num_hidden_layers", 1), 2 if config.get("tie_word_embeddings") is False else 1
    if config["model_type"] not in PLAIN:
        return embeddings * tokens * hidden + layers * hidden**2
    heads, inner = sizes.get("num_attention_heads", 0), sizes.get("intermediate_size", 4 * hidden)
    width = sizes.get("head_dim", hidden // max(heads, 1))
    attention = 2 * hidden * width * (heads + min(heads, sizes.get("num_key_value_heads", heads)))
    matrices = 3 if config.get("hidden_act") == "silu" else 2
    return embeddings * tokens * hidden + layers * (attention + matrices * hidden * inner)


def _many(number: int) -> str:
    """A number in words of four digits at most.

    >>> _many(135_000_000), _many(8 * 2**30), _many(10**40)
    ('135 M', '8.59 G', 'more than 1,000 E')
    """
    if number > _LARGEST_SHOWN:
        return "more than 1,000 E"
    value, units = float(number), iter(("", " k", " M", " G", " T", " P", " E"))
    unit = next(units)
    while value >= 999.5 and unit != " E":
        value, unit = value / 1000, next(units)
    return f"{value:.3g}{unit}"


# ---------------------------------------------------------------- folder

OWN = {TYPE: SoftmaxTable.__name__}  # the lab's own, of which a folder needs no code either

CheckKind = Callable[[Path | str, Mapping[str, Any]], None]


def find(name_or_path: str | Path, check_kind: CheckKind | None = None, weights: bool = True) -> Path:
    """The folder of a model: a local path, or a hub id, which is downloaded if it is not in the cache. `check_kind`
    reads config.json and refuses unsuitable models; by default all but causal language models. Without `weights` only
    the small files that describe a hub model are downloaded.

    Raises:
        LabError: there is no such folder, no such id, the hub cannot be reached, or the model there cannot be used.
    """
    name = str(name_or_path)
    folder = storage.fetch(path_of(os.path.expanduser(name_or_path)))  # Path's own raises for an unknown user
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
    """The content of a folder's config.json. Raises LabError where there is none, or it is no model's."""
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
