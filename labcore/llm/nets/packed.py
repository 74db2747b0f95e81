"""A prompt and all its completions in one row: the cheapest forward pass while rows are short.

    row       p p p p  a a b  c c          G = 2 completions, aab and aacc, of one prompt: what they begin with is
    position  0 1 2 3  4 5 6  6 7          there once, since the model says the same of it

A mask lets each token see the prompt and what came before it in its completion, and nothing of any other. Against
`forward.shared` it saves the cache and the copies of it; it pays with attention over more keys, most of them masked.
Rows are as wide as the widest: `llama` leaves the places without a token out of everything but attention.
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

KINDS = ("gpt2", "gpt_neox", "llama", "qwen2", "qwen3")  # the tests hold each of them to the plain path
FULL = 0.9  # share of a row's places with a token: beyond, leaving out the others costs more than it saves
LONGEST = 256  # tokens of a row: beyond, the square of its length costs more than the cache


@dataclass(frozen=True)
class Row:
    """P packed rows of R tokens: ids (P, R), positions (P, R), which tokens each one sees (P, R, R), and in which place
    after the prompt each token of the completions but their last stands, places (P, G, T−1).

    `where` (N,) are those of the P·R places that have a token, None for all; `ahead` (n,) those of the N tokens that
    predict one of a completion, and `reads` (P·G, T) which of these n predicts each.
    """

    ids: Tensor
    positions: Tensor
    sees: Tensor
    places: Tensor
    outputs: int  # how many of a row's last positions predict a completion token
    where: Tensor | None
    ahead: Tensor
    reads: Tensor

    def mask(self, dtype: torch.dtype) -> Tensor:
        """The `bias` of each token for every other one. (P, 1, R, R)"""
        return bias(self.sees[:, None], dtype)

    def tokens(self, x: Tensor) -> Tensor:
        """What belongs to the tokens, one after another. (P, R, …) -> (N, …)"""
        return x.flatten(0, 1) if self.where is None else x.flatten(0, 1).index_select(0, self.where)

    def spread(self, x: Tensor) -> Tensor:
        """The way back, 0 where there is no token. (N, …) -> (P, R, …)"""
        shape = self.ids.shape
        whole = x if self.where is None else x.new_zeros(shape.numel(), *x.shape[1:]).index_copy(0, self.where, x)
        return whole.unflatten(0, shape)


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


def pack(prompts: Prompts, ids: Tensor, whole: bool = True) -> Row:
    """The rows of completions `ids` (P·G, T); nothing is predicted from their last token, so it is left out.

    `whole`: every place counts as a token. Else, on the cpu, those without one are left out, unless they are few.
    """
    tokens = ids[:, :-1].unflatten(0, (len(prompts), -1))
    places, count = places_of(tokens)
    flat = places.flatten(1)
    depth = prompts.mask.sum(1)[:, None, None] + torch.arange(tokens.shape[2], device=ids.device)
    after, positions = (tokens.new_zeros(len(prompts), count).scatter(1, flat, each.flatten(1))
                        for each in (tokens, depth.expand_as(tokens)))
    before = (prompts.mask.cumsum(1) - 1).clamp(min=0)
    there = torch.cat([prompts.mask, prompts.mask.new_zeros(len(prompts), count).scatter(1, flat, True)], 1)
    if whole or ids.device.type != "cpu" or there.float().mean() > FULL:
        where, there = None, torch.ones_like(there)
    else:
        where = there.flatten().nonzero()[:, 0]
    last = there[:, -count - 1:]
    ahead = (there.flatten().cumsum(0).view_as(there) - 1)[:, -count - 1:]
    return Row(torch.cat([prompts.ids, after], 1), torch.cat([before, positions], 1), _sees(prompts, places, count),
               places, count + 1, where, ahead.flatten() if where is None else ahead[last], _reads(last, places))


def _reads(last: Tensor, places: Tensor) -> Tensor:
    """Which of the tokens in these `last` places (P, 1 + count) predicts each token of the completions: the prompt's
    end their first. (P, G, T−1) -> (P·G, T)"""
    numbers = last.flatten().cumsum(0).view_as(last) - 1
    return numbers.gather(1, F.pad(places + 1, (1, 0)).flatten(1)).view(-1, places.shape[2] + 1)


def places_of(tokens: Tensor) -> tuple[Tensor, int]:
    """One place for every token and what came before it, numbered by prompt. (P, G, L) -> (P, G, L), the most of
    a prompt"""
    if tokens.device.type != "cpu":
        return apart(tokens)
    group_size, length = tokens.shape[1:]
    member = torch.arange(group_size)
    alike = (tokens[:, :, None] == tokens[:, None]).cumprod(-1).bool()  # (P, G, G, L): the same up to here
    first = torch.where(alike, member[:, None], group_size).amin(2)  # the first completion that begins like this
    new = (first == member[:, None]).flatten(1)
    numbers = new.cumsum(1) - 1
    places = numbers.gather(1, (first * length + torch.arange(length)).flatten(1))
    return places.view_as(tokens), int(new.sum(1).max())


def apart(tokens: Tensor) -> tuple[Tensor, int]:
    """A place of its own for every token. (P, G, L) -> (P, G, L), how many"""
    count = tokens[0].numel()
    return torch.arange(count, device=tokens.device).view(tokens.shape[1:]).expand_as(tokens), count


def _sees(prompts: Prompts, places: Tensor, count: int) -> Tensor:
    """Whether each token of the rows sees each other one. (P, G, L) -> (P, R, R)"""
    rows, width = prompts.ids.shape
    length = places.shape[2]
    past = torch.ones(length, length, dtype=torch.bool, device=places.device).tril()
    pairs = places[..., None] * count + torch.where(past, places[..., None, :], places[..., None])
    own = prompts.mask.new_zeros(rows, count * count).scatter(1, pairs.flatten(1), True)
    sees = prompts.mask.new_ones(rows, width + count, width + count).tril()
    sees[:, :, :width] &= prompts.mask[:, None]
    sees[:, width:, width:] = own.view(rows, count, count)
    return sees


def unpack(outputs: Tensor, row: Row) -> Tensor:
    """From tokens to completions: what one predicts belongs to all that share it. (n, …) -> (P·G, T, …)"""
    return F.embedding(row.reads, outputs)


def packed(model: nn.Module, prompts: Prompts, ids: Tensor) -> Tensor:
    """Output that predicts each completion token, prompts computed once. ids (P·G, T) -> (P·G, T, …)"""
    row = pack(prompts, ids)
    mask = row.mask(next(model.parameters()).dtype)
    return unpack(model(input_ids=row.ids, attention_mask=mask, position_ids=row.positions, use_cache=False,
                        logits_to_keep=row.outputs).logits.flatten(0, 1), row)
