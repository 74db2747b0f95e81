"""Sums, means and variances over the positions that count.

What stands where the mask is False is never read, so it may be anything, NaN included. Nothing to count is 0,
not NaN: a row without a counted token adds nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDED = 4  # units in the last place that a value of a few operations may be off


def masked_sum(values: Tensor, mask: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Σ_mask x. (...), bool (...) -> (), or (...) less `dim`.

    In the unit of `values`.
    """
    kept = torch.where(mask, values, torch.zeros_like(values))
    return kept.sum() if dim is None else kept.sum(dim, keepdim)


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Σ_mask x / n, with n = Σ mask, at least 1. (...), bool (...) -> (), or (...) less `dim`.

    In the unit of `values`.
    """
    count = mask.sum() if dim is None else mask.sum(dim, keepdim)
    return masked_sum(values, mask, dim, keepdim) / count.clamp(min=1)


def masked_var(values: Tensor, mask: Tensor, ddof: int = 1, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Σ_mask (x − mean)² / (n − ddof), with n − ddof at least 1. (...), bool (...) -> (), or (...) less `dim`.

    In the unit of `values`, squared. A single value has variance 0.
    """
    count = mask.sum() if dim is None else mask.sum(dim, keepdim)
    mean = masked_mean(values, mask, dim, keepdim=dim is not None)
    return masked_sum((values - mean) ** 2, mask, dim, keepdim) / (count - ddof).clamp(min=1)


def extremes(values: Tensor, dim: int | tuple[int, ...], mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The lowest and the highest over `dim`, which stays with size 1; without a mask of all that is not NaN.

    In the unit of `values`. Of nothing: (∞, −∞).
    """
    counts = ~values.isnan() if mask is None else mask
    return (torch.where(counts, values, torch.inf).amin(dim, keepdim=True),
            torch.where(counts, values, -torch.inf).amax(dim, keepdim=True))


def centred(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """x − mean_dim x, exactly 0 where all that counts is equal but for rounding, and where the mask is False. (...),
    bool (...) -> (...)

    In the unit of `values`. A mean in float32 can miss its equal terms by 1e-6, and 0.1 + 0.2 misses 0.3, which a
    standard deviation of 0 + eps would blow up to 0.01 and more.
    """
    lowest, highest = extremes(values, tuple(range(values.dim())) if dim is None else dim, mask)
    limits = torch.finfo(values.dtype)
    rounding = (ROUNDED * limits.eps * torch.maximum(highest.abs(), lowest.abs())).clamp(max=limits.max)
    differ = mask & (highest - lowest > rounding)
    return torch.where(differ, values - masked_mean(values, mask, dim, keepdim=dim is not None), 0)


def masked_whiten(values: Tensor, mask: Tensor, shift_mean: bool = True, ddof: int = 1, eps: float = 1e-8) -> Tensor:
    """(x − mean) / √(var + eps), 0 where the mask is False. (...), bool (...) -> (...)

    Without a unit. `shift_mean=False` keeps the mean: only the spread becomes 1.

    Source: Huang et al. 2024, arXiv:2403.17031 (whitening of rewards and advantages).
    """
    whitened = centred(values, mask) * torch.rsqrt(masked_var(values, mask, ddof) + eps)
    return whitened if shift_mean else torch.where(mask, whitened + masked_mean(values, mask), 0)
