"""Surrogates that keep the policy near the one that sampled, by other means than clipping the ratio.

Shapes and units as in `surrogates`: advantages are constants, ratios are per token.
"""

from __future__ import annotations

import torch
from torch import Tensor

NEAR = 1e-8  # keeps the logarithm of a probability of 0 finite, as in verl


def tv_mask(ratio: Tensor, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, ratio_cap: float,
            divergence_low: float, divergence_high: float) -> Tensor:
    """S = sg(min(ρ, c)) A log π, 0 for the tokens of `tv_cut`. (B, T) four times -> (B, T)

    In reward · nat: only its gradient means something. Probabilities bound it in place of their ratio, so that unlikely
    tokens may grow by large factors and likely ones only by little.

    Source: Qi et al. 2026, arXiv:2602.04879, section 5 (DPPO, binary TV), as in verl.
    """
    cut = tv_cut(ratio, advantages, old_logprobs, divergence_low, divergence_high)
    return _weighed(ratio, logprobs, advantages, ratio_cap, cut)


def tv_cut(ratio: Tensor, advantages: Tensor, old_logprobs: Tensor, divergence_low: float,
           divergence_high: float) -> dict[str, Tensor]:
    """cut = π − π_old < −δ_low and A ≤ 0, or π − π_old > δ_high and A > 0. (B, T) x 3 -> {"low", "high"} of bool (B, T)

    |π − π_old| is the total variation between the two policies, told apart by this token alone.
    """
    apart = (old_logprobs.exp() * (ratio - 1)).detach()
    return {"low": (apart < -divergence_low) & (advantages <= 0), "high": (apart > divergence_high) & (advantages > 0)}


def kl_mask(ratio: Tensor, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, ratio_cap: float,
            divergence_low: float, divergence_high: float) -> Tensor:
    """S = sg(min(ρ, c)) A log π, 0 for the tokens of `kl_cut`. (B, T) four times -> (B, T)

    In reward · nat: only its gradient means something.

    Source: Qi et al. 2026, arXiv:2602.04879, section 5 (DPPO, binary KL), as in verl.
    """
    cut = kl_cut(ratio, advantages, old_logprobs, divergence_low, divergence_high)
    return _weighed(ratio, logprobs, advantages, ratio_cap, cut)


def kl_cut(ratio: Tensor, advantages: Tensor, old_logprobs: Tensor, divergence_low: float,
           divergence_high: float) -> dict[str, Tensor]:
    """cut = KL > δ_low, ρ < 1 and A ≤ 0, or KL > δ_high, ρ > 1 and A > 0. (B, T) x 3 -> {"low", "high"} of bool (B, T)

    KL = q log(q/p) + (1−q) log((1−q)/(1−p)) in nats, q = π_old and p = π of this token.
    """
    ratio = ratio.detach()
    old = old_logprobs.exp()
    rest = ((1 - old + NEAR) / (1 - old * ratio + NEAR).clamp(min=NEAR)).log()
    divergence = -old * ratio.clamp(min=torch.finfo(ratio.dtype).tiny).log() + (1 - old) * rest
    return {"low": (divergence > divergence_low) & (ratio < 1) & (advantages <= 0),
            "high": (divergence > divergence_high) & (ratio > 1) & (advantages > 0)}


def _weighed(ratio: Tensor, logprobs: Tensor, advantages: Tensor, ratio_cap: float, cut: dict[str, Tensor]) -> Tensor:
    kept = ~(cut["low"] | cut["high"])
    return ratio.detach().clamp(max=ratio_cap) * advantages * logprobs * kept


def quadratic(ratio: Tensor, logprobs: Tensor, advantages: Tensor, pull: float) -> Tensor:
    """S = A log π − ½ β log² ρ. (B, T), (B, T), (B, T) -> (B, T)

    In reward · nat; β = `pull` in reward per nat. Its gradient is that of A at ρ = 1 and pulls a token back in
    proportion to log ρ: it stops at log ρ = A/β, and no token is cut off.

    Source: Richemond et al. 2024, arXiv:2405.19107 (DRO), by tokens and with a given advantage as in verl.
    """
    log_ratio = ratio.clamp(min=torch.finfo(ratio.dtype).tiny).log()
    return advantages * logprobs - pull / 2 * log_ratio ** 2


def future_weight(ratio: Tensor, advantages: Tensor, completion_mask: Tensor, future_half_life: float,
                  future_range: float, future_safety: float) -> Tensor:
    """f_t = clip(exp Σ_{s≥t} γ^(s−t) log ρ_s, 1, 1 + r), no gradient. (B, T), (B, T), bool (B, T) -> (B, T)

    Without a unit; γ = 2^(−1/h), h = `future_half_life` in tokens, r = `future_range`. Where A < 0 and ρ >
    `future_safety` it is at most 1.

    Source: arXiv:2603.19835, 2026 (FIPO), with weights from 1 on, ms-swift's default.
    """
    ratio = ratio.detach()
    log_ratio = torch.where(completion_mask, ratio.clamp(min=torch.finfo(ratio.dtype).tiny).log(), 0)
    gamma, to_come, found = 2 ** (-1 / future_half_life), torch.zeros_like(log_ratio[:, 0]), []
    for at in reversed(range(log_ratio.shape[1])):
        to_come = log_ratio[:, at] + gamma * to_come
        found.append(to_come)
    weight = torch.stack(found[::-1], 1).exp().clamp(1, 1 + future_range)
    return torch.where((advantages < 0) & (ratio > future_safety), weight.clamp(max=1), weight)
