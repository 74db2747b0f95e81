"""Process reward models as people publish them, each with a tokenizer of its own. Two layouts are read:

    token classification    prompt  step 1 ⏎  step 2 ⏎        P(label 1) after each separator, as in TRL's PRMTrainer
    a tag behind each step  prompt  step 1 TAG ⏎ step 2 TAG   π(good) / (π(good) + π(bad)) after each tag, of a language
                                                              model such as math-shepherd

Left out: models that bring code, such as Qwen2.5-Math-PRM, and conversations with a turn for each step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
)

from labcore.errors import LabError, quoted
from labcore.llm.nets.folder import check_folder, config_of, find
from labcore.llm.nets.forward import precision
from labcore.llm.nets.text_scorer import heads_of, loaded, parts
from labcore.llm.nets.tokenizer import load_tokenizer
from labcore.tasks.reward_call import messages
from labcore.tasks.steps import separator_of
from labcore.tasks.task import Problem

Row = tuple[list[int], list[int]]  # the ids of an answer with its prompt, and the places where its steps are scored


@dataclass(frozen=True)
class Tag:
    """The token behind each step, and the two tokens whose probabilities are compared there."""

    text: str
    id: int
    good: int
    bad: int


class TextStepScorer(nn.Module):
    """A process reward model with its tokenizer; `name` is its name in error texts. Without a `tag` it is a token
    classifier that reads the `separator` behind each step."""

    of_steps = True

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str, separator: str,
                 tag: Tag | None):
        super().__init__()
        self.model, self.tokenizer, self.name, self.separator, self.tag = model, tokenizer, name, separator, tag

    @property
    def config(self) -> PreTrainedConfig:
        return self.model.config

    @torch.no_grad()
    def scores(self, problems: Sequence[Problem], answers: Sequence[Sequence[str]], dtype: str) -> Tensor:
        """The probability that each step is right, NaN where there is no step. B problems and the steps of B answers to
        them -> (B, K) float64

        Raises:
            LabError: a conversation cannot be written for it, an answer is longer than what it reads, or its tokenizer
                merges a tag with the text around it.
        """
        rows = [self._row(problem, [_bare(step, self.separator) for step in steps])
                for problem, steps in zip(problems, answers, strict=True)]
        self._check_lengths(max(len(ids) for ids, _ in rows))
        found = torch.full((len(rows), max(map(len, answers))), torch.nan, dtype=torch.float64)
        device = next(self.model.parameters()).device
        with precision(self.model, dtype):
            for some in parts([len(ids) for ids, _ in rows], alone=False):
                width = max(len(rows[row][0]) for row in some)  # padded at the end, which no earlier token sees
                ids = torch.tensor([rows[row][0] + [0] * (width - len(rows[row][0])) for row in some])
                mask = torch.tensor([[1] * len(rows[row][0]) + [0] * (width - len(rows[row][0])) for row in some])
                logits = self.model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits
                for row, each in zip(some, logits, strict=True):
                    places = rows[row][1]
                    found[row, :len(places)] = self._right(each[places].double()).cpu()
        return found

    def _right(self, logits: Tensor) -> Tensor:
        """(K, V) -> (K,)"""
        two = logits if self.tag is None else logits[:, [self.tag.bad, self.tag.good]]
        return two.softmax(-1)[:, 1]

    def _row(self, problem: Problem, steps: Sequence[str]) -> Row:
        return self._classified(problem, steps) if self.tag is None else self._tagged(problem, steps, self.tag)

    def _classified(self, problem: Problem, steps: Sequence[str]) -> Row:
        """Source: TRL 1.13, `PRMTrainer.tokenize_row`."""
        ids, places = self._encoded(self._asked(problem)), []
        if self.tokenizer.bos_token_id is not None and ids[:1] != [self.tokenizer.bos_token_id]:
            ids = [self.tokenizer.bos_token_id, *ids]
        for step in steps:
            ids = [*ids, *(self._encoded(step) if step else []), *self._encoded(self.separator)]
            places.append(len(ids) - 1)
        return ids, places

    def _tagged(self, problem: Problem, steps: Sequence[str], tag: Tag) -> Row:
        """A tag that the policy writes is left out.

        Source: the model card of peiyi9979/math-shepherd-mistral-7b-prm.
        """
        asked = self._asked(problem).replace(tag.text, "")
        written = self.separator.join(f"{step.replace(tag.text, '')} {tag.text}" for step in steps)
        ids = list(self.tokenizer(f"{asked} {written}")["input_ids"])
        places = [place for place, token in enumerate(ids) if token == tag.id]
        if len(places) != len(steps):
            raise LabError(f"The tokenizer of the process reward model {self.name} reads {len(places)} tags "
                           f"{quoted(tag.text)} in an answer of {len(steps)} steps: set `step_tag` to a text that is "
                           "one token of it.")
        return ids, places

    def _asked(self, problem: Problem) -> str:
        """The prompt as a text; a conversation by the model's own template."""
        turns = messages(problem)
        if len(turns) < 2 and (not turns or self.tokenizer.chat_template is None):
            return turns[0]["content"] if turns else problem.prompt
        if self.tokenizer.chat_template is None:
            raise LabError(f"The process reward model {self.name} has no chat template, and the prompts are "
                           "conversations: choose a model that was trained on conversations.")
        return str(self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))

    def _encoded(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _check_lengths(self, longest: int) -> None:
        room = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if room and longest > room:
            raise LabError(f"A prompt and its completion have {longest:,} tokens for the process reward model "
                           f"{self.name}, which reads at most {room:,}: lower `max_new_tokens`, or choose another "
                           "model.")


def _bare(step: str, separator: str) -> str:
    """A step without the separators behind it."""
    while step.endswith(separator):
        step = step.removesuffix(separator)
    return step


# ---------------------------------------------------------------- from a folder or the hub


def load_step_scorer(name: str, knobs: Mapping[str, Any]) -> TextStepScorer:
    """The process reward model of a folder or a hub id, frozen, on the cpu. `knobs` have the separator of steps, the
    tag behind each and the two label tokens.

    Raises:
        LabError: there is none, it cannot be used, or the separator, the tag or a label is no token of it.
    """
    folder = find(name, check_kind)
    check_folder(folder, check_kind)
    tokenizer, separator = load_tokenizer(folder), separator_of(knobs)
    if not separator:
        raise LabError(f"The process reward model {name} reads texts, and `step_separator` is empty, so each token is "
                       "a step: set `step_separator` to the text that ends a step, such as \\n.")
    tagged = not _classifies(config_of(folder))
    tag = _tag(tokenizer, name, str(knobs["step_tag"]), str(knobs["label_tokens"])) if tagged else None
    if not tagged:
        _check_known(tokenizer, name, separator)
    head = AutoModelForCausalLM if tagged else AutoModelForTokenClassification
    return TextStepScorer(loaded(folder, head), tokenizer, name, separator, tag)


def _tag(tokenizer: PreTrainedTokenizerBase, name: str, text: str, labels: str) -> Tag:
    """The tag and the label tokens of a language model that scores steps."""
    if not text:
        raise LabError(f"The model {name} is a language model: set `step_tag` to the tag after each step at which it "
                       "scores the step, such as ки of math-shepherd, or choose a token classifier with two labels.")
    _check_known(tokenizer, name, text)
    given = labels.split()
    ids = ([*map(int, given)] if all(each.isdecimal() and len(each) > 1 for each in given)
           else list(tokenizer(labels, add_special_tokens=False)["input_ids"]))
    if len(ids) != 2 or ids[0] == ids[1] or max(ids) >= len(tokenizer) or tokenizer.unk_token_id in ids:
        raise LabError(f"The label tokens {quoted(labels)} are not two tokens of the process reward model {name}: set "
                       "`label_tokens` to its token for right and its token for wrong, such as + -, or to their two "
                       "ids.")
    return Tag(text, list(tokenizer(text, add_special_tokens=False)["input_ids"])[-1], *ids)


def _check_known(tokenizer: PreTrainedTokenizerBase, name: str, text: str) -> None:
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    if not ids or tokenizer.unk_token_id in ids:
        raise LabError(f"The tokenizer of the process reward model {name} does not know {quoted(text)}, which should "
                       "end each step: set `step_separator` and `step_tag` to the texts that the model was trained "
                       "with.")


def empty_step_scorer(name: str) -> nn.Module:
    """The process reward model with empty weights, for the device "meta". Raises LabError as `load_step_scorer`."""
    folder = find(name, check_kind)
    check_folder(folder, check_kind)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    head = AutoModelForTokenClassification if _classifies(config_of(folder)) else AutoModelForCausalLM
    scorer: nn.Module = head.from_config(config, trust_remote_code=False)
    return scorer


def _classifies(config: Mapping[str, Any]) -> bool:
    return any(head in heads_of(MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES) for head in config["architectures"])


def check_kind(folder: Path | str, config: Mapping[str, Any]) -> None:
    """Check by its config.json that a model is a token classifier with two labels or a language model, and needs no
    code of its own.

    Raises:
        LabError: it is not.
    """
    named, kind = config.get("architectures"), str(config.get("model_type"))[:80]
    own = [str(name)[:80] for name in named] if isinstance(named, list) else []
    known = heads_of(MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES) | heads_of(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    if not known & set(own) and config.get("auto_map"):
        raise LabError(f"The process reward model in {folder} ({', '.join(own) or kind}) needs code of its own, which "
                       "the lab does not run: choose a token classifier, or a language model with a step tag.")
    if not known & set(own):
        raise LabError(f"The model in {folder} ({', '.join(own) or kind}) scores no steps: choose a folder of "
                       "AutoModelForTokenClassification with two labels, a language model with a step tag, or a run of "
                       "the algorithm prm.")
    labels = config.get("id2label")
    if _classifies(config) and isinstance(labels, dict) and len(labels) != 2:
        raise LabError(f"The token classifier in {folder} has {len(labels)} labels, but a model that scores steps has "
                       "two, wrong and right: choose another model.")
