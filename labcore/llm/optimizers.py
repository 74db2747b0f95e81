"""The optimizers of a run: AdamW, with its two moments in float32 or in 8 bits, and how checkpoints hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from labcore.errors import LabError
from labcore.spec.moments import MISSING

ADAMW = "adamw"
States = dict[int, dict[str, Tensor]]  # of each parameter by its place


def make(name: str, parameters: Iterable[nn.Parameter], learning_rate: float) -> Optimizer:
    """The optimizer that the knob names, without weight decay.

    Raises:
        LabError: the package that it needs is not installed.
    """
    if name == ADAMW:
        return AdamW(parameters, lr=learning_rate, weight_decay=0.0, fused=True)
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError as error:
        raise LabError(MISSING) from error
    optimizer: Optimizer = AdamW8bit(parameters, lr=learning_rate, weight_decay=0.0)
    return optimizer


def tensors_of(optimizer: Optimizer) -> dict[str, Tensor]:
    """What a checkpoint holds of it, as names and tensors."""
    return {f"{place}.{key}": torch.as_tensor(value) for place, weight in enumerate(_weights(optimizer))
            for key, value in optimizer.state[weight].items()}


def load(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put saved moments back; the learning rate comes from the knobs at every update."""
    states: States = {}
    for name, tensor in tensors.items():
        place, key = name.split(".")
        states.setdefault(int(place), {})[key] = tensor
    if isinstance(optimizer, AdamW):
        optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})
        return
    weights = _weights(optimizer)  # bitsandbytes counts steps by a number
    for index, state in states.items():
        optimizer.state[weights[index]] = {**state, "step": int(state["step"])}


def _weights(optimizer: Optimizer) -> list[nn.Parameter]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]
