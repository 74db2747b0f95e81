"""Log-probabilities of chosen tokens and the entropy of the distribution they were chosen from.

Logits are divided by the temperature first, so that both belong to the distribution that was sampled. Half-precision
logits are computed in float32: bfloat16 has three digits, a ratio near 1 needs more.

On a processor, the table of log-probs of a large vocabulary is read and written a few rows at a time, while they are
in its cache, and the backward pass turns the same table into the gradient: to allocate each of these once more, as
separate operations do, takes as long as to compute them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labcore.maths import gpu

WIDE = 1024  # tokens of a vocabulary from which on its table is large: no built-in model has so many
AT_ONCE = 2**19  # numbers of the table that are in the cache together: 2 MiB


class _Wide(torch.autograd.Function):
    """log π(y) and H of logits (N, V) at tokens (N,), π = softmax(z/τ); no gradient flows through H.

    The gradient is g (1[v = y] − π_v) / τ, as it is of `_log_softmax` and `_gather`. It takes the place of the table,
    so the backward pass can be run once.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, index: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        table = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        chosen, entropies = logits.new_empty(2, len(logits))
        for rows in _rows(logits):
            log_probs = torch.log_softmax(_scaled(logits[rows], temperature), -1,
                                          out=None if table is None else table[rows])
            chosen[rows], entropies[rows] = _gather(log_probs, index[rows]), _entropy(log_probs)
        if table is not None:
            ctx.save_for_backward(table, index)
            ctx.temperature = temperature
        ctx.mark_non_differentiable(entropies)
        return chosen, entropies

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        table, index = ctx.saved_tensors
        pull, places = (gradients[0] / ctx.temperature).unsqueeze(-1), index.unsqueeze(-1)
        for rows in _rows(table):
            table[rows].exp_().mul_(-pull[rows]).scatter_add_(-1, places[rows], pull[rows])
        return table, None, None


def _rows(table: Tensor) -> list[slice]:
    """The rows of (N, V) that are taken together; without any row one empty slice."""
    size = max(1, AT_ONCE // table.shape[-1])
    return [slice(start, start + size) for start in range(0, max(1, len(table)), size)]


def _is_wide(logits: Tensor) -> bool:
    return logits.device.type == "cpu" and logits.shape[-1] >= WIDE and not torch.compiler.is_compiling()


def _wide(logits: Tensor) -> Tensor:
    """(..., V) -> (N, V) in float32"""
    return _precise(logits).reshape(-1, logits.shape[-1])


def _precise(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    return logits if temperature == 1 else logits / temperature  # one pass over (..., V) less in the usual case


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """log π = z/τ − log Σ_v exp(z_v/τ). (..., V) -> (..., V)"""
    return _scaled(_precise(logits), temperature).log_softmax(-1)


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
    if gpu.kernels(logits):
        return gpu.log_probs(logits, index, temperature)[0]
    if _is_wide(logits) and not logits.requires_grad:
        wide, tokens = _wide(logits), index.flatten()
        return torch.cat([_gather(_log_softmax(wide[rows], temperature), tokens[rows])
                          for rows in _rows(wide)]).view_as(index)
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
    if gpu.kernels(logits):
        chosen, entropies = gpu.log_probs(logits, index, temperature)
        return chosen, entropies if entropy_grad else entropies.detach()
    if _is_wide(logits) and not (entropy_grad and logits.requires_grad):
        chosen, entropies = _Wide.apply(  # type: ignore[no-untyped-call]  # torch's
            _wide(logits), index.flatten(), temperature)
        return chosen.view_as(index), entropies.view_as(index)
    log_probs = _log_softmax(logits, temperature)
    return _gather(log_probs, index), _entropy(log_probs if entropy_grad else log_probs.detach())
