"""A model's weights at addresses that do not change, which a recorded step reads."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from labcore.llm.nets import recompute
from labcore.llm.nets.critic import Network


class FixedWeights:
    """The weights themselves, which an optimizer, a checkpoint and a probe change in place; where `dtype` is "bf16"
    copies of them, rounded anew for each batch: `forward.precision` makes new ones at every pass."""

    def __init__(self, model: Network, dtype: str):
        self._places = _places(model)
        weights = model.parameters() if dtype == "bf16" else ()
        self._rounded: dict[Tensor, Tensor] = {
            weight: torch.empty_like(weight, dtype=torch.bfloat16, requires_grad=False) for weight in weights}

    @property
    def nbytes(self) -> int:
        """Bytes of the copies."""
        return sum(copy.nbytes for copy in self._rounded.values())

    def fit(self, model: Network) -> bool:
        """Whether the model still has the weights that it had, where it had them."""
        return self._places == _places(model)

    @torch.no_grad()
    def of_now(self, model: Network) -> AbstractContextManager[None]:
        """The context of a batch: inside, `model` computes with the copies of its weights as they are now."""
        for weight, copy in self._rounded.items():
            copy.copy_(weight)
        return recompute.lent([(holder, name, self._rounded[weight]) for holder, name, weight in recompute.slots(model)]
                              if self._rounded else [])


def _places(model: Network) -> list[tuple[int, int]]:
    return [(id(weight), weight.data_ptr()) for weight in model.parameters()]
