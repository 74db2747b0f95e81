"""Whether two networks are one function: their weights are equal, bit for bit.

Two passes of equal weights may differ in their last digits, by other kernels or shapes, and an optimizer that scales
its steps would make whole steps of that. So where weights are equal nobody subtracts two passes: the difference is 0.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

BASE, LORA, OUTPUT = ".base_layer.", ".lora_", ".lora_B."


@torch.no_grad()
def alike(one: nn.Module, other: nn.Module) -> bool:
    """Whether both have the same frozen and learnt weights; an adapter whose B is 0 changes nothing."""
    first, second = _parts(one), _parts(other)
    return _equal_each(first[0], second[0]) and _same_adapters(first[1], second[1])


def _parts(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights under the names that they have without an adapter, and those of the adapter."""
    named = dict(model.named_parameters())
    return ({name.replace(BASE, "."): value for name, value in named.items() if LORA not in name},
            {name: value for name, value in named.items() if LORA in name})


def _same_adapters(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    silent = not any(bool(value.any()) for each in (first, second) for name, value in each.items() if OUTPUT in name)
    return silent or _equal_each(first, second)


def _equal_each(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        value is second[name] or torch.equal(value, second[name]) for name, value in first.items())
