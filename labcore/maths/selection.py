"""Select the completions of a batch that are learnt from: bool (P, G), True = kept.

Rewards are (P, G): P prompts with G completions each. They are total rewards: shaped, plus the rewards of tokens, minus
a KL in the reward; `task_rewards` are the rewards before these changes. NaN marks a completion that could not be
scored. No completion is dropped: groups stay whole, so that baselines use all completions, and only the loss and its
denominators leave out the completions that are not kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labcore.maths.masked import extremes


def everything(rewards: Tensor) -> Tensor:
    """kept = True. (P, G) -> bool (P, G)"""
    return torch.ones_like(rewards, dtype=torch.bool)


def informative(task_rewards: Tensor) -> Tensor:
    """kept = max_G R > min_G R, over the scored completions. (P, G) -> bool (P, G)

    None is kept of a group whose scored rewards are all equal, or that has fewer than two of them: unless shaping adds
    to them it has advantage 0 throughout. Of the other groups the scored completions are. A group that is all wrong, or
    all right, is not kept either where a penalty of length makes its shaped rewards differ.

    Source: Yu et al. 2025, arXiv:2503.14476, section 3.2 (dynamic sampling, 0 < #right < G).
    """
    lowest, highest = extremes(task_rewards, 1)
    return ~task_rewards.isnan() & (highest > lowest)


def best_of_group(rewards: Tensor) -> Tensor:
    """kept = first of argmax_G R, over the scored completions. (P, G) -> bool (P, G)

    One completion per group, none where nothing could be scored. The best may still be wrong. A KL in the reward is
    part of what is ranked: R − β Σ_t k_1, the paper's modified reward.

    Source: Dong et al. 2023, arXiv:2304.06767, algorithm 1 (RAFT) and its KL regularisation. The authors' code,
    LMFlow's raft_aligner, ranks by the reward alone, as this does where no KL is in the reward.
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
