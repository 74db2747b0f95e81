"""Turns of episodes, read from a mask that is True at the tokens of the model and False at those of observations.

    token   8 E h i g h e r 1 2 E        E ends a turn
    mask    1 1 0 0 0 0 0 0 1 1 1
    turn    0 0 0 0 0 0 0 0 1 1 1

A completion of one turn has no hole in its mask: the turn is the whole completion.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


def extents(mask: Tensor) -> Tensor:
    """The tokens of each row up to the last one of the model: where the mask has no hole, how many count. (B, T) ->
    (B,)"""
    return (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1)


def starts(mask: Tensor) -> Tensor:
    """True at the first token of each turn. bool (B, T) -> bool (B, T)"""
    return mask & ~pad(mask, (1, 0))[:, :-1]


def lasts(mask: Tensor) -> Tensor:
    """True at the last token of each turn. bool (B, T) -> bool (B, T)"""
    return mask & ~pad(mask, (0, 1))[:, 1:]


def numbers(mask: Tensor) -> Tensor:
    """The number of each token's turn from 0 on; an observation belongs to the turn before it. bool (B, T) -> (B, T)"""
    return (starts(mask).cumsum(1) - 1).clamp(min=0)


def count(mask: Tensor) -> Tensor:
    """The turns of each row. bool (B, T) -> (B,)"""
    return starts(mask).sum(1)


def observations(mask: Tensor) -> Tensor:
    """True at the tokens of observations, which stand between two turns. bool (B, T) -> bool (B, T)"""
    return ~mask & (mask.cumsum(1) > 0) & (mask.flip(1).cumsum(1).flip(1) > 0)


def per_turn(values: Tensor, mask: Tensor, most: int | None = None) -> Tensor:
    """Σ of `values` over the tokens of each turn, 0 where a row has fewer turns. (B, T), bool (B, T) -> (B, K)

    In the unit of `values`. K is `most`, or the turns of the row that has most of them, at least 1.
    """
    turns = max(1, int(count(mask).max())) if most is None else most
    kept = torch.where(mask, values, torch.zeros_like(values))
    return values.new_zeros(len(values), turns).scatter_add(1, numbers(mask), kept)


def at_tokens(turn_values: Tensor, mask: Tensor) -> Tensor:
    """The value of its turn at every token of the model, else 0. (B, K), bool (B, T) -> (B, T)"""
    return torch.where(mask, turn_values.gather(1, numbers(mask)), 0)
