"""A reward model as people publish them: a Hugging Face sequence classifier with one score, and its own tokenizer.

It reads text, not the policy's tokens: prompt and completion are rendered by its own chat template and tokenized by its
own tokenizer, so it may have any vocabulary. Weights in pickle files and models with code of their own are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

from labcore.errors import LabError, first_line
from labcore.llm.nets.folder import check_folder, find
from labcore.llm.nets.forward import precision
from labcore.llm.nets.tokenizer import load_tokenizer, with_padding
from labcore.tasks.reward_call import messages
from labcore.tasks.task import Problem

TOKENS = 8192  # of a micro-batch, padding included


class TextScorer(nn.Module):
    """A reward model with its tokenizer; `name` is its name in error texts."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str):
        super().__init__()
        self.model, self.tokenizer, self.name = model, tokenizer, name

    @property
    def config(self) -> PreTrainedConfig:
        return self.model.config

    @torch.no_grad()
    def scores(self, problems: Sequence[Problem], texts: Sequence[str], chat: bool, dtype: str) -> Tensor:
        """The score of each text as an answer to its problem; `chat`: the policy is asked by a chat template. (B,)

        Raises:
            LabError: a conversation cannot be written for it, or is longer than what it reads.
        """
        rows = [self._ids(problem, text, chat) for problem, text in zip(problems, texts, strict=True)]
        self._check_lengths(max(map(len, rows)))
        found = torch.empty(len(rows), dtype=torch.float64)
        padding = self.model.config.pad_token_id
        with precision(self.model, dtype):
            for places in parts([len(row) for row in rows], alone=padding is None):
                width = max(len(rows[place]) for place in places)
                ids = torch.tensor([[*rows[place], *[padding or 0] * (width - len(rows[place]))] for place in places])
                mask = torch.tensor([[1] * len(rows[place]) + [0] * (width - len(rows[place])) for place in places])
                device = next(self.model.parameters()).device
                logits = self.model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits
                found[places] = logits[:, 0].double().cpu()
        return found

    def _ids(self, problem: Problem, text: str, chat: bool) -> list[int]:
        """The ids of prompt and completion: a conversation by the reward model's own template, a text as it is.

        Source: TRL 1.16, `GRPOTrainer._calculate_rewards`; a text without a template gets the special tokens of its
        tokenizer as well, with which such models were trained.
        """
        turns = messages(problem)
        if self.tokenizer.chat_template is None or not (turns or chat):
            if turns:
                raise LabError(f"The reward model {self.name} has no chat template, and the prompts are conversations: "
                               "choose a reward model that was trained on conversations.")
            return list(self.tokenizer(problem.prompt + text)["input_ids"])
        turns = turns or [{"role": "user", "content": problem.prompt}]
        try:
            written = self.tokenizer.apply_chat_template([*turns, {"role": "assistant", "content": text}],
                                                         tokenize=False)
        except (TemplateError, ValueError, TypeError, KeyError) as error:  # what a template may do to its arguments
            raise LabError(f"The chat template of the reward model {self.name} refuses a prompt "
                           f"({first_line(error)[:200]}): check the order of its roles.") from error
        return list(self.tokenizer(written, add_special_tokens=False)["input_ids"])

    def _check_lengths(self, longest: int) -> None:
        config = self.model.config.get_text_config()
        room = getattr(config, "max_position_embeddings", None)
        if room and longest > room:
            raise LabError(f"A prompt and its completion have {longest:,} tokens for the reward model {self.name}, "
                           f"which reads {room:,}: lower `max_new_tokens`, or choose another reward model.")


def parts(lengths: list[int], alone: bool) -> list[list[int]]:
    """Group rows of similar length into micro-batches, as lists of indices; `alone`: one row each, so without padding.
    """
    found: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):  # each longer than those before
        if found and not alone and (len(found[-1]) + 1) * lengths[place] <= TOKENS:
            found[-1].append(place)
        else:
            found.append([place])
    return found


def load_text_scorer(name: str) -> TextScorer:
    """The reward model of a folder or a hub id, frozen, on the cpu.

    Raises:
        LabError: there is none, it gives more than one score, or it cannot be used.
    """
    folder = find(name, check_kind)
    check_folder(folder, check_kind)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    if config.num_labels != 1:
        raise LabError(f"The model in {folder} gives {config.num_labels} scores, but a reward model gives one: choose "
                       "a model with num_labels 1.")
    tokenizer, model = load_tokenizer(folder), loaded(folder, AutoModelForSequenceClassification)
    _padded(model, tokenizer)
    return TextScorer(model, tokenizer, name)


def loaded(folder: Path, head: Any) -> PreTrainedModel:
    """The model in a folder by one of transformers' classes, frozen, on the cpu.

    Raises:
        LabError: its files cannot be loaded, or lack some of its tensors.
    """
    try:
        model, info = head.from_pretrained(folder, dtype=torch.float32, use_safetensors=True, trust_remote_code=False,
                                           local_files_only=True, output_loading_info=True)
    except Exception as error:  # a configuration can break a model's own code in any way
        if isinstance(error, MemoryError) or "allocate" in str(error):
            raise
        raise LabError(f"The reward model in {folder} cannot be loaded ({first_line(error)[:300]}): check that its "
                       "files are whole and belong together.") from error
    if info["missing_keys"]:
        raise LabError(f"The weights in {folder} lack {len(info['missing_keys'])} of the reward model's tensors, such "
                       f"as {min(info['missing_keys'])}: use a folder saved by a trained reward model.")
    found: PreTrainedModel = model.eval().requires_grad_(False)
    return found


def _padded(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Have the model know a pad id that is no end: it takes the score at the last token that is no padding. Without
    such an id rows are scored one by one."""
    rows = model.get_input_embeddings().weight.shape[0]
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id == tokenizer.eos_token_id:
        with_padding(tokenizer, rows)
    pad = tokenizer.pad_token_id
    usable = pad is not None and pad != tokenizer.eos_token_id and pad < rows
    model.config.pad_token_id = model.config.get_text_config().pad_token_id = pad if usable else None


def empty_text_scorer(name: str) -> nn.Module:
    """The reward model with empty weights, for the device "meta". Raises LabError as `load_text_scorer`."""
    folder = find(name, check_kind)
    check_folder(folder, check_kind)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    scorer: nn.Module = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)
    return scorer


def check_kind(folder: Path | str, config: Mapping[str, Any]) -> None:
    """Check by its config.json that a model is a sequence classifier that needs no code of its own.

    Raises:
        LabError: it is not.
    """
    named, kind = config.get("architectures"), str(config.get("model_type"))[:80]
    own = [str(name)[:80] for name in named] if isinstance(named, list) else []
    known = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    heads = heads_of(known)
    if kind not in known and config.get("auto_map"):
        raise LabError(f"The reward model in {folder} ({kind}) needs code of its own, which the lab does not run: "
                       "choose a model that transformers knows.")
    if kind not in known or not heads & set(own):
        raise LabError(f"The model in {folder} ({', '.join(own) or kind}) is no reward model: choose a folder of "
                       "AutoModelForSequenceClassification with one score, or a run of the algorithm reward_model.")


def scores_wholes(config: Mapping[str, Any]) -> bool:
    """True if a config.json is that of a sequence classifier."""
    named = config.get("architectures")
    return isinstance(named, list) and bool(
        heads_of(MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES) & {str(name) for name in named})


def heads_of(known: Mapping[str, Any]) -> set[str]:
    """The names of the classes in one of transformers' tables."""
    return {head for names in known.values() for head in ([names] if isinstance(names, str) else names)}
