"""Gradient checkpointing: of each layer the backward pass keeps the input only, and computes the rest once more.

transformers has a switch for it that acts in training mode alone, where dropout acts as well; the lab's networks stay
in eval(). So layers carry transformers' mark, and it is here that it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from labcore.errors import LabError

Slots = list[tuple[dict[str, Any], str, Tensor]]  # where modules hold their weights, their names there, the weights


def slots(model: nn.Module) -> Slots:
    """Where each weight of a network is held, with the weight that is there now."""
    return [(module._parameters, name, weight) for module in parts(model)
            for name, weight in module._parameters.items() if weight is not None]


@contextmanager
def lent(given: Slots) -> Iterator[None]:
    """A context in which these parameters have the given weights; afterwards they have their own again."""
    before = [holder[name] for holder, name, _ in given]
    for holder, name, weight in given:
        holder[name] = weight
    try:
        yield
    finally:
        for (holder, name, _), weight in zip(given, before, strict=True):
            holder[name] = weight


def mark(model: nn.Module, on: bool) -> None:
    """Switch it on or off for all layers of a network.

    Raises:
        LabError: it has no layers that can be computed again.
    """
    found = layers(model)
    if on and not found:
        kind = getattr(getattr(model, "config", None), "model_type", "unknown")
        raise LabError(f"A {kind} model has no layers that can be computed again: switch `gradient_checkpointing` off.")
    for layer in found:
        layer.gradient_checkpointing = on


def marked(model: nn.Module) -> bool:
    """Whether it is on."""
    return any(layer.gradient_checkpointing for layer in layers(model))


def run(layer: nn.Module, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`function` of a layer. Where that is marked, and a gradient wanted, only the arguments are kept for it."""
    if not (getattr(layer, "gradient_checkpointing", False) and torch.is_grad_enabled()):
        return function(*args, **kwargs)
    weights = slots(layer)  # as they are now: in a pass in bf16 they are others than in its backward pass

    def again(*args: Any, **kwargs: Any) -> Any:
        with lent(weights):
            return function(*args, **kwargs)
    return checkpoint(again, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


@contextmanager
def recomputing(model: nn.Module) -> Iterator[None]:
    """Inside, the marked layers of a network run by `run`. None may write to a cache: it would do so twice."""
    found = [layer for layer in layers(model) if layer.gradient_checkpointing]
    for layer in found:
        layer.forward = partial(run, layer, partial(type(layer).forward, layer))
    try:
        yield
    finally:
        for layer in found:
            del layer.forward


def layers(model: nn.Module) -> list[Any]:
    return [part for part in parts(model) if isinstance(part, GradientCheckpointingLayer)]


def parts(model: nn.Module) -> Iterator[nn.Module]:
    """`model.modules()` in a third of the time, because passes need it several times a step."""
    rest, seen = [model], set[nn.Module]()
    while rest:
        if (part := rest.pop()) not in seen:
            seen.add(part)
            yield part
            rest += [each for each in reversed(part._modules.values()) if each is not None]
