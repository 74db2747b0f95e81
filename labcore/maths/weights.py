"""Weights of a token's surrogate before aggregation; the KL and the entropy bonus have none.

Weights have no gradient. A weight of 0 leaves a token out of the policy's term, but in all denominators.
"""

from __future__ import annotations

from torch import Tensor

from labcore.maths.masked import masked_mean


def entropy_floor(entropy: Tensor, completion_mask: Tensor, top_entropy_share: float) -> Tensor:
    """The quantile 1 − q of the entropy of all counted tokens. (B, T), bool (B, T) -> ()

    In nats; q = `top_entropy_share`. There must be a counted token.
    """
    # In float32, as TRL does: a token that lies on the quantile is then on the same side.
    return entropy[completion_mask].float().quantile(1 - top_entropy_share)


def high_entropy(entropy: Tensor, entropy_floor: Tensor) -> Tensor:
    """w = 1 where H_t ≥ the floor, else 0. (B, T), () -> (B, T)

    Source: Wang et al. 2025, arXiv:2506.01939 (the 20 % of tokens with the highest entropy).
    """
    return (entropy.detach() >= entropy_floor).to(entropy.dtype)


def near_policy(logprobs: Tensor, old_logprobs: Tensor, sampler_logprobs: Tensor | None, advantages: Tensor,
                completion_mask: Tensor, off_policy_threshold: float) -> Tensor:
    """w = 0 where A < 0 and mean_t log(π_sampler/π) > δ, else 1. (B, T) three times, bool (B, T) -> (B, T)

    The mean is over the completion's counted tokens, in nats per token as `off_policy_threshold`: what has become
    unlikely and was bad anyway teaches nothing more. `old_logprobs` are the sampler's where `sampler_logprobs` is None.

    Source: DeepSeek-AI 2025, "DeepSeek-V3.2", arXiv:2512.02556, section 3.1 (off-policy sequence masking).
    """
    sampled = old_logprobs if sampler_logprobs is None else sampler_logprobs
    distance = masked_mean(sampled - logprobs.detach(), completion_mask, dim=1, keepdim=True)
    return ((advantages >= 0) | (distance <= off_policy_threshold)).to(logprobs.dtype)


def sampler_correction(old_logprobs: Tensor, sampler_logprobs: Tensor, completion_mask: Tensor, importance_cap: float,
                       importance_floor: float = 0.0, importance_mode: str = "token_truncate") -> Tensor:
    """w = π_old/π_sampler, kept within c … C; 1 where the mask is False. (B, T), (B, T), bool (B, T) -> (B, T)

    π_old is the trainer's own before the updates; where both compute the same, w is 1. `importance_mode` says whose
    ratio it is, that of each "token" or the product of a "sequence", and what becomes of one outside c =
    `importance_floor` … C = `importance_cap`: "truncate" takes the bound itself, "mask" takes 0.

    Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training" (token_truncate);
    Ling Team 2025, arXiv:2510.18855, section 3.3.2 (IcePop: token_mask); Liu et al. 2025, "When speed kills stability"
    (sequences).
    """
    ratio = _sampler_ratio(old_logprobs, sampler_logprobs, completion_mask, importance_mode)
    if importance_mode.endswith("truncate"):
        return ratio.clamp(min=importance_floor, max=importance_cap)
    return ratio.masked_fill((ratio < importance_floor) | (ratio > importance_cap), 0)


def outside_bounds(old_logprobs: Tensor, sampler_logprobs: Tensor, completion_mask: Tensor, importance_cap: float,
                   importance_floor: float = 0.0, importance_mode: str = "token_truncate") -> Tensor:
    """True where that ratio is outside c … C. As `sampler_correction` -> bool (B, T)"""
    ratio = _sampler_ratio(old_logprobs, sampler_logprobs, completion_mask, importance_mode)
    return (ratio < importance_floor) | (ratio > importance_cap)


def _sampler_ratio(old_logprobs: Tensor, sampler_logprobs: Tensor, completion_mask: Tensor, mode: str) -> Tensor:
    """π_old/π_sampler of each token, or the product over its completion; 1 where the mask is False. (B, T)"""
    log_ratio = (old_logprobs - sampler_logprobs).masked_fill(~completion_mask, 0)
    return (log_ratio if mode.startswith("token") else log_ratio.sum(1, keepdim=True).expand_as(log_ratio)).exp()


def effective_share(log_weights: Tensor, mask: Tensor) -> Tensor:
    """(Σ w)² / (n Σ w²) of the n weights w = exp(`log_weights`) where the mask is True. (B, T), bool (B, T) -> ()

    A share: 1 where all weights are equal, 1/n where one has all the weight. There must be a counted token.

    Source: Kong 1992, "A note on importance sampling using standardized weights" (effective sample size); verl logs it
    as rollout_is_eff_sample_size.
    """
    found = log_weights[mask].double()
    weights = (found - found.max()).exp()  # a common factor cancels
    return weights.sum() ** 2 / (len(weights) * (weights**2).sum())
