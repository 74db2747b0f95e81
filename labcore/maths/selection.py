"""Which completions of a batch are learnt from: bool (P, G), True = kept.

Rewards are (P, G): P prompts, G completions each. NaN marks a completion that could not be scored. Nothing is dropped:
groups stay whole, so that baselines are those of all completions, and only the loss and its denominators leave out
what is not kept.
"""

from __future__ import annotations

import torch
from torch import Tensor


def everything(rewards: Tensor) -> Tensor:
    """kept = True. (P, G) -> bool (P, G)"""
    return torch.ones_like(rewards, dtype=torch.bool)


def informative(rewards: Tensor) -> Tensor:
    """kept = max_G R > min_G R, over the scored completions. (P, G) -> bool (P, G)

    A group whose scored rewards are all equal, or that has fewer than two of them, has advantage 0 throughout: none of
    it is kept. Of the other groups the scored completions are.

    Source: Yu et al. 2025, arXiv:2503.14476, section 3.2 (dynamic sampling).
    """
    scored = ~rewards.isnan()
    lowest = torch.where(scored, rewards, torch.inf).amin(1, keepdim=True)
    highest = torch.where(scored, rewards, -torch.inf).amax(1, keepdim=True)
    return scored & (highest > lowest)


def best_of_group(rewards: Tensor) -> Tensor:
    """kept = first of argmax_G R, over the scored completions. (P, G) -> bool (P, G)

    One completion per group, none where nothing could be scored. The best may still be wrong.

    Source: Dong et al. 2023, arXiv:2304.06767, algorithm 1 (RAFT).
    """
    highest = torch.where(rewards.isnan(), -torch.inf, rewards).amax(1, keepdim=True)
    best = rewards == highest  # NaN equals nothing
    return best & (best.cumsum(1) == 1)


def not_truncated(rewards: Tensor, truncated: Tensor) -> Tensor:
    """kept = the completion ended by itself. (P, G), bool (P, G) -> bool (P, G)

    Its length limit says nothing about a completion's quality, so what the limit cut is not learnt from.

    Source: Yu et al. 2025, arXiv:2503.14476, section 3.4 (overlong filtering).
    """
    return ~truncated.expand_as(rewards)
