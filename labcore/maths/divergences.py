"""f-DPO: the quantities that replace log-ratios in a preference loss with another divergence than the reverse KL.

With a penalty D_f(π ‖ π_ref) a policy implies the reward β f'(u), u = π/π_ref, and a constant of the prompt (Wang et
al. 2023, arXiv:2309.16240). The constant cancels in the difference of a pair's two sides, so only losses of that
difference take another divergence; where each side is divided by its length it cancels for equal lengths. Each f' is
0 at u = 1: a policy that has not moved implies no reward.
"""

from __future__ import annotations

from math import log

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

MOST = 80.0  # nats, in an exponential: beyond, float32 overflows


def reverse_kl(log_ratios: Tensor) -> Tensor:
    """f' = log u: the log-ratios as they are, DPO's own. (...) -> (...)

    In nats.
    """
    return log_ratios


def forward_kl(log_ratios: Tensor) -> Tensor:
    """f' = 1 − 1/u. (...) -> (...)

    Without a unit. What the reference can write must stay possible: log-ratios below 0 count exponentially.
    """
    return -torch.expm1((-log_ratios).clamp(max=MOST))


def jensen_shannon(log_ratios: Tensor) -> Tensor:
    """f' = log(2u/(1+u)). (...) -> (...)

    In nats. At most log 2: beyond some gain a completion counts no more. Its slope at u = 1 is ½, not 1.
    """
    return log(2) + logsigmoid(log_ratios)


def alpha(log_ratios: Tensor, divergence_alpha: float) -> Tensor:
    """f' = (u^(α−1) − 1)/(α−1); log u at α = 1. (...) -> (...)

    Without a unit. Between the forward KL (α = 0) and the reverse KL (α = 1), and beyond. α is TRL's: 1 − the
    paper's.
    """
    power = divergence_alpha - 1
    return log_ratios if abs(power) < 1e-6 else torch.expm1((power * log_ratios).clamp(max=MOST)) / power
