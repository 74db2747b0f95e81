"""Load what a run needs to write its prompts, without the weights: tokenizer, chat template and context length."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerBase

from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError, first_line
from labcore.files.adapters import base_of, is_adapter
from labcore.llm.nets.folder import config_of, find
from labcore.llm.nets.tokenizer import character_tokenizer, check_end, load_tokenizer
from labcore.llm.rendering import Rendering
from labcore.tasks.task import TextTask


@dataclass(frozen=True)
class Reader:
    """`context` is the tokens that a prompt and its completion may take together."""

    rendering: Rendering
    context: int


@dataclass(frozen=True)
class _Ends:
    generation_config: Any


def reader_of(model: str, task: TextTask, knobs: Mapping[str, Any]) -> Reader:
    """The reader of a run of `model` on `task` with these knobs: the same ids as its session.

    Raises:
        LabError: there is no such model, or its tokenizer or its configuration cannot be used.
    """
    if model in MODELS:
        tokenizer: PreTrainedTokenizerBase = character_tokenizer(task.characters)
        return Reader(Rendering.of(tokenizer, _Ends(None), knobs), MODELS[model].context)
    folder = find(model, weights=False)
    if is_adapter(folder):
        folder = find(base_of(folder), weights=False)
    tokenizer = load_tokenizer(folder)
    check_end(tokenizer, folder)
    config = _config(folder)
    context = getattr(config.get_text_config(), "max_position_embeddings", None) or tokenizer.model_max_length
    return Reader(Rendering.of(tokenizer, _Ends(_generation(folder, config)), knobs), int(context))


def _config(folder: Path) -> Any:
    config_of(folder)  # says in words what is wrong with the file
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise LabError(f"The configuration in {folder} cannot be used ({first_line(error)[:200]}): copy the model "
                       "again.") from error


def _generation(folder: Path, config: Any) -> GenerationConfig:
    """As `from_pretrained` of a model has it."""
    with suppress(OSError, ValueError, TypeError):  # a damaged one is none there either
        return GenerationConfig.from_pretrained(folder, local_files_only=True)
    return GenerationConfig.from_model_config(config)
