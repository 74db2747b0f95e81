"""Estimates of KL(π ‖ π_ref) from sampled tokens, one per token.

Which one is in the loss matters for its gradient, not only for its noise. With tokens sampled from π, in expectation:
k1 has no gradient at all, k2 and ratio × k3 have that of KL(π ‖ π_ref), k3 that of the other KL, KL(π_ref ‖ π).
In the reward (no gradient through it) k1 gives the gradient of KL(π ‖ π_ref).

Where a position does not count, give both log-probabilities the same value: the estimates are then 0 there, and
no exponential can overflow.
"""

from __future__ import annotations

import torch
from torch import Tensor


def k1(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """k1 = log(π/π_ref). (B, T), (B, T) -> (B, T)

    In nats. Unbiased; negative for some tokens.

    Source: Schulman 2020, "Approximating KL divergence", joschu.net/blog/kl-approx.html.
    """
    return logprobs - ref_logprobs


def k2(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """k2 = ½ log²(π/π_ref). (B, T), (B, T) -> (B, T)

    In nats. Biased, little noise.

    Source: Schulman 2020, "Approximating KL divergence", joschu.net/blog/kl-approx.html.
    """
    return (logprobs - ref_logprobs) ** 2 / 2


def k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """k3 = π_ref/π − 1 − log(π_ref/π). (B, T), (B, T) -> (B, T)

    In nats. Unbiased and never negative.

    Source: Schulman 2020, "Approximating KL divergence", joschu.net/blog/kl-approx.html; Shao et al. 2024,
    arXiv:2402.03300, eq. 4.
    """
    log_ref_over_pi = ref_logprobs - logprobs
    # expm1: near π = π_ref, e^x − 1 computed as such loses all the digits that matter.
    return torch.expm1(log_ref_over_pi) - log_ref_over_pi


def ratio_k3(logprobs: Tensor, ref_logprobs: Tensor, ratio: Tensor) -> Tensor:
    """ρ · k3, with ρ = π/π_old. (B, T), (B, T), (B, T) -> (B, T)

    In nats. With tokens sampled from π_old, both its mean and its gradient are those of KL(π ‖ π_ref).

    Source: DeepSeek-AI 2025, "DeepSeek-V3.2", arXiv:2512.02556, section 3.1 (unbiased KL estimate).
    """
    return ratio * k3(logprobs, ref_logprobs)
