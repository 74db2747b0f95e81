"""Losses on pairs, one function each, of the log-ratios to the reference.

c = log π(y_w)/π_ref(y_w) of the chosen, r = log π(y_l)/π_ref(y_l) of the rejected completion, both summed over its
tokens; Δ = c − r. A loss takes (c, r, β) and gives one number per pair; the mean over pairs is the caller's.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid


def sigmoid(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = −log σ(βΔ). (B,), (B,) -> (B,)

    In nats; log-ratios in nats per sequence, `beta` in 1/nat. At π = π_ref it is log 2.

    Source: Rafailov et al. 2023, arXiv:2305.18290, eq. 7.
    """
    delta = log_ratio_chosen - log_ratio_rejected
    return -logsigmoid(beta * delta)


def ipo(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = (Δ − 1/(2β))². (B,), (B,) -> (B,)

    In nats²; log-ratios in nats per sequence, `beta` in 1/nat. The margin it aims at is 1/(2β): it does not grow
    without end where a preference is certain.

    Source: Azar et al. 2023, arXiv:2310.12036, eq. 17.
    """
    delta = log_ratio_chosen - log_ratio_rejected
    return (delta - 1 / (2 * beta)) ** 2
