"""A softmax table: a policy with one logit for every token after every prefix, so it can be any distribution at all.

For problems so small that all prefixes can be written down. It is a `PreTrainedModel` of the lab's own, known to
transformers' Auto classes once this module is imported; its folders hold no code.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput

TABLE = "table"  # what the catalog calls it
TYPE = "softmax_table"
SCALE = 10.0
# The types of transformers take minutes to read (pyproject.toml), so its classes are Any and each subclass says so.
PEAKS = 0.3  # standard deviation of the first logits


class SoftmaxTableConfig(PreTrainedConfig):  # type: ignore[misc]
    """`context`: the most tokens of a prompt and its completion. A logit is `scale` times an entry of the table: a
    learning rate that suits a small transformer then moves it fast enough."""

    model_type = TYPE

    def __init__(self, vocab_size: int = 4, context: int = 4, scale: float = SCALE, **rest: Any):
        self.vocab_size = self.hidden_size = vocab_size
        self.max_position_embeddings = context
        self.context, self.scale = context, scale
        super().__init__(**{**rest, "tie_word_embeddings": False})

    @property
    def rows(self) -> int:
        """The number of prefixes of 1 to `context` − 1 tokens. Longer prefixes need no row, because nothing follows the
        last token."""
        return sum(self.vocab_size**size for size in range(1, self.context))


class SoftmaxTableModel(PreTrainedModel):  # type: ignore[misc]
    """A row of `hidden_size` numbers for every prefix. (B, S) ids -> (B, S, H)"""

    config_class = SoftmaxTableConfig
    main_input_name = "input_ids"

    def __init__(self, config: SoftmaxTableConfig):
        super().__init__(config)
        self.entries = nn.Embedding(config.rows, config.hidden_size)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=PEAKS / self.config.scale)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any) -> BaseModelOutput:
        rows = places(input_ids, attention_mask, self.config.vocab_size)
        return BaseModelOutput(last_hidden_state=self.config.scale * self.entries(rows))


class SoftmaxTable(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """log π(v | prefix) = log_softmax of the prefix's row. (B, S) ids -> logits (B, S, V)"""

    config_class = SoftmaxTableConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"

    def __init__(self, config: SoftmaxTableConfig):
        super().__init__(config)
        self.model = SoftmaxTableModel(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """A module with one row per token, from which other code reads the size of the vocabulary."""
        return _Tokens(self.config.vocab_size)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, logits_to_keep: int = 0,
                **_: Any) -> CausalLMOutput:
        hidden = self.model(input_ids, attention_mask).last_hidden_state
        return CausalLMOutput(logits=hidden[:, -logits_to_keep:])


class _Tokens(nn.Module):
    """Stands for an embedding: its weight has a row for each token, and nothing in it."""

    def __init__(self, size: int):
        super().__init__()
        self.weight = torch.empty(size, 0)


def places(ids: Tensor, mask: Tensor | None, base: int) -> Tensor:
    """The table's row for each prefix, sorted by length and then as numbers to the base V. (B, S) -> (B, S)

    Padding on the left is no part of a prefix; under it the row is the first, and nobody asks.
    """
    there = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    size, number, found = torch.zeros_like(ids[:, 0]), torch.zeros_like(ids[:, 0]), []
    first = torch.tensor([0, *(sum(base**k for k in range(1, n)) for n in range(1, ids.shape[1] + 1))],
                         device=ids.device)  # by the length of the prefix
    for token, counts in zip(ids.unbind(1), there.unbind(1), strict=True):
        size, number = size + counts, torch.where(counts, number * base + token, number)
        found.append(first[size] + number)
    return torch.stack(found, 1)


def build_table(vocabulary: int, context: int, seed: int, end: int) -> SoftmaxTable:
    """A table of slightly uneven distributions that depend on `seed` only; on the cpu. Global chance is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = SoftmaxTable(SoftmaxTableConfig(vocabulary, context, eos_token_id=end, pad_token_id=end))
    model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=end, do_sample=True)
    model.eval()
    return model


AutoConfig.register(TYPE, SoftmaxTableConfig, exist_ok=True)
AutoModelForCausalLM.register(SoftmaxTableConfig, SoftmaxTable, exist_ok=True)
