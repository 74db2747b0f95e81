"""Groups of runs in numbers: means with their bands, shares with their intervals, and whether one group beats another.

Every run is one observation. For a band a group's seeds are drawn again with replacement, 2000 times, always alike;
`scipy.stats.bootstrap` gives the same numbers, but takes 0.7 s to load and a hundred times as long for a curve of three
seeds. Verdicts follow the rule of `labcore.analysis.estimate`.

Source: Agarwal et al. 2021, arXiv:2108.13264 (probability of improvement, percentile bootstrap).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Literal

import numpy as np

from labcore.analysis.estimate import FEWEST, LEVEL, estimate, p_value, within

# ---------------------------------------------------------------- variance
# Analysis of variance of one number for each run: what a factor explains of it, and what chance between repetitions.
#
# Sums of squares of parts are divided by their degrees of freedom: without that pure noise with two seeds a setting
# would seem half explained by settings, and a factor of many values would seem to matter. Letters: N runs in k parts, y
# a run's number, ȳ the mean of all, ȳ_g that of a part.

Part = Sequence[float]

LAST = 5  # steps; a run's value is the mean of the rows in them, so that rare rows do not reach back further


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

    For pure noise it is 1 on average, and may be above 1 by chance. None if no part has two runs.

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
    """MSE: the mean square within settings. If no setting has two runs, it is the mean square that the factors alone do
    not explain, so their joint effects count as noise; None if no degrees of freedom are left."""
    if settings.of_within:
        return settings.within / settings.of_within
    left = settings.of_total - sum(factor.of_between for factor in factors)
    rest = settings.total - sum(factor.between for factor in factors)
    return max(0.0, rest) / left if left > 0 else None


# ---------------------------------------------------------------- proportion
# A share of successes among independent tries, with its exact interval.

def interval(right: int, count: int, level: float = LEVEL) -> tuple[float, float]:
    """The Clopper–Pearson interval of `right` of `count`: the shares under which that is not too rare on either side.

    Source: Clopper and Pearson 1934, Biometrika 26:404.

    >>> [round(edge, 4) for edge in interval(8, 10)], interval(0, 0)
    ([0.4439, 0.9748], (0.0, 1.0))
    """
    if not 0 <= right <= count:
        raise ValueError(f"{right} of {count} is no share")
    from scipy.special import betaincinv  # a quarter of a second, which the first page need not wait for

    tail = (1 - level) / 2
    low = float(betaincinv(right, count - right + 1, tail)) if right else 0.0
    high = float(betaincinv(right + 1, count - right, 1 - tail)) if right < count else 1.0
    return low, high


# ---------------------------------------------------------------- statistics

RESAMPLES = 2000

Verdict = Literal["A", "B", "tie", "none"]
_MIRRORED: dict[Verdict, Verdict] = {"A": "B", "B": "A", "tie": "tie", "none": "none"}


@dataclass(frozen=True)
class Mean:
    """A mean over `count` seeds with its 95 % band; the band is None for fewer than three."""

    mean: float
    low: float | None
    high: float | None
    count: int


@dataclass(frozen=True)
class Comparison:
    """A against B. `p` is P(A > B) over the seeds, with its 95 % interval from three seeds a side on. `p_value` is
    that of Welch's test of equal means, which decides.
    """

    p: float
    low: float | None
    high: float | None
    p_value: float
    verdict: Verdict

    @property
    def p_value_text(self) -> str:
        return "p < 0.01" if self.p_value < 0.005 else f"p = {self.p_value:.2f}"

    @property
    def mirrored(self) -> Comparison:
        """B against A."""
        low, high = None if self.high is None else 1 - self.high, None if self.low is None else 1 - self.low
        return Comparison(1 - self.p, low, high, self.p_value, _MIRRORED[self.verdict])


def mean(values: np.ndarray) -> Mean:
    """The mean of (S,) values, one per seed, with its band. Raises ValueError if there are no values."""
    values = np.asarray(values, float)
    if values.ndim != 1 or not values.size:
        raise ValueError("a mean needs at least one value")
    middle, low, high = band(values[:, None])
    return Mean(float(middle[0]), None if low is None else float(low[0]), None if high is None else float(high[0]),
                values.size)


def band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """(mean, low, high) over the S seeds of (S, G) values, (G,) each; NaN where not all seeds have one.

    The mean of the present seeds alone would jump wherever a seed ends. The band is the percentile bootstrap; None for
    fewer than three seeds. All places use the same draws, so that the band is a band of curves.
    """
    values = np.asarray(values, float)
    count = len(values)
    middle = values.mean(0)
    if count < FEWEST:
        return middle, None, None
    whole = np.isfinite(values).all(0)
    low, high = np.full(whole.shape, np.nan), np.full(whole.shape, np.nan)
    shares, times = _joint_draws(count)
    low[whole], high[whole] = _interval(shares @ values[:, whole], times)
    return middle, low, high


def difference(a: np.ndarray, b: np.ndarray) -> Mean:
    """mean(a) − mean(b) of (S,) and (U,) values, with the interval that a verdict is taken from. `count`: the fewer."""
    found = estimate({"A": a, "B": b}, {"A": 1.0, "B": -1.0})
    return Mean(found.mean, found.low, found.high, found.seeds)


def p_better(a: np.ndarray, b: np.ndarray) -> float:
    """P(A > B) = mean over all pairs of 1[a > b] + ½ 1[a = b]. (S,), (U,) -> 1"""
    return float(_wins(a, b).mean())


def comparison(a: np.ndarray, b: np.ndarray, better: str = "higher") -> Comparison:
    """A against B: (S,) and (U,) values, one per seed. With `better` "lower" the smaller value wins.

    The verdict is A or B if the interval of the difference of means does not contain 0, otherwise a tie. It is "none"
    if a side has fewer than three seeds.
    """
    sign = -1.0 if better == "lower" else 1.0
    a, b = sign * np.asarray(a, float), sign * np.asarray(b, float)
    low, high = None, None
    if min(a.size, b.size) >= FEWEST:
        rng = np.random.default_rng(0)
        shares = _draws(a.size, rng), _draws(b.size, rng)
        found = _interval(np.einsum("ra,ab,rb->r", shares[0], _wins(a, b), shares[1], optimize=True))
        low, high = float(found[0]), float(found[1])
    apart = estimate({"A": a, "B": b}, {"A": 1.0, "B": -1.0})
    verdict: Verdict = ("none" if apart.seeds < FEWEST else "A" if within(apart, 0, inf) else
                        "B" if within(apart, -inf, 0) else "tie")
    return Comparison(p_better(a, b), low, high, p_value(a, b), verdict)


def _wins(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(S, U): 1 where a beats b, ½ where they are equal."""
    a, b = np.asarray(a, float)[:, None], np.asarray(b, float)[None]
    won: np.ndarray = (a > b) + 0.5 * (a == b)
    return won


def redrawn(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The means of (S,) values, one per seed, when the seeds are drawn again: (RESAMPLES,)"""
    means: np.ndarray = _draws(values.size, rng) @ values
    return means


def _draws(count: int, rng: np.random.Generator) -> np.ndarray:
    """(RESAMPLES, count): how large a share each seed has in each draw of `count` seeds with replacement."""
    drawn = rng.integers(count, size=(RESAMPLES, count))
    shares: np.ndarray = (drawn[:, :, None] == np.arange(count)).sum(1) / count
    return shares


@cache
def _joint_draws(count: int) -> tuple[np.ndarray, np.ndarray | None]:
    """(D, count): the shares of the seeds in each draw, and how often it came, (D,).

    Few seeds have few draws that differ, which saves most of the work; of many all are kept, and nothing is counted.
    """
    drawn = _draws(count, np.random.default_rng(0))
    different, times = np.unique(drawn, axis=0, return_counts=True)
    return (different, times) if len(different) <= RESAMPLES // 8 else (drawn, None)


def _interval(drawn: np.ndarray, times: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The middle 95 % over the first axis, whose rows came so many `times`: once each if that is not said."""
    tail = (1 - LEVEL) / 2
    if times is None:
        low, high = np.quantile(drawn, (tail, 1 - tail), axis=0)
        return low, high
    order = np.argsort(drawn, axis=0)
    ordered, ranks = np.take_along_axis(drawn, order, axis=0), np.cumsum(times[order], axis=0)

    def at(share: float) -> np.ndarray:
        place = share * (times.sum() - 1)
        below, above = (np.take_along_axis(ordered, (ranks > rank).argmax(0)[None], axis=0)[0]
                        for rank in (np.floor(place), np.ceil(place)))
        between: np.ndarray = below + (above - below) * (place % 1)
        return between

    return at(tail), at(1 - tail)


def last_mean(steps: np.ndarray, values: np.ndarray) -> float:
    """The mean of the rows in the LAST steps up to the last row, itself one of them. (M,), (M,) in the order of the
    steps, M at least 1.

    >>> last_mean(np.array([1, 2, 3, 4, 5, 6]), np.arange(6)), last_mean(np.array([1, 10, 20]), np.arange(3))
    (3.0, 2.0)
    """
    return float(values[steps > steps[-1] - LAST].mean())


def last_means(first: float, steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`last_mean` at each row that has LAST steps of the run before it, and at the last row. `first`: the run's first
    step."""
    ends = np.arange(1, values.size + 1)
    begins = np.searchsorted(steps, steps - LAST, side="right")
    sums = np.add.reduceat(np.append(values, 0.0), np.stack([begins, ends], axis=1).ravel())[::2]
    whole = steps >= min(first + LAST - 1, steps[-1])
    means: np.ndarray = (sums / (ends - begins))[whole]
    return means
