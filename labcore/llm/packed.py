"""A prompt and all its completions in one row: the cheapest forward pass while rows are short.

    row       p p p p  a a a  b b b        G = 2 completions, a and b, of one prompt
    position  0 1 2 3  4 5 6  4 5 6

A mask lets each completion see the prompt and its own past, and no other completion. Against `forward.shared` it
saves the cache and the copies of it; it pays with attention over G·T more keys, most of them masked. Left out: models
whose positions or attention windows go by the place in the row, which a row of several completions would mislead.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labcore.llm.batch import Prompts

KINDS = ("gpt2", "gpt_neox", "llama", "qwen2", "qwen3")  # the tests hold each of them to the plain path
LONGEST = 256  # tokens of a row: beyond, the square of its length costs more than the cache


def packs(model: nn.Module, prompts: Prompts, ids: Tensor) -> bool:
    """Whether these completions (P·G, T) can and should run packed."""
    config = model.config
    whole = all(kind == "full_attention" for kind in getattr(config, "layer_types", None) or ())
    known = config.model_type in KINDS and config._attn_implementation in ("sdpa", "eager")
    width = prompts.ids.shape[1] + (ids.shape[1] - 1) * (len(ids) // len(prompts))
    return known and whole and width <= LONGEST


def packed(model: nn.Module, prompts: Prompts, ids: Tensor) -> Tensor:
    """Output that predicts each completion token, prompts computed once. ids (P·G, T) -> (P·G, T, …)"""
    count, rows, length = len(prompts), len(ids), ids.shape[1] - 1  # nothing is predicted from the last token
    group_size, device = rows // count, ids.device
    row = torch.cat([prompts.ids, ids[:, :-1].reshape(count, -1)], 1)
    before = (prompts.mask.cumsum(1) - 1).clamp(min=0)
    after = prompts.mask.sum(1, keepdim=True) + torch.arange(length, device=device).repeat(group_size)
    output = model(input_ids=row, attention_mask=_mask(prompts, group_size, length, next(model.parameters()).dtype),
                   position_ids=torch.cat([before, after], 1), use_cache=False,
                   logits_to_keep=group_size * length + 1).logits
    first = output[:, :1].repeat_interleave(group_size, 0)
    return torch.cat([first, output[:, 1:].reshape(rows, length, *output.shape[2:])], 1)


def _mask(prompts: Prompts, group_size: int, length: int, dtype: torch.dtype) -> Tensor:
    """What is added to the attention's logits: 0 where a token sees another. (P, 1, row, row)"""
    device, width = prompts.ids.device, prompts.ids.shape[1]
    member = torch.arange(1, group_size + 1, device=device).repeat_interleave(length)
    member = torch.cat([member.new_zeros(width), member])  # 0 is the prompt, which all see
    sees = ((member[:, None] == member) | (member == 0)).tril()
    there = torch.cat([prompts.mask, prompts.mask.new_ones(len(prompts), group_size * length)], 1)
    sees = sees & there[:, None, None]
    return torch.zeros(sees.shape, dtype=dtype, device=device).masked_fill(~sees, torch.finfo(dtype).min)
