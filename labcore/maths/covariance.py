"""Surrogates that treat a few tokens differently: those with a high covariance of log-prob and advantage.

This covariance lowers the policy's entropy: it is high if a likely token is made likelier, or an unlikely one less
likely. A few tokens have most of it. They can only be found among all tokens of an update, so the functions that find
them get the whole update; `singled_out` is their result. Shapes and units as in `surrogates`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labcore.maths.masked import masked_mean


def covariance(logprobs: Tensor, advantages: Tensor, completion_mask: Tensor) -> Tensor:
    """cov_t = (A_t − mean A)(log π_t − mean log π), no gradient. (B, T), (B, T), bool (B, T) -> (B, T)

    In the unit of the advantages × nats; means are over the counted tokens. Its own mean is the covariance.

    Source: Cui et al. 2025, arXiv:2505.22617, eq. 10.
    """
    advantages, logprobs = advantages.expand_as(logprobs), logprobs.detach()
    return ((advantages - masked_mean(advantages, completion_mask))
            * (logprobs - masked_mean(logprobs, completion_mask)))


def tokens_to_drop(ratio: Tensor, logprobs: Tensor, advantages: Tensor, completion_mask: Tensor, draws: Tensor,
                   clip_low: float, clip_high: float, cov_share: float, cov_low: float, cov_high: float) -> Tensor:
    """I = at most max(⌊r n⌋, 1) of the n tokens, drawn at random from the tokens with ω_low < cov_t < ω_high. (B, T)
    five times -> bool (B, T)

    Tokens that the clip cuts off are none of them. `draws` are random numbers: the least are drawn.

    Source: Cui et al. 2025, arXiv:2505.22617, eq. 11 (Clip-Cov).
    """
    apart = covariance(logprobs, advantages, completion_mask)
    cut = ((ratio < 1 - clip_low) & (advantages < 0)) | ((ratio > 1 + clip_high) & (advantages > 0))
    open_to = (apart > cov_low) & (apart < cov_high) & completion_mask & ~cut
    most = max(int(cov_share * int(completion_mask.sum())), 1)
    return _first(draws.masked_fill(~open_to, torch.inf), most) & open_to


def clip_cov(ratio: Tensor, advantages: Tensor, singled_out: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """S = min(ρA, clip(ρ, 1 − ε_low, 1 + ε_high) A), 0 for the tokens of I. (B, T), (B, T), bool (B, T) -> (B, T)

    In the unit of the advantages. For I see `tokens_to_drop`.

    Source: Cui et al. 2025, arXiv:2505.22617, eq. 12 (Clip-Cov), as in verl.
    """
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return torch.minimum(ratio * advantages, clipped * advantages) * ~singled_out


def clip_cov_cut(ratio: Tensor, advantages: Tensor, singled_out: Tensor, clip_low: float,
                 clip_high: float) -> dict[str, Tensor]:
    """cut = those of `clip_cut`, or the tokens of I. (B, T), (B, T), bool (B, T) -> {side: bool (B, T)}

    The tokens whose gradient `clip_cov` cuts off; "covariance" are those of I.
    """
    return {"low": (ratio < 1 - clip_low) & (advantages < 0), "high": (ratio > 1 + clip_high) & (advantages > 0),
            "covariance": singled_out}


def tokens_to_hold(logprobs: Tensor, advantages: Tensor, completion_mask: Tensor, cov_share: float) -> Tensor:
    """I = the max(⌊r n⌋, 1) of the n tokens with the largest cov_t. (B, T), (B, T), bool (B, T) -> bool (B, T)

    Source: Cui et al. 2025, arXiv:2505.22617, eq. 13 (KL-Cov).
    """
    apart = covariance(logprobs, advantages, completion_mask).masked_fill(~completion_mask, -torch.inf)
    return _first(-apart, max(int(cov_share * int(completion_mask.sum())), 1)) & completion_mask


def kl_cov(ratio: Tensor, advantages: Tensor, singled_out: Tensor, cov_pull: float) -> Tensor:
    """S = ρA − κ |log ρ| for the tokens of I, ρA for all others. (B, T), (B, T), bool (B, T) -> (B, T)

    In the unit of the advantages; κ = `cov_pull` in that unit per nat. For I see `tokens_to_hold`. No token is clipped.
    At ρ = 1 the pull has no gradient.

    Source: Cui et al. 2025, arXiv:2505.22617, eq. 14 (KL-Cov), with |log ρ| for the KL as in verl.
    """
    log_ratio = ratio.clamp(min=torch.finfo(ratio.dtype).tiny).log()
    return ratio * advantages - cov_pull * log_ratio.abs() * singled_out


def _first(values: Tensor, count: int) -> Tensor:
    """True for the `count` smallest of the values. (B, T) -> bool (B, T)"""
    found = torch.zeros(values.numel(), dtype=torch.bool, device=values.device)
    found[values.flatten().topk(min(count, values.numel()), largest=False).indices] = True
    return found.view_as(values)
