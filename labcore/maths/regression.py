"""Surrogates of whole completions that fit log-ratios to rewards, by a squared distance or as a classifier.

Each gives one number per completion, the same at all of its tokens, and the gradient of each of its tokens is that of
the whole completion's log-prob. `counted` (B, T) are the tokens that the update learns from: completions that have none
take no part. Advantages are constants, the same at all tokens of a completion. Shapes and units as in `surrogates`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labcore.maths.masked import centred, masked_mean, masked_sum


def centred_regression(ratio: Tensor, advantages: Tensor, counted: Tensor, group_size: int,
                       regression_beta: float) -> Tensor:
    """S = −½ G/(G−1) (β(s − mean_G s) − A)², s = Σ_t log ρ. (B, T), (B, T), bool (B, T) -> (B, T)

    In reward²; β = `regression_beta` in reward per nat, A the centred reward. Its optimum over all completions is
    π ∝ π_old e^(R/β), whatever sampled them; at ρ = 1 its gradient is β times that of the leave-one-out baseline.

    Source: Zhang et al. 2025, arXiv:2504.19599, eq. 9 (GVPO), with the policy that sampled as its π_θ', as in its code.
    """
    summed, target, whole = _summed(_log(ratio), counted), _of_completion(advantages, counted), _whole(counted)
    groups = whole.view(-1, group_size)
    mean = masked_mean(summed.view(-1, group_size), groups, dim=1, keepdim=True)
    count = groups.sum(1, keepdim=True)
    error = regression_beta * (summed.view(-1, group_size) - mean) - target.view(-1, group_size)
    return _at_tokens(-0.5 * count / (count - 1).clamp(min=1) * error ** 2, counted)


def regression(logprobs: Tensor, ref_logprobs: Tensor, advantages: Tensor, counted: Tensor,
               regression_beta: float) -> Tensor:
    """S = −(β s − A)², s = Σ_t log π/π_ref. (B, T), (B, T), (B, T), bool (B, T) -> (B, T)

    In reward²; β = `regression_beta` in reward per nat. With A = R − V*, V* = β log E_ref[e^(R/β)], it is least where
    π ∝ π_ref e^(R/β).

    Source: Brantley et al. 2025, arXiv:2505.20686, eq. 5 (A*-PO).
    """
    error = regression_beta * _summed(logprobs - ref_logprobs, counted) - _of_completion(advantages, counted)
    return _at_tokens(-error ** 2, counted)


def classifier(ratio: Tensor, advantages: Tensor, counted: Tensor, group_size: int,
               classifier_temperature: float) -> Tensor:
    """S = −log(1 + Σ_{G+} e^(−s/τ)) − log(1 + Σ_{G−} e^(s/τ)), s = mean_t log ρ. (B, T), (B, T), bool (B, T) -> (B, T)

    In nats, the same for all of a group; τ = `classifier_temperature` in nats per token. G+ are the completions with
    an advantage above their group's mean, G− all others that count; a group without both says nothing. The weight of
    a completion is at most 1/τ.

    Source: Zhai et al. 2026, arXiv:2602.05630, eq. 12 (REAL).
    """
    whole = _whole(counted).view(-1, group_size)
    score = masked_mean(_log(ratio), counted, dim=1).view(-1, group_size) / classifier_temperature
    right = centred(_of_completion(advantages, counted).view(-1, group_size), whole, 1) > 0
    wrong = ~right & whole
    both = right.any(1, keepdim=True) & wrong.any(1, keepdim=True)
    sides = [torch.cat([torch.where(side, signed, -torch.inf), torch.zeros_like(score[:, :1])], 1).logsumexp(1, True)
             for side, signed in ((right, -score), (wrong, score))]
    return _at_tokens(torch.where(both, -(sides[0] + sides[1]), 0).expand_as(score), counted)


def _log(ratio: Tensor) -> Tensor:
    return ratio.clamp(min=torch.finfo(ratio.dtype).tiny).log()


def _summed(values: Tensor, counted: Tensor) -> Tensor:
    return masked_sum(values, counted, dim=1)


def _of_completion(values: Tensor, counted: Tensor) -> Tensor:
    """The value that all counted tokens of a completion share. (B, T) -> (B,)"""
    return masked_mean(values.expand(counted.shape), counted, dim=1)


def _whole(counted: Tensor) -> Tensor:
    return counted.any(1)


def _at_tokens(values: Tensor, counted: Tensor) -> Tensor:
    return values.reshape(-1, 1).expand(counted.shape)
