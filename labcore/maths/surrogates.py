"""What is maximised, per token, the critic's loss, and how much the clip cuts off.

Advantages are constants here: give them without a gradient. `advantages` may be (B, T) or (B, 1).
"""

from __future__ import annotations

import torch
from torch import Tensor

from labcore.maths.masked import masked_mean, masked_sum


def score_function(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """S = A log π. (B, T), (B, T) -> (B, T)

    In reward · nat: only its gradient means something.

    Source: Williams 1992, Machine Learning 8:229, theorem 1.
    """
    return advantages * logprobs


def cpi(ratio: Tensor, advantages: Tensor) -> Tensor:
    """S = ρA. (B, T), (B, T) -> (B, T)

    In the unit of the advantages.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 6; Kakade and Langford 2002.
    """
    return ratio * advantages


def clip(ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """S = min(ρA, clip(ρ, 1 − ε_low, 1 + ε_high) A). (B, T), (B, T) -> (B, T)

    In the unit of the advantages.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7; Yu et al. 2025, arXiv:2503.14476, eq. 8 (two bounds).
    """
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return torch.minimum(ratio * advantages, clipped * advantages)


def kl_penalised(ratio: Tensor, advantages: Tensor, kl: Tensor, beta: float) -> Tensor:
    """S = ρA − β KL. (B, T), (B, T), (B, T) -> (B, T)

    In the unit of the advantages; `beta` in that unit per nat.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 8.
    """
    return ratio * advantages - beta * kl


def clip_fractions(ratio: Tensor, advantages: Tensor, completion_mask: Tensor, clip_low: float,
                   clip_high: float) -> dict[str, Tensor]:
    """Shares of counted tokens that the clip cuts off. (B, T), (B, T), bool (B, T) -> {"low", "high", "region"} of ()

    low: ρ < 1 − ε_low and A < 0; high: ρ > 1 + ε_high and A > 0; region: either. On the other side of the advantage
    the minimum in `clip` takes the unclipped term, and the gradient lives. With ratios and advantages of whole
    sequences, give one column of each, (B, 1), for shares of sequences.
    """
    low = (ratio < 1 - clip_low) & (advantages < 0)
    high = (ratio > 1 + clip_high) & (advantages > 0)
    return {name: masked_mean(cut.to(ratio.dtype), completion_mask)
            for name, cut in (("low", low), ("high", high), ("region", low | high))}


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, completion_mask: Tensor,
               value_clip: float | None = None, total_tokens: int | None = None) -> Tensor:
    """L^V = ½ mean_mask max((V − R)², (clip(V, V_old ± ε_V) − R)²). (B, T) x 3, bool (B, T) -> ()

    In reward². Without `value_clip` (None) the mean of ½(V − R)². `total_tokens` is the count of the whole optimizer
    step when this is a part of it, so that the parts' losses add up.

    Source: Ouyang et al. 2022, arXiv:2203.02155; Huang et al. 2024, arXiv:2403.17031 (value clipping).
    """
    squared_error = (values - returns) ** 2
    if value_clip is not None:
        clipped = torch.clamp(values, old_values - value_clip, old_values + value_clip)
        squared_error = torch.maximum(squared_error, (clipped - returns) ** 2)
    if total_tokens is None:
        return masked_mean(squared_error, completion_mask) / 2
    return masked_sum(squared_error, completion_mask) / max(total_tokens, 1) / 2
