"""The matrix products of the sampling pass, kept for the first update on its batch.

The first update on a batch runs the sampled tokens through the same weights that sampled them. So its products, which
take most of the time of a pass, are the same as the sampler's. The sampler records them token by token, and the update
reads them from the tape:

    sampler    x₀ Wᵀ of the prompts, then x₁ Wᵀ, x₂ Wᵀ, … of one token of every completion that is going on; those that
               are alike so far have one row
    update     [x₀; x₁; x₂; …] Wᵀ of the packed rows, by look-up

The update computes everything between the products itself (norms, RoPE, attention), with gradients. The gradient of a
product does not need its value, so gradients are the same as without the tape, up to rounding.

Only Llama's equations in packed rows are supported. The tape does not have the head's logits, because they may be
larger than all other products.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
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
    prompts, then those of the passes over each further token of the P·G completions. Empty if nothing was recorded.

    For a processor, since what it saves is the time of products.
    """

    def __init__(self) -> None:
        self._products: deque[Tensor] = deque()
        self._room = 0  # rows of a product for the tokens behind the prompts, of which `_used` are written
        self._used = 0
        self._rows: list[Tensor] = []  # of each pass: which of these rows each completion has, (P·G,)
        self._taken = False

    def __len__(self) -> int:
        """The number of recorded products that an update can still use: all of them, or 0 once it has begun to use
        them."""
        return 0 if self._taken else len(self._products)

    def recording(self, room: int) -> Multiply:
        """`product` for the sampler's pass over the prompts, which also writes its results on the tape. `room` is the
        most rows that all passes after it have in total."""
        self._room = room

        def recorded(x: Tensor, weight: Tensor, residual: Tensor | None = None) -> Tensor:
            self._products.append(x.new_empty(len(x) + room, len(weight)))
            return product(x, weight, residual, out=self._products[-1][:len(x)])
        return recorded

    def appending(self, rows: Tensor, count: int) -> Multiply:
        """The same for the next pass, over `count` rows; `rows` (P·G,) is the row of each completion."""
        number, start = iter(self._products), self._used
        self._rows.append(rows + start)
        self._used += count

        def recorded(x: Tensor, weight: Tensor, residual: Tensor | None = None) -> Tensor:
            whole = next(number)
            return product(x, weight, residual, out=whole[len(whole) - self._room + start:][:count])
        return recorded

    def replaying(self, row: Row) -> Multiply:
        """`product` for one pass over the packed rows of exactly the sampled completions. Each result leaves the tape
        when it is used, so no result is in memory twice."""
        self._taken = True
        rows = len(row.places)
        # If all completions have one token, the pass over the prompts sampled them all, and there are no places.
        recorded = torch.stack(self._rows, -1).view(row.places.shape) if self._rows else row.places
        tokens = torch.zeros(rows, row.outputs, dtype=torch.long).scatter(
            1, row.places.flatten(1) + 1, recorded.flatten(1))[:, 1:]  # padding has the place −1

        def replayed(x: Tensor, weight: Tensor, residual: Tensor | None = None) -> Tensor:
            whole = self._products.popleft()
            prompts = len(whole) - self._room  # in the last layer the last position of each alone
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
