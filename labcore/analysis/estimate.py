"""An estimate over seeds: a contrast of settings' means, its interval, and whether it lies in a region.

Every verdict over seeds follows this one rule: those of Compare, of studies and of lessons. The interval is Welch's:
seeds are independent, and settings may differ in their spread. With three seeds it is wide, and it should be: the
percentile bootstrap, which draws the bands of curves, is too narrow there, and a permutation test of three against
three never has p below 0.1. Left out: pairing settings by seed, since equal seeds do not make different algorithms see
equal luck.

Sources: Welch 1947, Biometrika 34:28; Satterthwaite 1946, Biometrics Bulletin 2:110; Colas et al. 2019,
arXiv:1904.06979 (which test for few seeds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
# Seeds of each setting for a verdict. Where a run either learns or does not, each with probability ½, two seeds against
# two differ fully by chance in one case of 8, three against three in one of 32.
FEWEST = 3
POWER, MOST = 0.8, 200  # share of repetitions that decide with the estimated seeds, and the largest estimate


@dataclass(frozen=True)
class Estimate:
    """A contrast over `seeds` (the fewest of its settings); no interval where a setting has fewer than three."""

    mean: float
    low: float | None
    high: float | None
    seeds: int


def level_of(contrasts: int) -> float:
    """The level of each of so many deciding intervals, such that all hold together with LEVEL (Bonferroni)."""
    return 1 - (1 - LEVEL) / max(contrasts, 1)


def estimate(values: Mapping[str, Sequence[float] | np.ndarray], weights: Mapping[str, float],
             level: float = LEVEL) -> Estimate:
    """Σ w_i μ_i of settings' means; `values` has a number per seed for each setting in `weights`.

    >>> round(estimate({"A": [1, 2, 6]}, {"A": 1.0}).high, 2)  # 3 + 4.303 √(7/3): of one setting it is Student's
    9.57
    """
    groups = [np.asarray(values[label], float) for label in weights]
    found = [None if part is None else float(part) for part in contrast(groups, [*weights.values()], level)]
    assert found[0] is not None
    return Estimate(found[0], found[1], found[2], min(map(len, groups)))


def contrast(groups: Sequence[np.ndarray], weights: Sequence[float],
             level: float = LEVEL) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """(Σ w_i x̄_i, low, high) of groups (S_i, …), a seed in each row: Σ w_i x̄_i ± t_ν √(Σ w_i² s_i² / n_i).

    ν are the Welch–Satterthwaite degrees of freedom. NaN where not all seeds have a number; no interval with fewer
    than FEWEST seeds, because with two seeds it would be too wide to be of use.
    """
    middle = np.asarray(sum(weight * group.mean(0) for weight, group in zip(weights, groups, strict=True)))
    if min(map(len, groups)) < FEWEST:
        return middle, None, None
    from scipy.special import stdtrit  # a quarter of a second, which the first page need not wait for

    variance, freedom = _spread(groups, weights)
    reach = stdtrit(freedom, (1 + level) / 2) * np.sqrt(variance)
    return middle, middle - reach, middle + reach


def p_value(a: np.ndarray, b: np.ndarray) -> float:
    """The p value of Welch's test of equal means, two-sided: (S,), (U,) -> 1. It is 1 where a side has one seed."""
    if min(len(a), len(b)) < 2 or a.mean() == b.mean():
        return 1.0
    from scipy.special import stdtr

    variance, freedom = _spread([a, b], [1.0, -1.0])
    return float(2 * stdtr(freedom, -abs(a.mean() - b.mean()) / np.sqrt(variance))) if variance else 0.0


def _spread(groups: Sequence[np.ndarray], weights: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """(Σ v_i, ν) where v_i = w_i² s_i² / n_i and ν = (Σ v_i)² / Σ v_i² / (n_i − 1); 1 where nothing varies."""
    parts = np.array([weight ** 2 * group.var(0, ddof=1) / len(group)
                      for weight, group in zip(weights, groups, strict=True)])
    variance = parts.sum(0)
    divisor = sum(part ** 2 / (len(group) - 1) for part, group in zip(parts, groups, strict=True))
    return variance, np.divide(variance ** 2, divisor, out=np.ones_like(variance), where=divisor > 0)


def seeds_needed(found: Estimate, low: float, high: float, settings: int, level: float = LEVEL) -> int | None:
    """The fewest seeds of each setting with which `within` would decide in four of five repetitions, if the contrast
    and the spread are as they were found; None if that is more than MOST.

    With n seeds of each of k settings the interval reaches t_ν s / √n from the mean, ν = k (n − 1), where s is taken
    from the interval that was `found`. It decides with probability POWER where the distance to the nearest edge is
    (t_ν + z_POWER) s / √n. `settings` is k; edges are in the unit of the contrast.

    Source: Cohen 1988, Statistical Power Analysis, chapter 2 (normal approximation of the power).
    """
    if found.low is None or found.high is None:
        return FEWEST
    from scipy.special import ndtri, stdtrit

    distance = min(abs(found.mean - edge) for edge in (low, high) if np.isfinite(edge))
    reach = stdtrit(settings * (found.seeds - 1), (1 + level) / 2)
    spread = (found.high - found.low) / 2 / reach * np.sqrt(found.seeds)
    seeds = np.arange(FEWEST, MOST + 1)
    enough = (stdtrit(settings * (seeds - 1), (1 + level) / 2) + ndtri(POWER)) * spread <= distance * np.sqrt(seeds)
    return int(seeds[enough.argmax()]) if enough.any() else None


def within(found: Estimate, low: float, high: float) -> bool | None:
    """True if the whole interval of a contrast lies between `low` and `high` (exclusive), False if no part of it does,
    None if some part does or if there are fewer than three seeds."""
    if found.low is None or found.high is None or found.seeds < FEWEST:
        return None
    if low < found.low and found.high < high:
        return True
    return False if found.high <= low or found.low >= high else None
