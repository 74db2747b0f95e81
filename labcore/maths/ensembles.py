"""One reward of the scores that several reward models, or other sources, give. Scores are (K, B): K models, B
completions.

Members that were trained on other pairs agree where they have seen much and part where they have not: there a policy
finds scores that are too high. What K models make of a completion is held down where they disagree.

Source: Coste et al. 2023, arXiv:2310.02743.
"""

from __future__ import annotations

import torch
from torch import Tensor


def mean(scores: Tensor) -> Tensor:
    """R = 1/K Σ_k r_k. (K, B) -> (B,)"""
    return scores.mean(0)


def worst_case(scores: Tensor) -> Tensor:
    """R = min_k r_k. (K, B) -> (B,)"""
    return scores.amin(0)


def uncertainty_weighted(scores: Tensor, uncertainty_weight: float) -> Tensor:
    """R = r̄ − λ 1/K Σ_k (r_k − r̄)². (K, B) -> (B,)

    In reward; λ = `uncertainty_weight` per unit of reward.
    """
    return scores.mean(0) - uncertainty_weight * scores.var(0, correction=0)


def spread(scores: Tensor) -> Tensor:
    """The standard deviation among the models. (K, B) -> (B,) reward"""
    return scores.std(0, correction=0)


def weighted_sum(parts: Tensor, weights: Tensor) -> Tensor:
    """R = Σ_k w_k r_k over the rewards that were given, NaN where none was. (K, B), (K,) -> (B,)

    In reward. A reward that is NaN was not given, and counts nothing; one of weight 0 was.

    Source: TRL 1.16, `GRPOTrainer._generate_and_score_completions`, "sum_then_normalize".
    """
    return (parts * weights[:, None]).nansum(0).masked_fill(parts.isnan().all(0), torch.nan)
