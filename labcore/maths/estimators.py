"""Quality of a gradient estimate, from draws of the estimate and the true gradient.

An estimate g of the true gradient t has a bias, |E g − t|², a variance, tr Cov g, and a share of signal. Estimates have
different scales: one divided by a standard deviation is longer everywhere, which a lower learning rate compensates. So
each is also judged without its scale: E g = s t + r with r orthogonal to t, and r/s is the bias that no learning rate
compensates.

|E g|² is estimated from pairs of different draws, so that it does not contain the noise of the mean. An unbiased
estimate then has a bias² around 0, sometimes below. Intervals are those of the jackknife: every quantity is a function
of a few sums over draws, and each draw is left out in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

NORMAL = 1.96  # standard errors on each side of an interval of 95 %
SEEN = 3.0  # standard errors from 0 at which a bias is called one: among many rows some reach 2 by chance


class Interval(NamedTuple):
    """An estimate and its interval of 95 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Quality:
    """The quality of an estimator by draws of a gradient, in units of |t|² or of nothing.

    `bias` is |E g − t|²/|t|²; `scale` is s; `turned` is |r/s|²/|t|², the bias that is left after scaling; `variance` is
    tr Cov g/|t|², and `noise` the same after scaling; `signal` is |s t|²/(tr Cov g · n), what one of the n samples of a
    draw tells; `cosine` is that of the mean with t (by noise it may be above 1; no number where |E g|² is lost in the
    noise), `cosines` the mean of the draws' own (0 for a draw that is 0).
    """

    bias: Interval
    turned: Interval
    scale: Interval
    variance: Interval
    noise: Interval
    signal: Interval
    cosine: Interval
    cosines: Interval
    biased: bool
    turns: bool


def quality(draws: Tensor, truth: Tensor, samples: float) -> Quality:
    """Judge `draws` (M, N) of an estimate of `truth` (N,); each was made from `samples` samples. M ≥ 3, |t| > 0.

    Source: Hoeffding 1948, Annals of Mathematical Statistics 19:293 (|E g|² from pairs); Efron and Stein 1981, Annals
    of Statistics 9:586 (the jackknife's variance).
    """
    draws, truth = draws.double(), truth.double()
    along, squared, total = draws @ truth, (draws**2).sum(1), draws.sum(0)
    with_total = draws @ total
    count = len(draws)

    def found(left: Tensor) -> dict[str, Tensor]:
        """All quantities, each draw of `left` (0 or 1 for each of K cases) left out. (K,) each"""
        return _quantities(count - left, along.sum() - left * along, (along**2).sum() - left * along**2,
                           squared.sum() - left * squared, total @ total - left * (2 * with_total - squared),
                           truth @ truth, samples)

    whole, without = found(torch.zeros_like(along)), found(torch.ones_like(along))
    errors = {name: float(((values - values.mean()) ** 2).sum() * (count - 1) / count) ** 0.5
              for name, values in without.items()}
    values = {name: float(each[0]) for name, each in whole.items()}
    cosines = along / (squared.sqrt() * truth.norm()).clamp(min=1e-300)
    values["cosines"], errors["cosines"] = float(cosines.mean()), float(cosines.std()) / count**0.5
    return Quality(**{name: Interval(value, value - NORMAL * errors[name], value + NORMAL * errors[name])
                      for name, value in values.items()},
                   biased=_seen(values["bias"], errors["bias"]), turns=_seen(values["turned"], errors["turned"]))


def _quantities(count: Tensor, along: Tensor, along_squared: Tensor, squared: Tensor, total_squared: Tensor,
                length: Tensor, samples: float) -> dict[str, Tensor]:
    """The quantities of `Quality` from sums over draws: n, Σ g·t, Σ (g·t)², Σ |g|², |Σ g|², and from |t|². (K,) each"""
    pairs = count * (count - 1)
    scale = along / (count * length)
    mean_squared = (total_squared - squared) / pairs
    variance = (squared - total_squared / count) / (count - 1)
    turned = mean_squared - (along**2 - along_squared) / pairs / length
    return {"bias": (mean_squared - 2 * along / count + length) / length, "turned": turned / (scale**2 * length),
            "scale": scale, "variance": variance / length, "noise": variance / (scale**2 * length),
            "signal": scale**2 * length / (variance * samples),
            "cosine": scale * length.sqrt() / mean_squared.sqrt()}  # not cut at 1: its interval would have no width


def _seen(value: float, error: float) -> bool:
    return value > SEEN * error and value > 1e-9  # below is rounding, where draws do not differ at all
