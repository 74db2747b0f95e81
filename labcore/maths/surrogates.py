"""The surrogate of each token, the tokens that it cuts off, and the critic's loss.

Advantages are constants here: give them without a gradient. `advantages` may be (B, T) or (B, 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from labcore.maths.call import call
from labcore.maths.covariance import clip_cov as clip_cov
from labcore.maths.covariance import clip_cov_cut as clip_cov_cut
from labcore.maths.covariance import kl_cov as kl_cov
from labcore.maths.covariance import tokens_to_drop as tokens_to_drop
from labcore.maths.covariance import tokens_to_hold as tokens_to_hold
from labcore.maths.masked import masked_mean, masked_sum
from labcore.maths.regression import centred_regression as centred_regression
from labcore.maths.regression import classifier as classifier
from labcore.maths.regression import regression as regression
from labcore.maths.trust import future_weight
from labcore.maths.trust import kl_cut as kl_cut
from labcore.maths.trust import kl_mask as kl_mask
from labcore.maths.trust import quadratic as quadratic
from labcore.maths.trust import tv_cut as tv_cut
from labcore.maths.trust import tv_mask as tv_mask


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


def bounded_clip(ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float, clip_delta: float,
                 dual_clip: float) -> Tensor:
    """S = min(min(ρ, δ) A, clip(ρ, 1 − ε_low, 1 + ε_high) A), at least cA where A < 0. (B, T), (B, T) -> (B, T)

    In the unit of the advantages. Where A < 0 nothing in `clip` bounds ρ from above. Two bounds may: δ = `clip_delta`
    and c = `dual_clip`; 0 is none. With c = δ > 1 + ε_high they are the same.

    Source: Prime Intellect 2025, arXiv:2505.07291, section 3.4 (δ); Ye et al. 2020, arXiv:1912.09729 (c).
    """
    surrogate = clip(ratio, advantages, clip_low, clip_high)
    if clip_delta:
        surrogate = torch.minimum(ratio.clamp(max=clip_delta) * advantages, ratio.clamp(
            min=1 - clip_low, max=1 + clip_high) * advantages)
    if not dual_clip:
        return surrogate
    return torch.where(advantages < 0, torch.maximum(surrogate, dual_clip * advantages), surrogate)


def future_kl_clip(ratio: Tensor, advantages: Tensor, completion_mask: Tensor, clip_low: float, clip_high: float,
                   future_half_life: float, future_range: float, future_safety: float) -> Tensor:
    """S = f_t min(ρA, clip(ρ, 1 − ε_low, 1 + ε_high) A). (B, T), (B, T), bool (B, T) -> (B, T)

    In the unit of the advantages. For f see `future_weight`: a token counts for more where the rest of its completion
    has become likelier. Tokens are cut off as by `clip`.

    Source: arXiv:2603.19835, 2026 (FIPO).
    """
    weight = future_weight(ratio, advantages, completion_mask, future_half_life, future_range, future_safety)
    return weight * clip(ratio, advantages, clip_low, clip_high)


def geometric_clip(ratio: Tensor, advantages: Tensor, completion_mask: Tensor, clip_low: float,
                   clip_high: float, high_entropy: Tensor | None = None) -> Tensor:
    """S = A (Π_t ρ'_t)^(1/T), the same for all t. (B, T), (B, T), bool (B, T) -> (B, T)

    In the unit of the advantages; log ρ' = min(log ρ, ε_high) where A > 0, max(log ρ, −ε_low) where A < 0. The ratios
    are those of tokens; the bounds are those of their logarithms, in nats. Tokens whose weight `high_entropy` (B, T)
    is 0 are left out of the mean, and of T.

    Source: Zhao et al. 2025, arXiv:2507.20673, algorithm 1 (GMPO).
    """
    log_ratio = ratio.clamp(min=torch.finfo(ratio.dtype).tiny).log()
    bounded = torch.where(advantages > 0, log_ratio.clamp(max=clip_high), log_ratio.clamp(min=-clip_low))
    counted = completion_mask if high_entropy is None else completion_mask & (high_entropy > 0)
    return masked_mean(bounded, counted, dim=1, keepdim=True).exp() * advantages


def detached_weight(ratio: Tensor, logprobs: Tensor, advantages: Tensor, ratio_cap: float) -> Tensor:
    """S = sg(min(ρ, ε_max)) A log π, sg: no gradient. (B, T), (B, T), (B, T) -> (B, T)

    In reward · nat: only its gradient means something. `ratio_cap` bounds the ratio itself (5 keeps ρ up to 5); no
    token loses its gradient.

    Source: MiniMax 2025, arXiv:2506.13585, section 3.1 (CISPO), without a lower bound.
    """
    return ratio.detach().clamp(max=ratio_cap) * advantages * logprobs


def soft_gate(ratio: Tensor, advantages: Tensor, gate_positive: float, gate_negative: float) -> Tensor:
    """S = 4/τ σ(τ(ρ − 1)) A, with τ = τ_pos where A > 0, else τ_neg. (B, T), (B, T) -> (B, T)

    In the unit of the advantages. Its slope in ρ is A at ρ = 1 and falls smoothly on both sides: a larger τ closes the
    gate sooner. The value at ρ = 1 is 2A/τ.

    Source: Gao et al. 2025, arXiv:2511.20347, section 3 (SAPO).
    """
    positive, negative = (4 / tau * torch.sigmoid(tau * (ratio - 1)) for tau in (gate_positive, gate_negative))
    return torch.where(advantages > 0, positive, negative) * advantages


def gamma_weight(ratio: Tensor, logprobs: Tensor, advantages: Tensor, gamma_power_positive: float,
                 gamma_rate_positive: float, gamma_power_negative: float, gamma_rate_negative: float,
                 sampler_correction: Tensor | None = None) -> Tensor:
    """S = sg(φ(ρ)) A log π, sg: no gradient. (B, T), (B, T), (B, T) -> (B, T)

    In reward · nat: only its gradient means something. For φ see `gamma_of`; ρ is that of the whole sequence, times
    the product of the tokens' weights for another sampler, `sampler_correction` (B, T), where there are any.

    Source: Shen et al. 2026, arXiv:2602.10693 (VESPO).
    """
    weight = gamma_of(ratio, advantages, gamma_power_positive, gamma_rate_positive, gamma_power_negative,
                      gamma_rate_negative, sampler_correction)
    return weight * advantages * logprobs


def gamma_of(ratio: Tensor, advantages: Tensor, gamma_power_positive: float, gamma_rate_positive: float,
             gamma_power_negative: float, gamma_rate_negative: float,
             sampler_correction: Tensor | None = None) -> Tensor:
    """φ(ρ) = ρ^k e^(λ(1 − ρ)), with its own k and λ where A ≥ 0 and where A < 0; no gradient. (B, T), (B, T) -> (B, T)

    Without a unit: 1 at ρ = 1, largest at ρ = k/λ, 0 at both ends. ρ is kept within 1e-8 and e^20; so is each weight
    of `sampler_correction` (B, T), 1 where the mask is False, by whose product over the tokens it is multiplied.
    """
    log_ratio = ratio.detach().log()
    if sampler_correction is not None:
        log_ratio = log_ratio + sampler_correction.log().clamp(math.log(1e-8), 20).sum(1, keepdim=True)
    log_ratio = log_ratio.clamp(math.log(1e-8), 20)
    good, bad = (power * log_ratio + rate * (1 - log_ratio.exp()) for power, rate in (
        (gamma_power_positive, gamma_rate_positive), (gamma_power_negative, gamma_rate_negative)))
    return torch.where(advantages >= 0, good, bad).exp()


def kl_penalty(ratio: Tensor, advantages: Tensor, kl: Tensor, beta: float) -> Tensor:
    """S = ρA − β KL. (B, T), (B, T), (B, T) -> (B, T)

    In the unit of the advantages; `beta` in that unit per nat.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 8.
    """
    return ratio * advantages - beta * kl


def clip_cut(ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> dict[str, Tensor]:
    """cut = ρ < 1 − ε_low and A < 0, or ρ > 1 + ε_high and A > 0. (B, T), (B, T) -> {"low", "high"} of bool (B, T)

    The tokens whose gradient `clip` cuts off. On the other side of the advantage its minimum takes the unclipped term,
    and the gradient lives.
    """
    return {"low": (ratio < 1 - clip_low) & (advantages < 0), "high": (ratio > 1 + clip_high) & (advantages > 0)}


def bounded_cut(ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float, clip_delta: float,
                dual_clip: float) -> dict[str, Tensor]:
    """cut = those of `clip_cut`, or ρ > δ or ρ > c and A < 0. (B, T), (B, T) -> {"low", "high", "bound"} of bool (B, T)

    The tokens whose gradient `bounded_clip` cuts off; "bound" are those with A < 0 that are too likely now. TRL's
    shares leave these out.
    """
    highest = min(1 + clip_high, clip_delta or math.inf)
    # Where A < 0, up to 1 + ε_high the clipped term carries the gradient that δ cuts off in the first.
    bound = min(max(clip_delta, 1 + clip_high) if clip_delta else math.inf, dual_clip or math.inf)
    return {**clip_cut(ratio, advantages, clip_low, highest - 1), "bound": (ratio > bound) & (advantages < 0)}


def geometric_cut(ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> dict[str, Tensor]:
    """cut = log ρ < −ε_low and A < 0, or log ρ > ε_high and A > 0. (B, T), (B, T) -> {"low", "high"} of bool (B, T)

    The tokens whose gradient `geometric_clip` cuts off.
    """
    log_ratio = ratio.log()
    return {"low": (log_ratio < -clip_low) & (advantages < 0), "high": (log_ratio > clip_high) & (advantages > 0)}


def cap_cut(ratio: Tensor, advantages: Tensor, ratio_cap: float) -> dict[str, Tensor]:
    """cut = ρ > ε_max and A > 0. (B, T), (B, T) -> {"high"} of bool (B, T)

    The tokens with A > 0 whose weight `detached_weight` caps. Their gradient lives, with the weight ε_max. TRL logs
    their share as `cispo_clip_ratio`; it, too, leaves out those with A < 0, which are capped as well.
    """
    return {"high": (ratio > ratio_cap) & (advantages > 0)}


def cut_fractions(cut: Mapping[str, Tensor], completion_mask: Tensor) -> dict[str, Tensor]:
    """n_cut/n over the counted tokens, for each side and for all. {side: bool (B, T)}, bool (B, T) -> {side: ()}

    `cut` has at least one side; "region" is any of them. With ratios and advantages of whole sequences, give one
    column of each, (B, 1), for shares of sequences.
    """
    sides = {**cut, "region": reduce(torch.logical_or, cut.values())}
    return {side: masked_mean(tokens.float(), completion_mask) for side, tokens in sides.items()}


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


# ---------------------------------------------------------------- diagram
# A surrogate as a picture: its curve over the ratio, and which tokens it cuts off. For people to look at.

POINTS = 121
FURTHEST = 3.0  # the largest ratio that is drawn
USUAL = 0.2  # how far from 1 a surrogate without bounds is drawn at least, thrice


def curve(surrogate: Callable[..., Tensor], knobs: Mapping[str, Any], ratio: Tensor) -> dict[str, list[float]]:
    """S(ρ, A)/|A| for A = 1 and A = −1, over all of `ratio`, any shape, and at least thrice ε on both sides of 1.

    {"ratio", "positive", "negative"} of as many points, and "bounds": 1 − ε_low and 1 + ε_high where `knobs` have them,
    which are points of the curve. `surrogate` is a function of ratio and advantages alone.
    """
    bounds = [1 + sign * float(knobs[key]) for key, sign in (("clip_low", -1), ("clip_high", 1)) if key in knobs]
    wide = max((abs(bound - 1) for bound in bounds), default=USUAL) or 0.002
    left = max(0.0, min(1 - 3 * wide, float(ratio.min())) - wide / 4)
    right = min(FURTHEST, max(1 + 3 * wide, float(ratio.max())) + wide / 4)
    inside = [bound for bound in bounds if left < bound < right]
    grid = torch.cat([torch.linspace(left, right, POINTS, dtype=torch.float64),
                      torch.tensor(inside, dtype=torch.float64)]).sort().values
    curves = {name: call(surrogate, knobs, {"ratio": grid, "advantages": torch.full_like(grid, sign)})
              for name, sign in (("positive", 1.0), ("negative", -1.0))}
    return {"ratio": _listed(grid), **{name: _listed(values) for name, values in curves.items()}, "bounds": bounds}


def sides(cut: Mapping[str, Tensor], like: Tensor) -> list[Any]:
    """The side on which each token is cut off, "low", "high" or "": nested lists of the shape of `like`.

    `cut` is {side: bool}, of that shape or one that expands to it; empty where nothing is cut off.
    """
    names = ["", *cut]
    number = torch.zeros(like.shape, dtype=torch.long, device=like.device)
    for place, tokens in enumerate(cut.values(), 1):
        number = number.masked_fill(tokens.expand(like.shape), place)
    named: list[Any] = _named(number.tolist(), names)
    return named


def _named(numbers: Any, names: list[str]) -> Any:
    return [_named(each, names) for each in numbers] if isinstance(numbers, list) else names[numbers]


def _listed(values: Tensor) -> list[float]:
    rounded: list[float] = values.numpy().round(6).tolist()
    return rounded
