"""Log-probabilities of chosen tokens and the entropy of the distribution they were chosen from.

Logits are divided by the temperature first, so that both belong to the distribution that was sampled. Half-precision
logits are computed in float32: bfloat16 has three digits, a ratio near 1 needs more.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """log π = z/τ − log Σ_v exp(z_v/τ). (..., V) -> (..., V)"""
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    # One pass over (..., V) less in the usual case.
    scaled = logits if temperature == 1 else logits / temperature
    return scaled.log_softmax(-1)


def _gather(log_probs: Tensor, index: Tensor) -> Tensor:
    return log_probs.gather(-1, index.unsqueeze(-1)).squeeze(-1)


def _entropy(log_probs: Tensor) -> Tensor:
    # p log p is 0 at p = 0, in value and gradient; the floor keeps 0 · (−∞) from making it NaN.
    finite = log_probs.clamp(min=torch.finfo(log_probs.dtype).min)
    return -(log_probs.exp() * finite).sum(-1)


def selective_log_softmax(logits: Tensor, index: Tensor, temperature: float = 1.0) -> Tensor:
    """log π(y) = z_y/τ − log Σ_v exp(z_v/τ). (..., V), int (...) -> (...)

    In nats.
    """
    return _gather(_log_softmax(logits, temperature), index)


def entropy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """H = −Σ_v π_v log π_v, with π = softmax(z/τ). (..., V) -> (...)

    In nats.
    """
    return _entropy(_log_softmax(logits, temperature))


def log_square_sum(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """log Σ_v π_v². (..., V) -> (...)

    In nats: the log of the mean probability of what the policy samples.
    """
    return (2 * _log_softmax(logits, temperature)).logsumexp(-1)


def logprobs_and_entropy(logits: Tensor, index: Tensor, temperature: float = 1.0,
                         entropy_grad: bool = True) -> tuple[Tensor, Tensor]:
    """log π(y) and H of one softmax. (..., V), int (...) -> (...), (...)

    In nats. `entropy_grad=False` leaves the entropy out of the graph, which saves its backward pass where it is
    only logged. Bit for bit what `selective_log_softmax` and `entropy` give.
    """
    log_probs = _log_softmax(logits, temperature)
    return _gather(log_probs, index), _entropy(log_probs if entropy_grad else log_probs.detach())
