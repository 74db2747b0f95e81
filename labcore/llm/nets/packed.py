"""A prompt and all its completions in one row: the cheapest forward pass while rows are short.

    row       p p p p  a a a  b b b        G = 2 completions, a and b, of one prompt
    position  0 1 2 3  4 5 6  4 5 6

A mask lets each completion see the prompt and its own past, and no other completion. Against `forward.shared` it
saves the cache and the copies of it; it pays with attention over G·T more keys, most of them masked. Left out: models
whose positions or attention windows go by the place in the row, which a row of several completions would mislead.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labcore.llm.batch import Prompts

KINDS = ("gpt2", "gpt_neox", "llama", "qwen2", "qwen3")  # the tests hold each of them to the plain path
LONGEST = 256  # tokens of a row: beyond, the square of its length costs more than the cache


@dataclass(frozen=True)
class Row:
    """P packed rows of R tokens: ids (P, R), positions (P, R), and what there is to know of their make-up."""

    ids: Tensor
    positions: Tensor
    prompts: Prompts
    group_size: int

    @property
    def outputs(self) -> int:
        """How many of a row's last positions predict a completion token."""
        return self.ids.shape[1] - self.prompts.ids.shape[1] + 1

    def mask(self, dtype: torch.dtype) -> Tensor:
        """The `bias` of each token for every other one. (P, 1, R, R), or (1, 1, R, R) where no prompt is padded"""
        device, width = self.ids.device, self.prompts.ids.shape[1]
        length = (self.ids.shape[1] - width) // self.group_size
        member = torch.arange(1, self.group_size + 1, device=device).repeat_interleave(length)
        member = torch.cat([member.new_zeros(width), member])  # 0 is the prompt, which all see
        sees = ((member[:, None] == member) | (member == 0)).tril()[None, None]
        if not self.prompts.mask.all():
            there = torch.cat([self.prompts.mask, self.prompts.mask.new_ones(len(self.ids), len(member) - width)], 1)
            sees = sees & there[:, None, None]
        return bias(sees, dtype)


def bias(sees: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the attention's logits: 0 where a token sees another, else too little to matter."""
    return torch.zeros(sees.shape, dtype=dtype, device=sees.device).masked_fill(~sees, torch.finfo(dtype).min)


def short(prompts: Prompts, ids: Tensor) -> bool:
    """Whether the rows of these completions (P·G, T) are short enough to be run packed."""
    return prompts.ids.shape[1] + (ids.shape[1] - 1) * (len(ids) // len(prompts)) <= LONGEST


def packs(model: nn.Module, prompts: Prompts, ids: Tensor) -> bool:
    """Whether these completions (P·G, T) can and should run packed."""
    return can_pack(model) and short(prompts, ids)


def can_pack(model: nn.Module) -> bool:
    """Whether several completions in one row do not mislead the model."""
    config = model.config
    whole = all(kind == "full_attention" for kind in getattr(config, "layer_types", None) or ())
    return whole and config.model_type in KINDS and config._attn_implementation in ("sdpa", "eager")


def pack(prompts: Prompts, ids: Tensor) -> Row:
    """The rows of completions `ids` (P·G, T); nothing is predicted from their last token, so it is left out."""
    count, length = len(prompts), ids.shape[1] - 1
    group_size = len(ids) // count
    before = (prompts.mask.cumsum(1) - 1).clamp(min=0)
    after = prompts.mask.sum(1, keepdim=True) + torch.arange(length, device=ids.device).repeat(group_size)
    return Row(torch.cat([prompts.ids, ids[:, :-1].reshape(count, -1)], 1), torch.cat([before, after], 1), prompts,
               group_size)


def unpack(outputs: Tensor, ids: Tensor) -> Tensor:
    """From rows to completions: what the prompt's end predicts belongs to all. (P, 1 + G·(T−1), …) -> (P·G, T, …)"""
    first = outputs[:, :1].repeat_interleave(len(ids) // len(outputs), 0)
    return torch.cat([first, outputs[:, 1:].reshape(len(ids), -1, *outputs.shape[2:])], 1)


def packed(model: nn.Module, prompts: Prompts, ids: Tensor) -> Tensor:
    """Output that predicts each completion token, prompts computed once. ids (P·G, T) -> (P·G, T, …)"""
    row = pack(prompts, ids)
    mask = row.mask(next(model.parameters()).dtype).expand(len(prompts), -1, -1, -1)
    return unpack(model(input_ids=row.ids, attention_mask=mask, position_ids=row.positions, use_cache=False,
                        logits_to_keep=row.outputs).logits, ids)
