"""Estimates of KL(π ‖ π_ref) from sampled tokens, one per token.

Which one is in the loss matters for its gradient, not only for its noise. With tokens sampled from π, in expectation:
k1 has no gradient at all, k2 and ratio × k3 have that of KL(π ‖ π_ref), k3 that of the other KL, KL(π_ref ‖ π). With
tokens of an earlier policy π_old, as from the second update on a batch, k1 has that of −KL(π_old ‖ π), whatever π_ref.

These are the KLs of single tokens: in the loss the prefixes are held fixed, and the gradient is that of Σ_t E[KL_t]
without what an earlier token does to the KL of later ones. In the reward (no gradient through it) k1, summed over the
completion, gives the gradient of the KL of whole completions, which has that too. The two are the same for completions
of one token, and for ratio × k3 summed over tokens with the ratio of the whole sequence.

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

    In nats. With tokens sampled from π_old, both its mean and its gradient are those of KL(π ‖ π_ref), prefixes held
    fixed; with the ratio of the whole sequence, of the KL of whole completions.

    Source: DeepSeek-AI 2025, "DeepSeek-V3.2", arXiv:2512.02556, section 3.1 (unbiased KL estimate).
    """
    return ratio * k3(logprobs, ref_logprobs)
