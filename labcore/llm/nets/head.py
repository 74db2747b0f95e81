"""The head of a network, and measures of its logits that never need all logits in memory at once.

    z = h Wᵀ + b          measure(z, y): log π(y), H, … of each token

With a vocabulary of 150,000 the logits of a batch are its largest tensor by far. If they are too many, they are
computed, measured and freed in chunks of tokens, and computed again in the backward pass. The gradient is equal up to
rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from labcore.llm.nets.packed import KINDS
from labcore.runs.spec.activity import report

MAX_ELEMENTS = 2**26  # numbers of logits that are held at once: in float32 256 MiB
Measure = Callable[..., tuple[Tensor, ...]]  # logits (…, V), tokens (…) and what is beside them -> of each token (…)


def has_plain_head(model: nn.Module) -> bool:
    """True if the logits are the last hidden states times a matrix, with no further operation."""
    return (isinstance(model, PreTrainedModel) and model.config.model_type in KINDS
            and type(getattr(model, "lm_head", None)) in (nn.Linear, nn.Identity))  # an adapter on it is another class


@contextmanager
def headless(model: PreTrainedModel) -> Iterator[nn.Linear]:
    """Inside, a model with a plain head gives its last hidden states as its logits. Yields the head."""
    head = model.lm_head
    model.lm_head = nn.Identity()
    try:
        yield head
    finally:
        model.lm_head = head


def watch(logits: Tensor, norms: Tensor | None) -> None:
    """Have the backward pass write ‖∂L/∂z‖₂ of each token's logits z (…, V) into `norms` (…), where it is given."""
    def write(gradient: Tensor) -> None:  # keeps the norms only, not the gradient
        assert norms is not None
        wide = torch.promote_types(gradient.dtype, torch.float32)
        norms.copy_(torch.linalg.vector_norm(gradient, dim=-1, dtype=wide))
    if norms is not None and logits.requires_grad:
        logits.register_hook(write)


def in_chunks(head: nn.Linear, hidden: Tensor, ids: Tensor, measure: Measure,
              norms: Tensor | None = None, beside: tuple[Tensor, ...] = ()) -> tuple[Tensor, ...]:
    """Apply `measure` to the logits of all tokens, in chunks of at most MAX_ELEMENTS numbers. `measure` also gets the
    tensors `beside` of the same tokens. hidden (B, T, H) -> (B, T, …) each"""
    size = max(1, MAX_ELEMENTS // head.out_features)
    weight, bias = head.weight, head.bias  # as they are now: in a pass in bf16 they are others than after it

    def measured(place: int, pulled: Tensor | None, states: Tensor, tokens: Tensor,
                 *more: Tensor) -> tuple[Tensor, ...]:
        report("logits, part {} of {}", place, len(parts))
        logits = F.linear(states, weight, bias)
        watch(logits, pulled)
        return measure(logits, tokens, *more)
    states, parts = hidden.flatten(0, 1).split(size), ids.flatten().split(size)
    pulled = [None] * len(parts) if norms is None else norms.view(-1).split(size)
    cut = [each.flatten(0, 1).split(size) for each in beside]
    found = [checkpoint(partial(measured, place, own), *each, use_reentrant=False, preserve_rng_state=False)
             for place, (own, *each) in enumerate(zip(pulled, states, parts, *cut, strict=True), 1)]
    return tuple(torch.cat(column).unflatten(0, ids.shape) for column in zip(*found, strict=True))
