"""What counts for less in a preference loss: the tail of the longer side, and pairs far from the policy."""

from __future__ import annotations

from torch import Tensor

from labcore.maths.masked import masked_mean, masked_sum


def without_tail(logprobs: Tensor, completion_mask: Tensor, other_lengths: Tensor, ld_alpha: float) -> Tensor:
    """ℓ = Σ_{t ≤ T'} log π(y_t) + α Σ_{t > T'} log π(y_t), T' the tokens of the pair's other side. (B, T) -> (B,)

    In nats/sequence; `other_lengths` (B,). At α = 1 it is the whole sum; at 0 the tokens by which one side is longer
    count for nothing.

    Source: Liu et al. 2024, arXiv:2409.06411 (LD-DPO).
    """
    shared = completion_mask.cumsum(1) <= other_lengths[:, None]
    tail = masked_sum(logprobs, completion_mask & ~shared, dim=1)
    return masked_sum(logprobs, completion_mask & shared, dim=1) + ld_alpha * tail


def likelihood(logprobs: Tensor, log_square_sums: Tensor, completion_mask: Tensor) -> Tensor:
    """exp mean_t (log π(y_t) − log Σ_v π(v)²): how likely a completion is to be the policy's own. (B, T) each -> (B,)

    Without a unit, no gradient: 1 where its tokens are as likely as the policy's own samples on average. WPO weighs a
    pair by the product of both sides'.

    Source: Zhou et al. 2024, arXiv:2406.11827, eq. 2.
    """
    return masked_mean(logprobs - log_square_sums, completion_mask, dim=1).exp().detach()
