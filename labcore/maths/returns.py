"""Discounted returns and generalised advantage estimates, for completions and for environments.

Left out: n-step returns and off-policy corrections.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labcore.maths.masked import masked_var


def reward_to_go(token_rewards: Tensor, gamma: float) -> Tensor:
    """R_t = Σ_{s≥t} γ^{s−t} r_s. (B, T) -> (B, T)

    In reward.

    Source: Sutton and Barto 2018, Reinforcement Learning, eq. 3.8.
    """
    returns = torch.empty_like(token_rewards)
    following = torch.zeros_like(token_rewards[:, 0])
    for t in reversed(range(token_rewards.shape[1])):
        following = token_rewards[:, t] + gamma * following
        returns[:, t] = following
    return returns


def gae(token_rewards: Tensor, values: Tensor, completion_mask: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """A_t = δ_t + γλ A_{t+1}, with δ_t = r_t + γ V_{t+1} − V_t. (B, T), (B, T), bool (B, T) -> (B, T)

    In reward; 0 where the mask is False. t + 1 is the next counted token: positions that do not count are stepped
    over, and their rewards and values never read. After the last counted token the completion has ended: V = 0.
    The returns a critic learns are A + V, taken before any whitening of A.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16.
    """
    advantages = torch.zeros_like(values)
    advantage = torch.zeros_like(values[:, 0])
    next_value = torch.zeros_like(values[:, 0])
    for t in reversed(range(values.shape[1])):
        counts = completion_mask[:, t]
        delta = token_rewards[:, t] + gamma * next_value - values[:, t]
        advantage = torch.where(counts, delta + gamma * gae_lambda * advantage, advantage)
        next_value = torch.where(counts, values[:, t], next_value)
        advantages[:, t] = torch.where(counts, advantage, 0)
    return advantages


def gae_envs(rewards: Tensor, values: Tensor, next_values: Tensor, terminated: Tensor, truncated: Tensor,
             gamma: float, gae_lambda: float) -> Tensor:
    """A_t = δ_t + γλ A_{t+1} within an episode, δ_t = r_t + γ V(s'_t) − V(s_t). (T, E) x 3, bool (T, E) x 2 -> (T, E)

    In reward. `next_values` are the values of the true next observation, before any reset. A step that terminated has
    V(s') = 0; one that was truncated keeps it. Neither depends on the episode after it.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16; Pardo et al. 2018, arXiv:1712.00378 (time limits).
    """
    deltas = rewards + gamma * torch.where(terminated, 0, next_values) - values
    continues = ~(terminated | truncated)
    advantages = torch.empty_like(values)
    advantage = torch.zeros_like(values[0])
    for t in reversed(range(len(values))):
        advantage = deltas[t] + gamma * gae_lambda * torch.where(continues[t], advantage, 0)
        advantages[t] = advantage
    return advantages


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """1 − Var(R − V)/Var(R) over the mask. (B, T), (B, T), bool (B, T) -> ()

    Without a unit. NaN when the returns do not vary: there is nothing to explain.
    """
    variance = masked_var(returns, mask, ddof=0)
    explained = 1 - masked_var(returns - values, mask, ddof=0) / variance
    return torch.where(variance > 0, explained, torch.nan)
