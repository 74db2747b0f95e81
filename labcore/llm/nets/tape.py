"""The matrix products of the sampling pass, kept for the first update on its batch.

The first update on a batch runs the sampled tokens through the same weights that sampled them. So its products, which
take most of the time of a pass, are the same as the sampler's. The sampler records them token by token, and the update
reads them from the tape:

    sampler    x₀ Wᵀ of the prompts, then x₁ Wᵀ, x₂ Wᵀ, … of one token of every completion after the other
    update     [x₀; x₁; x₂; …] Wᵀ of the packed rows, by look-up

The update computes everything between the products itself (norms, RoPE, attention), with gradients. The gradient of a
product does not need its value, so gradients are the same as without the tape, up to rounding.

Supported are Llama's equations in packed rows only, without the head, because its logits may be larger than all other
products.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

import torch
from torch import Tensor

from labcore.llm.nets.packed import Row

LEAST_WIDTH = 128  # of the layers: the products of narrower ones take no longer than recording them and looking them up
Multiply = Callable[..., Tensor]  # x (N, I), weight (O, I), residual (N, O) or none -> (N, O)


def product(x: Tensor, weight: Tensor, residual: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """x Wᵀ, added to `residual` where there is one. (N, I), (O, I), (N, O) -> (N, O)"""
    return torch.mm(x, weight.T, out=out) if residual is None else torch.addmm(residual, x, weight.T, out=out)


class Tape:
    """The results of all matrix products of the sampler, in the order of a pass: first the rows of the pass over the P
    prompts, then those of the passes over each further token of all P·G completions. Empty if nothing was recorded.

    For a processor, since what it saves is the time of products.
    """

    def __init__(self) -> None:
        self._products: deque[Tensor] = deque()
        self._generated = 0  # rows of a product that are not of the prompts
        self._passes = 0
        self._taken = False

    def __len__(self) -> int:
        """The number of recorded products that an update can still use: all of them, or 0 once it has begun to use
        them."""
        return 0 if self._taken else len(self._products)

    def recording(self, generated: int) -> Multiply:
        """`product` for the sampler's next pass, which also writes its results on the tape. `generated` is the most
        tokens that all passes after the prompts have in total."""
        self._generated, self._passes = generated, self._passes + 1
        number, first = count(), self._passes == 1

        def recorded(x: Tensor, weight: Tensor, residual: Tensor | None = None) -> Tensor:
            if first:
                self._products.append(x.new_empty(len(x) + generated, len(weight)))
            whole = self._products[next(number)]
            start = 0 if first else len(whole) - generated + (self._passes - 2) * len(x)
            return product(x, weight, residual, out=whole[start:start + len(x)])
        return recorded

    def replaying(self, row: Row) -> Multiply:
        """`product` for one pass over the packed rows of exactly the sampled completions. Each result leaves the tape
        when it is used, so no result is in memory twice."""
        self._taken = True
        rows, group, length = row.places.shape
        recorded = torch.arange(length * rows * group).view(length, rows, group).permute(1, 2, 0)
        # Completions share a place where they begin alike; any of them will do, and it must always be the same.
        tokens = torch.zeros(rows, row.outputs - 1, dtype=torch.long).scatter_reduce(
            1, row.places.flatten(1), recorded.flatten(1), "amax")

        def replayed(x: Tensor, weight: Tensor, residual: Tensor | None = None) -> Tensor:
            whole = self._products.popleft()
            prompts = len(whole) - self._generated  # in the last layer the last position of each alone
            places = torch.cat([torch.arange(prompts).view(rows, -1), tokens + prompts], 1)
            value = whole.index_select(0, places.flatten())  # far faster than whole[places]
            found: Tensor = _Known.apply(value, x, weight, residual)  # type: ignore[no-untyped-call]  # torch's
            return found
        return replayed


class _Known(torch.autograd.Function):
    """A product whose value is known already."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, x: Tensor, weight: Tensor, residual: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), (x, weight) = gradients, ctx.saved_tensors
        return None, gradient @ weight, gradient.T @ x, gradient if ctx.needs_input_grad[3] else None
