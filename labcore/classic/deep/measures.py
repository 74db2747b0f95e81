"""The metrics and pictures of an update: the distance that the policy moved, the surrogates, the critic's error."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from labcore.classic.deep.credit import TrainingBatch, log_prob
from labcore.classic.deep.distributions import Distribution
from labcore.classic.deep.session import DeepSession
from labcore.maths.masked import masked_mean
from labcore.maths.returns import explained_variance
from labcore.maths.surrogates import clip, clip_cut, cpi, cut_fractions, kl_penalty


def surrogates(policy: Distribution, data: TrainingBatch, bounds: Mapping[str, float]) -> dict[str, float]:
    """KL(π_old ‖ π) in nats, the three surrogates, and the largest ratio."""
    ratio, advantages = _ratio(policy, data), data.advantages
    kl, sides = data.old.kl(policy), (bounds["clip_low"], bounds["clip_high"])
    found = {"kl/step": kl, "surrogate/cpi": cpi(ratio, advantages), "surrogate/clip": clip(ratio, advantages, *sides),
             "surrogate/kl_penalised": kl_penalty(ratio, advantages, kl, bounds["beta"])}
    return {**{key: float(value.mean()) for key, value in found.items()}, "ratio/max": float(ratio.max())}


def cut_off(policy: Distribution, data: TrainingBatch, bounds: Mapping[str, float]) -> dict[str, float]:
    """The shares of the steps whose gradient the clip cuts off."""
    ratio = _ratio(policy, data)
    cut = clip_cut(ratio, data.advantages, bounds["clip_low"], bounds["clip_high"])
    shares = cut_fractions(cut, torch.ones_like(ratio, dtype=torch.bool))
    return {f"clip_frac/{side}": float(share) for side, share in shares.items()}


def _ratio(policy: Distribution, data: TrainingBatch) -> Tensor:
    """ρ = π/π_old of the actions taken. (N,)"""
    return (policy.log_prob(data.actions) - data.old_logprobs).exp()


def said(policy: Distribution) -> dict[str, float]:
    """The policy's mean entropy in nats, and the spread of continuous actions, as metrics."""
    return {"entropy/action": float(policy.entropy().mean()), **policy.spread()}


@torch.no_grad()
def moved(session: DeepSession, data: TrainingBatch) -> dict[str, float]:
    """KL(π_old ‖ π) of an update on its own batch, in nats. To be called right after the update, while `data` still
    holds the policy from before it."""
    return {"kl/step": float(data.old.kl(session.policy.distribution(data.observations)).mean())}


def explained(data: TrainingBatch) -> dict[str, float]:
    """The share of the returns that the critic predicted, before it learnt from them, and the size of its error."""
    everything = torch.ones_like(data.returns, dtype=torch.bool)
    share = explained_variance(data.old_values, data.returns, everything)
    return {"explained_variance": float(share),
            "td_error": float(masked_mean((data.returns - data.old_values).abs(), everything))}


def scatter(data: TrainingBatch, points: int = 200) -> dict[str, list[float]]:
    """The critic's values and the returns, for at most `points` steps evenly spread: a picture of its error."""
    return _spread({"values": data.old_values, "returns": data.returns}, points)


@torch.no_grad()
def ratios(session: DeepSession, data: TrainingBatch, points: int = 200) -> dict[str, list[float]]:
    """π/π_old as the updates left it, and the advantage, for at most `points` steps evenly spread."""
    ratio = (log_prob(session, data) - data.old_logprobs).exp()
    return _spread({"ratio": ratio, "advantage": data.advantages}, points)


def _spread(columns: dict[str, Tensor], points: int) -> dict[str, list[float]]:
    count = len(next(iter(columns.values())))
    rows = torch.linspace(0, count - 1, min(points, count)).long()
    return {name: column[rows.to(column.device)].double().cpu().numpy().round(4).tolist()
            for name, column in columns.items()}
