"""Weights by which the prompts of a pool are drawn. (N,) -> (N,), not normalised; 0: not drawn.

`rates` (N,) are pass rates p, shares of accepted completions, NaN for a prompt that was never tried. `progress` is the
share of the curriculum that is done, from 0 to 1.
"""

from __future__ import annotations

from math import ceil

import torch
from torch import Tensor

FIRST = 0.25  # share of the pool with which a curriculum by pass rate begins


def uniform(rates: Tensor) -> Tensor:
    """w = 1."""
    return torch.ones_like(rates)


def band(rates: Tensor, band_low: float, band_high: float) -> Tensor:
    """w = 1 where p_low ≤ p ≤ p_high, or where p is not known.

    Source: Yu et al. 2025, arXiv:2503.14476, section 3.2, filters after sampling with the band 0 < p < 1; here prompts
    are chosen before, by what earlier steps measured.
    """
    return (rates.isnan() | ((rates >= band_low) & (rates <= band_high))).to(rates)


def learnable(rates: Tensor) -> Tensor:
    """w = p (1 − p), the variance of a reward of 0 or 1; ¼, the largest, where p is not known.

    Source: Foster et al. 2025, arXiv:2502.12272 (learnability).
    """
    return (rates * (1 - rates)).nan_to_num(0.25)


def easy_first(rates: Tensor, progress: float) -> Tensor:
    """w = 1 for the ⌈N (¼ + ¾ progress)⌉ prompts of the highest p, unknown ones first; of equal ones the first."""
    count = ceil(len(rates) * (FIRST + (1 - FIRST) * min(progress, 1.0)))
    weights = torch.zeros_like(rates)
    weights[rates.nan_to_num(2.0).argsort(descending=True, stable=True)[:count]] = 1
    return weights


def by_level(levels: Tensor, progress: float) -> Tensor:
    """w = 1 where the level is at most low + (high − low) progress, of the pool's lowest and highest level."""
    low, high = levels.min(), levels.max()
    return (levels <= low + (high - low) * min(progress, 1.0)).to(levels)


CHOICES = {function.__name__: function for function in (uniform, band, learnable, easy_first, by_level)}


def newer_rate(rate: float | None, found: float) -> float:
    """(p + p_new)/2, so that the newest group counts half; p_new where nothing was known."""
    return found if rate is None else (rate + found) / 2
