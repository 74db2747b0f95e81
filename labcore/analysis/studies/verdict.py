"""What the runs say of a claim: an interval for each contrast, and whether it lies where the claim says.

The interval is Welch's: seeds are independent, and settings may differ in their spread. With three seeds it is wide,
and it should be: the percentile bootstrap of three values, which draws the bands of Compare, is too sure of itself to
decide a claim. The deciding contrasts of a study share 5 % of error between them (Bonferroni), so that all of their
intervals hold together with 95 %. Left out: pairing by seed, as in `labcore.analysis.compare.statistics`.

Source: Welch 1947, Biometrika 34:28; Satterthwaite 1946, Biometrics Bulletin 2:110.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from labcore.analysis.compare.statistics import FEWEST, LEVEL

Verdict = Literal["agrees", "disagrees", "unclear"]
WORDS: dict[Verdict, str] = {"agrees": "agrees", "disagrees": "disagrees", "unclear": "cannot tell at this scale"}
_POINTS = 10_001  # of the angle that Student's t is integrated over


@dataclass(frozen=True)
class Estimate:
    """A contrast over `seeds` (the fewest of its settings) with its interval; None where a setting has one seed."""

    mean: float
    low: float | None
    high: float | None
    seeds: int


def interval_text(found: Estimate, digits: int) -> str:
    """
    >>> interval_text(Estimate(-0.5, -0.75, 0.25, 3), 2), interval_text(Estimate(4.0, 4.0, 4.0, 3), 0)
    ('−0.50 [−0.75, 0.25]', '4')
    """
    said = f"{found.mean:.{digits}f}"
    if found.low is not None and found.low != found.high:
        said += f" [{found.low:.{digits}f}, {found.high:.{digits}f}]"
    return said.replace("-", "−")


def level_of(contrasts: int) -> float:
    """The level of each of so many deciding intervals, such that all hold together with LEVEL."""
    return 1 - (1 - LEVEL) / max(contrasts, 1)


def estimate(values: Mapping[str, Sequence[float]], weights: Mapping[str, float], level: float = LEVEL) -> Estimate:
    """Σ w_i μ_i of settings' means, with its interval at `level`: Σ w_i x̄_i ± t_ν √(Σ w_i² s_i² / n_i).

    ν are the Welch–Satterthwaite degrees of freedom. `values` has a number per seed for each setting in `weights`.
    """
    groups = [(weight, np.asarray(values[label], float)) for label, weight in weights.items()]
    mean = float(sum(weight * group.mean() for weight, group in groups))
    fewest = min(group.size for _, group in groups)
    if fewest < 2:
        return Estimate(mean, None, None, fewest)
    parts = np.array([weight ** 2 * group.var(ddof=1) / group.size for weight, group in groups])
    total = float(parts.sum())
    if not total:  # a count, say: there is nothing to be unsure of
        return Estimate(mean, mean, mean, fewest)
    freedom = total ** 2 / float((parts ** 2 / np.array([group.size - 1 for _, group in groups])).sum())
    reach = t_quantile((1 + level) / 2, freedom) * total ** 0.5
    return Estimate(mean, mean - reach, mean + reach, fewest)


def judged(found: Estimate, low: float, high: float) -> Verdict:
    """Whether a contrast lies in the region `low` to `high`, edges left out: all of its interval does ("agrees"), none
    of it ("disagrees"), or some ("unclear"). Unclear as well with fewer than three seeds."""
    if found.low is None or found.high is None or found.seeds < FEWEST:
        return "unclear"
    if low < found.low and found.high < high:
        return "agrees"
    return "disagrees" if found.high <= low or found.low >= high else "unclear"


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """That of a claim with several parts: it agrees where all do, and disagrees where one does."""
    found = set(verdicts)
    return "disagrees" if "disagrees" in found else "agrees" if found == {"agrees"} else "unclear"


@cache
def t_quantile(share: float, freedom: float) -> float:
    """The quantile of Student's t with `freedom` ≥ 1 degrees of freedom: with t = √ν tan θ the density of θ is
    proportional to cos^{ν−1} θ on (−π/2, π/2), which is integrated by the trapezoid rule.

    >>> round(t_quantile(0.975, 4), 3), round(t_quantile(0.975, 2), 3)
    (2.776, 4.303)
    """
    angles = np.linspace(-np.pi / 2, np.pi / 2, _POINTS)
    density = np.cos(angles).clip(0) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return float(freedom ** 0.5 * np.tan(np.interp(share, below / below[-1], angles)))
