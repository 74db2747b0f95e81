"""Losses on preferences that look at each side by itself: how far it has gone from the reference, not only from the
other side. See `preferences` for c and r.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def nca_pair(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = −log σ(βc) − ½ log σ(−βc) − ½ log σ(−βr). (B,), (B,) -> (B,)

    In nats. Noise contrastive: the chosen log-ratio is kept from falling, and from growing without end.

    Source: Chen et al. 2024, arXiv:2402.05369, with two completions.
    """
    chosen, rejected = beta * log_ratio_chosen, beta * log_ratio_rejected
    return -logsigmoid(chosen) - 0.5 * logsigmoid(-chosen) - 0.5 * logsigmoid(-rejected)


def bco_pair(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = −log σ(βc) − log σ(−βr). (B,), (B,) -> (B,)

    In nats. A classifier of desired and undesired completions; without the paper's running mean, as in TRL's pairs.

    Source: Jung et al. 2024, arXiv:2404.04656.
    """
    return -logsigmoid(beta * log_ratio_chosen) - logsigmoid(-beta * log_ratio_rejected)


def sppo_hard(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = (c − 1/(2β))² + (r + 1/(2β))². (B,), (B,) -> (B,)

    In nats². Self-play with the probability of winning set to 1 for the chosen and 0 for the rejected side.

    Source: Wu et al. 2024, arXiv:2405.00675, eq. 4.7.
    """
    target = 0.5 / beta
    return (log_ratio_chosen - target) ** 2 + (log_ratio_rejected + target) ** 2


def apo_zero(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = 1 − σ(βc) + σ(βr). (B,), (B,) -> (B,)

    Without a unit. Raises the chosen and lowers the rejected side: for pairs that are better than the policy.

    Source: D'Oosterlinck et al. 2024, arXiv:2408.06266, eq. 7.
    """
    return 1 - (beta * log_ratio_chosen).sigmoid() + (beta * log_ratio_rejected).sigmoid()


def apo_down(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = σ(βc) + 1 − σ(β(c − r)). (B,), (B,) -> (B,)

    Without a unit. Lowers both sides, the rejected one more: for pairs that are worse than the policy.

    Source: D'Oosterlinck et al. 2024, arXiv:2408.06266, eq. 8.
    """
    delta = log_ratio_chosen - log_ratio_rejected
    return (beta * log_ratio_chosen).sigmoid() + 1 - (beta * delta).sigmoid()


def kto(whole_log_ratio_chosen: Tensor, whole_log_ratio_rejected: Tensor, mismatched_kl: Tensor, beta: float,
        desirable_weight: float, undesirable_weight: float) -> Tensor:
    """L = λ_D (1 − σ(β(c − z))) of desired, λ_U (1 − σ(β(z − r))) of undesired completions. (C,), (R,), () -> (C+R,)

    Without a unit, one number per completion, the desired first; there may be none of either. z = `mismatched_kl`,
    see `reference_point`, has no gradient: what a completion gains counts from what the policy gains anyway.

    Source: Ethayarajh et al. 2024, arXiv:2402.01306.
    """
    desired = 1 - (beta * (whole_log_ratio_chosen - mismatched_kl)).sigmoid()
    undesired = 1 - (beta * (mismatched_kl - whole_log_ratio_rejected)).sigmoid()
    return torch.cat([desirable_weight * desired, undesirable_weight * undesired])


def reference_point(log_ratios: Tensor) -> Tensor:
    """z = max(0, mean log π(y')/π_ref(y')) of completions y' that belong to other prompts. (B,) -> ()

    In nats per sequence. KTO's estimate of the KL, which cannot be negative.

    Source: Ethayarajh et al. 2024, arXiv:2402.01306.
    """
    return log_ratios.mean().clamp(min=0).detach()
