"""A prompt and all its completions in one row: the cheapest forward pass while rows are short.

    row       p p p p  a a b  c c          G = 2 completions, aab and aacc, of one prompt: what they begin with is
    position  0 1 2 3  4 5 6  6 7          there once, since the model says the same of it

Nothing is computed from the padding behind a completion, nor from its last token.

A mask lets each token see the prompt and what came before it in its completion, and nothing of any other. Against
`forward.shared` it saves the cache and the copies of it; it pays with attention over more keys, most of them masked.
Beginnings are shared on the cpu only: on other devices a width that depends on the tokens would cost a wait at each
pass. Left out: models whose positions or attention windows go by the place in the row, which a row of several
completions would mislead.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labcore.llm.batch import Prompts
from labcore.llm.nets.critic import Network

KINDS = ("gpt2", "gpt_neox", "llama", "qwen2", "qwen3")  # the tests hold each of them to the plain path
LONGEST = 256  # tokens of a row: beyond, the square of its length costs more than the cache


@dataclass(frozen=True)
class Row:
    """P packed rows of R tokens: ids (P, R), positions (P, R), which tokens each one sees (P, R, R), and in which place
    after the prompt each token of the completions but their last stands, places (P, G, T−1): −1 where it has none."""

    ids: Tensor
    positions: Tensor
    sees: Tensor
    places: Tensor
    outputs: int  # how many of a row's last positions predict a completion token

    def mask(self, dtype: torch.dtype) -> Tensor:
        """The `bias` of each token for every other one. (P, 1, R, R)"""
        return bias(self.sees[:, None], dtype)


def bias(sees: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask that is added to the attention's logits: 0 where a token sees another, else the lowest number."""
    return torch.zeros(sees.shape, dtype=dtype, device=sees.device).masked_fill(~sees, torch.finfo(dtype).min)


def can_pack(model: Network) -> bool:
    """Whether several completions in one row do not mislead the model."""
    config = model.config
    whole = all(kind == "full_attention" for kind in getattr(config, "layer_types", None) or ())
    return whole and config.model_type in KINDS and config._attn_implementation in ("sdpa", "eager")


def pack(prompts: Prompts, ids: Tensor, extents: Tensor | None = None) -> Row:
    """The rows of completions `ids` (P·G, T); nothing is predicted from their last token, so it is left out. Of
    completions of the `extents` (P·G,) their padding is, too: what would be predicted there is not of any use."""
    tokens = ids[:, :-1].unflatten(0, (len(prompts), -1))
    places, count = places_of(tokens, None if extents is None else extents.view(len(prompts), -1))
    depth = prompts.mask.sum(1)[:, None, None] + torch.arange(tokens.shape[2], device=ids.device)
    after, positions = (tokens.new_zeros(len(prompts), count + 1).scatter(1, places.flatten(1) + 1, each.flatten(1))
                        [:, 1:] for each in (tokens, depth.expand_as(tokens)))
    before = (prompts.mask.cumsum(1) - 1).clamp(min=0)
    return Row(torch.cat([prompts.ids, after], 1), torch.cat([before, positions], 1), _sees(prompts, places, count),
               places, count + 1)


def places_of(tokens: Tensor, extents: Tensor | None = None) -> tuple[Tensor, int]:
    """One place for every token and what came before it, numbered by prompt; −1 for those from which no token within
    the `extents` (P, G) of the completions is predicted. (P, G, L) -> (P, G, L), the most of a prompt"""
    if tokens.device.type != "cpu":
        return apart(tokens)
    group_size, length = tokens.shape[1:]
    member = torch.arange(group_size)
    there = torch.arange(length) < (torch.full(tokens.shape[:2], length) if extents is None else extents - 1)[..., None]
    alike = (tokens[:, :, None] == tokens[:, None]).cumprod(-1).bool()  # (P, G, G, L): the same up to here
    alike &= there[:, None]
    first = torch.where(alike, member[:, None], group_size).amin(2)  # the first completion that begins like this
    new = ((first == member[:, None]) & there).flatten(1)
    numbers = new.cumsum(1) - 1
    places = numbers.gather(1, (first.clamp(max=group_size - 1) * length + torch.arange(length)).flatten(1))
    return places.view_as(tokens).where(there, -1), int(new.sum(1).max())


def apart(tokens: Tensor) -> tuple[Tensor, int]:
    """A place of its own for every token. (P, G, L) -> (P, G, L), how many"""
    count = tokens[0].numel()
    return torch.arange(count, device=tokens.device).view(tokens.shape[1:]).expand_as(tokens), count


def _sees(prompts: Prompts, places: Tensor, count: int) -> Tensor:
    """Whether each token of the rows sees each other one. (P, G, L) -> (P, R, R)"""
    rows, width = prompts.ids.shape
    length = places.shape[2]
    past = torch.ones(length, length, dtype=torch.bool, device=places.device).tril()
    whole, numbers = count + 1, places + 1  # 0: without a place
    pairs = numbers[..., None] * whole + torch.where(past, numbers[..., None, :], numbers[..., None])
    own = prompts.mask.new_zeros(rows, whole * whole).scatter(1, pairs.flatten(1), True).view(rows, whole, whole)
    sees = prompts.mask.new_ones(rows, width + count, width + count).tril()
    sees[:, :, :width] &= prompts.mask[:, None]
    sees[:, width:, width:] = own[:, 1:, 1:]
    return sees


def unpack(outputs: Tensor, row: Row) -> Tensor:
    """From rows to completions: what a token predicts belongs to all that share it, and what the prompt's end predicts
    stands where nothing is wanted. (P, N, …) -> (P·G, T, …)"""
    after = F.pad(row.places + 1, (1, 0))  # the prompt's end predicts the first token
    starts = torch.arange(len(outputs), device=outputs.device)[:, None, None] * outputs.shape[1]
    return F.embedding((after + starts).flatten(0, 1), outputs.flatten(0, 1))


def packed(model: nn.Module, prompts: Prompts, ids: Tensor, extents: Tensor | None = None) -> Tensor:
    """Output that predicts each completion token, prompts computed once. ids (P·G, T) -> (P·G, T, …)"""
    row = pack(prompts, ids, extents)
    mask = row.mask(next(model.parameters()).dtype)
    return unpack(model(input_ids=row.ids, attention_mask=mask, position_ids=row.positions, use_cache=False,
                        logits_to_keep=row.outputs).logits, row)
