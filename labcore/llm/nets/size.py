"""How large the model of a config.json would be: counted from its numbers alone, before anything is built.

The count is that of a transformer with these sizes, where the architecture is one; of any other only the embeddings and
one square matrix per layer. Left out: experts, and what is particular to an architecture. So it says what a model has
at least, to refuse what no machine could hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from transformers import CONFIG_MAPPING

from labcore.errors import LabError, quoted
from labcore.llm.nets.table import TYPE

BYTES = 4  # of a parameter
MOST_LAYERS = 1000  # each takes time and memory to build, however narrow it is
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
          "intermediate_size", "max_position_embeddings", "context")
# Architectures each of whose layers is an attention and an MLP of its own, with the sizes under their usual names.
PLAIN = ("gemma", "gpt2", "gpt_neox", "llama", "mistral", "opt", "phi", "qwen2", "qwen3")
_LARGEST_SHOWN = 10**21
_LONGEST_TABLE = 64  # a table of two tokens with prefixes as long as that has more rows than any machine


def check_size(folder: Path | str, config: Mapping[str, Any]) -> None:
    """Check the sizes in a configuration; `folder` is what the user calls the model.

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
