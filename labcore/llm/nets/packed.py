"""A prompt and all its completions in one row: the cheapest forward pass while rows are short.

    row       p p p p  a a b  c c          G = 2 completions, aab and aacc, of one prompt: their common prefix aa is
    position  0 1 2 3  4 5 6  6 7          in the row once, because the model's output for it is the same

The row has neither the last token of a completion nor the padding behind it, because nothing is predicted from them.

A mask lets each token see the prompt and the earlier tokens of its own completion, and no other completion. Compared
with `forward.shared` it saves the key-value cache and its copies, but attends to more keys, most of them masked.
Prefixes are shared and padding is left out on the CPU only: on other devices a width that depends on the tokens would
force a synchronisation at each pass. Models whose positions or attention windows depend on the place in the row cannot
be packed, because a row holds several completions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labcore.llm.batch import Prompts
from labcore.llm.nets.critic import Network

KINDS = ("gpt2", "gpt_neox", "llama", "qwen2", "qwen3")  # tests compare each of them with the plain path
LONGEST = 256  # tokens of a row: beyond, the square of its length costs more than the cache


@dataclass(frozen=True)
class Row:
    """P packed rows of R tokens: ids (P, R), positions (P, R), and sees (P, R, R), True if a token attends to another.

    places (P, G, T−1) is the index of each completion token in the row, counted from the end of the prompt; −1 for
    padding. The last token of a completion is left out.
    """

    ids: Tensor
    positions: Tensor
    sees: Tensor
    places: Tensor
    outputs: int  # how many of a row's last positions predict a completion token

    def mask(self, dtype: torch.dtype) -> Tensor:
        """The additive attention mask of the rows, see `bias`. (P, 1, R, R)"""
        return bias(self.sees[:, None], dtype)

    def ends(self, extents: Tensor) -> Tensor:
        """The position in the row from which the last token of each completion is predicted. (P·G,) -> (P, G)"""
        last = (extents - 1).view(*self.places.shape[:2], 1)
        return self.ids.shape[1] - self.outputs + _predicting(self.places).gather(2, last)[..., 0]


def bias(sees: Tensor, dtype: torch.dtype) -> Tensor:
    """An additive attention mask: 0 where a token sees another, otherwise the lowest number of the dtype."""
    return torch.zeros(sees.shape, dtype=dtype, device=sees.device).masked_fill(~sees, torch.finfo(dtype).min)


def can_pack(model: Network) -> bool:
    """True if the model's outputs stay exact with several completions in one row."""
    config = model.config
    whole = all(kind == "full_attention" for kind in getattr(config, "layer_types", None) or ())
    return whole and config.model_type in KINDS and config._attn_implementation in ("sdpa", "eager")


def pack(prompts: Prompts, ids: Tensor, extents: Tensor | None = None) -> Row:
    """The packed rows of the completions `ids` (P·G, T). `extents` (P·G,) are their lengths; without them no token
    counts as padding."""
    tokens = ids[:, :-1].unflatten(0, (len(prompts), -1))
    places, count = places_of(tokens, None if extents is None else extents.view(len(prompts), -1))
    depth = prompts.mask.sum(1)[:, None, None] + torch.arange(tokens.shape[2], device=ids.device)
    after, positions = (tokens.new_zeros(len(prompts), count + 1).scatter(1, places.flatten(1) + 1, each.flatten(1))
                        [:, 1:] for each in (tokens, depth.expand_as(tokens)))
    before = (prompts.mask.cumsum(1) - 1).clamp(min=0)
    return Row(torch.cat([prompts.ids, after], 1), torch.cat([before, positions], 1), _sees(prompts, places, count),
               places, count + 1)


def places_of(tokens: Tensor, extents: Tensor | None = None) -> tuple[Tensor, int]:
    """The place of each token in its prompt's row; equal prefixes share their places. (P, G, L) -> (P, G, L), and the
    number of places of the longest row

    −1 for tokens that predict nothing: those at or behind the last token of a completion of length `extents` (P, G).
    """
    if tokens.device.type != "cpu":
        return apart(tokens)
    group_size, length = tokens.shape[1:]
    member = torch.arange(group_size)
    there = torch.arange(length) < (torch.full(tokens.shape[:2], length) if extents is None else extents - 1)[..., None]
    alike = (tokens[:, :, None] == tokens[:, None]).cumprod(-1).bool()  # (P, G, G, L): equal up to here
    alike &= there[:, None]
    first = torch.where(alike, member[:, None], group_size).amin(2)  # the first completion with this prefix
    new = ((first == member[:, None]) & there).flatten(1)
    numbers = new.cumsum(1) - 1
    places = numbers.gather(1, (first.clamp(max=group_size - 1) * length + torch.arange(length)).flatten(1))
    return places.view_as(tokens).where(there, -1), int(new.sum(1).max())


def apart(tokens: Tensor) -> tuple[Tensor, int]:
    """A place for each token, padding included, without sharing. (P, G, L) -> (P, G, L), and the number of places"""
    count = tokens[0].numel()
    return torch.arange(count, device=tokens.device).view(tokens.shape[1:]).expand_as(tokens), count


def _sees(prompts: Prompts, places: Tensor, count: int) -> Tensor:
    """True where a token of a row attends to another one. places (P, G, L) -> (P, R, R)"""
    rows, width = prompts.ids.shape
    length = places.shape[2]
    past = torch.ones(length, length, dtype=torch.bool, device=places.device).tril()
    whole, numbers = count + 1, places + 1  # 0: no place
    pairs = numbers[..., None] * whole + torch.where(past, numbers[..., None, :], numbers[..., None])
    own = prompts.mask.new_zeros(rows, whole * whole).scatter(1, pairs.flatten(1), True).view(rows, whole, whole)
    sees = prompts.mask.new_ones(rows, width + count, width + count).tril()
    sees[:, :, :width] &= prompts.mask[:, None]
    sees[:, width:, width:] = own[:, 1:, 1:]
    return sees


def unpack(outputs: Tensor, row: Row) -> Tensor:
    """Outputs of the rows as outputs of completions. Completions that share a token get copies of its output; padding
    gets the output of the prompt's last token, which no one uses. (P, N, …) -> (P·G, T, …)"""
    starts = torch.arange(len(outputs), device=outputs.device)[:, None, None] * outputs.shape[1]
    return F.embedding((_predicting(row.places) + starts).flatten(0, 1), outputs.flatten(0, 1))


def _predicting(places: Tensor) -> Tensor:
    """The number of the output that predicts each token; output 0 predicts the first. (P, G, T−1) -> (P, G, T)"""
    return F.pad(places + 1, (1, 0))


def packed(model: nn.Module, prompts: Prompts, ids: Tensor, extents: Tensor | None = None) -> Tensor:
    """The output that predicts each completion token; each prompt is computed once. ids (P·G, T) -> (P·G, T, …)"""
    row = pack(prompts, ids, extents)
    mask = row.mask(next(model.parameters()).dtype)
    return unpack(model(input_ids=row.ids, attention_mask=mask, position_ids=row.positions, use_cache=False,
                        logits_to_keep=row.outputs).logits, row)
