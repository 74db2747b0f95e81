"""The loss of a reward model on pairs, and how well its scores foretell which of two completions is chosen.

r_w is the score of the chosen, r_l that of the rejected completion; P(w ≻ l) = σ(r_w − r_l) is Bradley's and Terry's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def bradley_terry(chosen: Tensor, rejected: Tensor, margin: float | Tensor = 0.0, centering: float = 0.0) -> Tensor:
    """L = −log σ(r_w − r_l − m) + c (r_w + r_l)². (B,), (B,) -> (B,)

    In nats; scores and margin, one for all pairs or one for each (B,), in units of reward. The mean over pairs is the
    caller's. Preferences only see the difference of two scores: the second term holds their mean at 0. With equal
    scores and m = 0 it is log 2.

    Source: Bradley and Terry 1952, Biometrika 39:324; margin: Touvron et al. 2023, arXiv:2307.09288, eq. 2; centring:
    Eisenstein et al. 2023, arXiv:2312.09244.
    """
    return -logsigmoid(chosen - rejected - margin) + centering * (chosen + rejected) ** 2


@dataclass(frozen=True)
class Calibration:
    """Of bins of predicted probability, empty ones left out: the mean prediction, the share of pairs that were chosen
    so, and the number of pairs (each (K,)); `error` is the expected calibration error.
    """

    predicted: Tensor
    right: Tensor
    pairs: Tensor
    error: float


def calibration(margins: Tensor, bins: int = 10) -> Calibration:
    """Predicted probability of the likelier side against the share of pairs in which it was chosen.

    margins: (N,) r_w − r_l of the labels. The likelier side has p = σ(|margin|), from ½ to 1, in `bins` equal bins;
    it was chosen where the margin is above 0, and in half of the pairs at 0. Error: Σ_k n_k/N |p_k − right_k|.

    Source: Naeini et al. 2015, AAAI, eq. 3.
    """
    predicted = torch.sigmoid(margins.double().abs())
    right = (margins > 0).double() + (margins == 0).double() / 2
    place = ((predicted - 0.5) * 2 * bins).long().clamp(max=bins - 1)
    pairs, mean, share = (predicted.new_zeros(bins).index_add_(0, place, column)
                          for column in (torch.ones_like(predicted), predicted, right))
    there = pairs > 0
    mean, share, pairs = mean[there] / pairs[there], share[there] / pairs[there], pairs[there]
    return Calibration(mean, share, pairs, float(((mean - share).abs() * pairs).sum() / len(margins)))


def correlation(x: Tensor, y: Tensor) -> float:
    """Pearson's correlation of two (N,) columns; NaN where one of them does not vary."""
    x, y = x.double() - x.double().mean(), y.double() - y.double().mean()
    return float((x * y).sum() / (x.norm() * y.norm()))
