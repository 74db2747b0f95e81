"""A share of successes among independent tries, with its exact interval."""

from __future__ import annotations

from collections.abc import Callable
from math import lgamma

import numpy as np

HALVINGS = 60


def interval(right: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """The Clopper–Pearson interval of `right` of `count`: the shares under which that is not too rare on either side.

    Source: Clopper and Pearson 1934, Biometrika 26:404.

    >>> [round(edge, 4) for edge in interval(8, 10)], interval(0, 0)
    ([0.4439, 0.9748], (0.0, 1.0))
    """
    if not 0 <= right <= count:
        raise ValueError(f"{right} of {count} is no share")
    tail = (1 - level) / 2
    low = _solve(lambda p: _at_least(right, count, p) - tail) if right else 0.0
    high = 1 - _solve(lambda p: _at_least(count - right, count, p) - tail) if right < count else 1.0
    return low, high


def _at_least(right: int, count: int, p: float) -> float:
    """P(X ≥ right) of X ~ Binomial(count, p); it rises with p."""
    found = np.arange(right, count + 1)
    ways = np.array([lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1) for k in found])
    return float(np.exp(ways + found * np.log(p) + (count - found) * np.log1p(-p)).sum())


def _solve(rising: Callable[[float], float]) -> float:
    """Where a rising function of p in (0, 1) is 0."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2
