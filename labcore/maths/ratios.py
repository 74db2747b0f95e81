"""The ratio of the new to the old policy, by token or by sequence.

A ratio is taken against the policy that sampled, never against the reference. Where a position does not count the
log-ratio is taken as 0, so nothing there can overflow and turn a masked gradient into NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labcore.maths.masked import masked_mean, masked_sum


def none(logprobs: Tensor) -> Tensor:
    """ρ = π/sg(π): 1, with the gradient of log π, which a KL weighted by it needs. (B, T) -> (B, T)

    Without a unit. For objectives that are on policy and differentiate log π itself.
    """
    return (logprobs - logprobs.detach()).exp()


def token(logprobs: Tensor, old_logprobs: Tensor, completion_mask: Tensor) -> Tensor:
    """ρ_t = π(y_t)/π_old(y_t), 1 where the mask is False. (B, T), (B, T), bool (B, T) -> (B, T)

    Without a unit.

    Source: Schulman et al. 2017, arXiv:1707.06347, section 3.
    """
    log_new_over_old = logprobs - old_logprobs
    return torch.where(completion_mask, log_new_over_old, torch.zeros_like(log_new_over_old)).exp()


def sequence_sum(logprobs: Tensor, old_logprobs: Tensor, completion_mask: Tensor) -> Tensor:
    """ρ = Π_t π(y_t)/π_old(y_t), the same for all t. (B, T), (B, T), bool (B, T) -> (B, T)

    Without a unit.

    Source: Ahmadian et al. 2024, arXiv:2402.14740 (a completion is one action).
    """
    log_new_over_old = masked_sum(logprobs - old_logprobs, completion_mask, dim=1, keepdim=True)
    return log_new_over_old.exp().expand_as(logprobs)


def sequence_mean(logprobs: Tensor, old_logprobs: Tensor, completion_mask: Tensor) -> Tensor:
    """ρ = (Π_t π(y_t)/π_old(y_t))^(1/T_i), the same for all t. (B, T), (B, T), bool (B, T) -> (B, T)

    Without a unit.

    Source: Zheng et al. 2025, arXiv:2507.18071, eq. 7.
    """
    log_new_over_old = masked_mean(logprobs - old_logprobs, completion_mask, dim=1, keepdim=True)
    return log_new_over_old.exp().expand_as(logprobs)


def sequence_mean_token(logprobs: Tensor, old_logprobs: Tensor, completion_mask: Tensor) -> Tensor:
    """ρ_t = sg(s) π(y_t)/sg(π(y_t)), with s the ratio `sequence_mean`. (B, T), (B, T), bool (B, T) -> (B, T)

    Without a unit. Its value is s for all t, its gradient that of log π(y_t) alone: with one advantage for all tokens
    the mean over them has the gradient of s, and tokens may have advantages of their own.

    Source: Zheng et al. 2025, arXiv:2507.18071, eq. 14 (GSPO-token).
    """
    own = torch.where(completion_mask, logprobs - logprobs.detach(), torch.zeros_like(logprobs)).exp()
    return sequence_mean(logprobs, old_logprobs, completion_mask).detach() * own
