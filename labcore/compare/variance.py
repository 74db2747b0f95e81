"""Analysis of variance of one number for each run: what a factor explains of it, and what chance between repetitions.

Sums of squares of parts are divided by their degrees of freedom: without that pure noise with two seeds a setting would
seem half explained by settings, and a factor of many values would seem to matter. Letters: N runs in k parts, y a run's
number, ȳ the mean of all, ȳ_g that of a part.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

Part = Sequence[float]


@dataclass(frozen=True)
class Sums:
    """Sums of squares and their degrees of freedom: SST = Σ (y − ȳ)² with N − 1, SSW = Σ_g Σ (y − ȳ_g)² with N − k."""

    total: float
    of_total: int
    within: float
    of_within: int

    @property
    def between(self) -> float:
        """SSB = SST − SSW, with k − 1."""
        return self.total - self.within

    @property
    def of_between(self) -> int:
        return self.of_total - self.of_within


def sums(parts: Collection[Part]) -> Sums:
    """The sums of squares of runs in parts, none of them empty."""
    every = np.concatenate([np.asarray(part, float) for part in parts]) if parts else np.zeros(0)
    within = sum(float(((np.asarray(part) - np.mean(part)) ** 2).sum()) for part in parts)
    total = float(((every - every.mean()) ** 2).sum()) if every.size else 0.0
    return Sums(total, max(every.size - 1, 0), within, every.size - len(parts))


def noise(parts: Collection[Part]) -> float | None:
    """(SSW / (N − k)) / (SST / (N − 1)) over parts of two or more: the variance within parts as a share of that of all.

    Of pure noise it is 1 on average, and may be above by chance. None where no part has two.

    >>> noise([[1, 3], [2, 4], [9]])  # the 9 is left out: (4 / 2) / (5 / 3)
    1.2
    """
    found = sums([part for part in parts if len(part) > 1])
    if not found.of_within:
        return None
    return (found.within / found.of_within) / (found.total / found.of_total) if found.total > 0 else 0.0


def omega_squared(factor: Sums, error: float) -> float:
    """ω² = (SSB − (k − 1) · MSE) / (SST + MSE), at least 0: the share of the variance that a factor explains, without
    what as many parts of pure noise would. `error` is MSE, the mean square that the factors leave.

    Source: Hays 1963, Statistics for Psychologists; Olejnik and Algina 2003, Psychological Methods 8(4).

    >>> omega_squared(sums([[0, 1, 0, 1], [2, 3, 2, 3]]), error=0.25)  # (8 - 0.25) / (10 + 0.25)
    0.7560975609756098
    """
    if factor.total <= 0:
        return 0.0
    return max(0.0, (factor.between - factor.of_between * error) / (factor.total + error))


def error_of(settings: Sums, factors: Sequence[Sums]) -> float | None:
    """MSE: the mean square within settings. Where no setting has two runs, what factors alone leave of all, so that
    what they do together counts as noise; None where they leave nothing."""
    if settings.of_within:
        return settings.within / settings.of_within
    left = settings.of_total - sum(factor.of_between for factor in factors)
    rest = settings.total - sum(factor.between for factor in factors)
    return max(0.0, rest) / left if left > 0 else None
