"""The optimizers of a run: AdamW, with its two moments in float32 or in 8 bits, and how checkpoints hold them.

Weight decay is apart from the gradient (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2), so `step` does it and
no groups of parameters are needed: the knob may change while a run trains, and checkpoints keep one order of weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from transformers.trainer_pt_utils import get_parameter_names

from labcore.errors import LabError
from labcore.runs.spec.eight_bit import MISSING

ADAMW = "adamw"
States = dict[int, dict[str, Tensor]]  # of each parameter by its place
# Names of weights that do not decay: those of `Trainer.get_decay_parameter_names` in transformers 5.23.
UNDECAYED = ("bias", "layernorm", "rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)")


def make(name: str, parameters: Iterable[nn.Parameter], learning_rate: float) -> Optimizer:
    """The optimizer that the knob names, without weight decay: that is for `step`.

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


def step(optimizer: Optimizer, model: nn.Module, learning_rate: float, knobs: Mapping[str, Any]) -> None:
    """One step of AdamW on the gradients that `model` holds: θ ← θ (1 − η λ), then Adam's.

    λ is the knob weight_decay; weights without a gradient stay as they are.
    """
    shrink = learning_rate * float(knobs.get("weight_decay", 0.0))
    for weight in decaying(model) if shrink else ():
        if weight.grad is not None:
            weight.data.mul_(1 - shrink)
    for group in optimizer.param_groups:
        group |= {"lr": learning_rate, "eps": float(knobs.get("adam_epsilon", 1e-8)),
                  "betas": (float(knobs.get("adam_beta1", 0.9)), float(knobs.get("adam_beta2", 0.999)))}
    optimizer.step()


def decaying(model: nn.Module) -> list[nn.Parameter]:
    """The weights that decay: all but biases and the weights of norms."""
    names = {*get_parameter_names(model, [nn.LayerNorm], [*UNDECAYED])}
    return [weight for name, weight in model.named_parameters() if name in names]


def tensors_of(optimizer: Optimizer) -> dict[str, Tensor]:
    """The tensors of an optimizer for a checkpoint, by names."""
    return {f"{place}.{key}": torch.as_tensor(value) for place, weight in enumerate(_weights(optimizer))
            for key, value in optimizer.state[weight].items()}


def load(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load saved moments; all other numbers are set from the knobs at every update."""
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
