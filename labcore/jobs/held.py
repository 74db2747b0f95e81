"""What a run holds in memory whatever its batch is, in bytes, and what that leaves for the batch. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping

from labcore.catalog.knob import Value
from labcore.jobs.passes import FULL, HALF, Mode
from labcore.spec.moments import EIGHT_BIT
from labcore.spec.rollouts import by_vllm

WEIGHT, GRADIENT, MOMENTS = 4, 4, 8  # bytes of a number in float32, of its gradient, and of AdamW's two moments
BLOCK = 256  # numbers of a moment in 8 bits that have a scale in common
ON_PROCESSOR = 2**32  # bytes of activations of a micro-batch, on whatever machine, so that its digits are the same
OF_CARD = 0.8  # of a GPU's memory: the rest is for the allocator, the sampler's buffers and those of single operations
VLLM = 0.3  # of a GPU's memory: vLLM's weights and key-value cache, where it samples
LEAST = 0.05  # of it that a micro-batch may take whatever the run holds; where that is too much it is halved


def weights(parameters: int) -> int:
    """Bytes of weights: 4 a number, in bf16 too, since the optimizer moves float32."""
    return WEIGHT * parameters


def gradients(learnt: int) -> int:
    """Bytes of gradients: 4 for each number that learns."""
    return GRADIENT * learnt


def optimizer(learnt: int, kind: str) -> int:
    """Bytes of AdamW's two moments for each number that learns: 8, or in 8 bits 2 and a scale for each block."""
    return 2 * learnt + 2 * FULL * learnt // BLOCK if kind == EIGHT_BIT else MOMENTS * learnt


def rounded(parameters: int) -> int:
    """Bytes of a network's weights in bfloat16, which a forward pass in bf16 makes: 2 a number."""
    return HALF * parameters


def of_run(parameters: int, learnt: int, loop: str, mode: Mode, kind: str) -> int:
    """Bytes at the most: weights, their gradients and moments, the copy of what learns to look at a step again, and
    the weights in bfloat16."""
    copied = weights(learnt) if loop != "reward_model" else 0
    half = rounded(parameters) if mode.width == HALF else 0
    return weights(parameters) + gradients(learnt) + optimizer(learnt, kind) + copied + half


def without_vllm(card: int, knobs: Mapping[str, Value]) -> int:
    """Bytes of a GPU of `card` bytes that vLLM leaves, where it samples."""
    return card - int(VLLM * card) if by_vllm(knobs) else card


def room(most_logits: int, mode: Mode, card: int | None, held: int) -> int:
    """Bytes for the activations of a micro-batch: on a GPU of `card` bytes what a run leaves that holds `held`. It
    comes of the spec and the card alone, not of what is free at the moment."""
    if mode.device != "cuda" or not card:
        return ON_PROCESSOR
    chunk = most_logits * (mode.width + FULL * 5)
    return int(max(OF_CARD * card - held - chunk, LEAST * card))
