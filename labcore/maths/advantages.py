"""What a completion's reward is compared with.

Rewards are (P, G): P prompts, G completions each. NaN marks a completion that could not be scored: it is left out of
every baseline and gets advantage 0. Where all rewards compared are equal the advantage is exactly 0: a mean in float32
can miss its equal terms by 1e-6, which a standard deviation of 0 + eps would blow up to 0.01 and more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labcore.maths.masked import masked_mean, masked_var
from labcore.maths.returns import gae as gae


def _centred(rewards: Tensor, dim: int | None) -> Tensor:
    """R − mean_dim R over the scored completions, exactly 0 where they are all equal. (P, G) -> (P, G)"""
    scored = ~rewards.isnan()
    dims = (0, 1) if dim is None else (dim,)
    lowest = torch.where(scored, rewards, torch.inf).amin(dims, keepdim=True)
    highest = torch.where(scored, rewards, -torch.inf).amax(dims, keepdim=True)
    mean = masked_mean(rewards, scored, dim, keepdim=True)
    return torch.where(scored & (highest > lowest), rewards - mean, 0)


def batch_mean(rewards: Tensor) -> Tensor:
    """A = R − mean R. (P, G) -> (P, G)

    In reward.

    Source: Williams 1992, Machine Learning 8:229 (reinforcement baseline).
    """
    return _centred(rewards, dim=None)


def leave_one_out(rewards: Tensor) -> Tensor:
    """A_i = R_i − 1/(G−1) Σ_{j≠i} R_j = G/(G−1) (R_i − mean_G R). (P, G) -> (P, G)

    In reward. G counts the scored completions; one alone has nothing to be compared with: 0.

    Source: Ahmadian et al. 2024, arXiv:2402.14740 (RLOO); Kool et al. 2019, "Buy 4 REINFORCE samples".
    """
    group_size = (~rewards.isnan()).sum(1, keepdim=True)
    # In this order: the quotient of two integer tensors would be float32, whatever the rewards are.
    return _centred(rewards, dim=1) * group_size / (group_size - 1).clamp(min=1)


def group_mean(rewards: Tensor) -> Tensor:
    """A = R − mean_G R. (P, G) -> (P, G)

    In reward.

    Source: Liu et al. 2025, arXiv:2503.20783, section 3.2 (Dr. GRPO).
    """
    return _centred(rewards, dim=1)


def group_standardised(rewards: Tensor, eps: float = 1e-4, ddof: int = 1) -> Tensor:
    """A = (R − mean_G R) / (std_G R + eps). (P, G) -> (P, G)

    Without a unit.

    Source: Shao et al. 2024, arXiv:2402.03300, section 4.1.2.
    """
    spread = masked_var(rewards, ~rewards.isnan(), ddof, dim=1, keepdim=True).sqrt()
    return _centred(rewards, dim=1) / (spread + eps)


def batch_standardised(rewards: Tensor, eps: float = 1e-4, ddof: int = 1) -> Tensor:
    """A = (R − mean_G R) / (std R + eps), the spread being that of the whole batch. (P, G) -> (P, G)

    Without a unit.

    Source: Liu et al. 2025, arXiv:2508.08221 (group mean, batch spread).
    """
    spread = masked_var(rewards, ~rewards.isnan(), ddof).sqrt()
    return _centred(rewards, dim=1) / (spread + eps)
