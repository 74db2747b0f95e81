"""Reward shaping, before a completion's reward is compared with others: one function for each choice.

Rewards and lengths are (B,), one per completion; a length counts the completion's tokens. NaN stays NaN: a completion
that could not be scored has no reward to shape.
"""

from __future__ import annotations

from torch import Tensor


def none(rewards: Tensor) -> Tensor:
    """R' = R. (B,) -> (B,)"""
    return rewards


def overlong(rewards: Tensor, lengths: Tensor, max_new_tokens: int, overlong_buffer: int,
             overlong_penalty: float) -> Tensor:
    """R' = R + λ clip(((L − c) − |y|)/c, −1, 0). (B,), int (B,) -> (B,)

    In reward; λ = `overlong_penalty` in reward, L = `max_new_tokens` and c = `overlong_buffer` in tokens. No penalty
    up to L − c tokens, then a straight line down to −λ at L, and −λ beyond. A buffer of 0 is a step after L.

    Source: Yu et al. 2025, arXiv:2503.14476, section 3.4 (soft overlong punishment).
    """
    room = (max_new_tokens - overlong_buffer) - lengths.to(rewards.dtype)
    return rewards + overlong_penalty * (room / max(overlong_buffer, 1)).clamp(-1, 0)


def length_cost(rewards: Tensor, lengths: Tensor, length_cost: float) -> Tensor:
    """R' = R − c |y|. (B,), int (B,) -> (B,)

    In reward; `length_cost` in reward per token.
    """
    return rewards - length_cost * lengths.to(rewards.dtype)


def clipped(rewards: Tensor, reward_clip: float) -> Tensor:
    """R' = clip(R, −c, c). (B,) -> (B,)

    In reward; `reward_clip` in reward. Before a KL is subtracted, as frameworks do it.

    Source: Ouyang et al. 2022, arXiv:2203.02155; Huang et al. 2024, arXiv:2403.17031 (reward clipping).
    """
    return rewards.clamp(-reward_clip, reward_clip)


def clipped_between(rewards: Tensor, reward_low: float, reward_high: float) -> Tensor:
    """R' = clip(R, c_low, c_high). (B,), in reward -> (B,)

    In reward. As TRL's `reward_clip_range`: before a KL is subtracted.

    Source: Ouyang et al. 2022, arXiv:2203.02155; the two bounds as in TRL's RLOOTrainer.
    """
    return rewards.clamp(reward_low, reward_high)
