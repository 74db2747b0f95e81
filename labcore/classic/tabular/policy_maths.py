"""The gradients of a softmax policy with one number θ(s,a) for each action of each state, written out.

∇θ(s,·) log π(a|s) = 1_a − π(·|s), so every method is an equation over numpy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from labcore.classic.envs.mdp import Array
from labcore.classic.tabular.walks import Knobs, Step


def softmax(theta: Array) -> Array:
    """π(a|s) = exp θ(s,a) / Σ_b exp θ(s,b). (..., A) -> (..., A)"""
    powers = np.exp(theta - theta.max(-1, keepdims=True))
    policy: Array = powers / powers.sum(-1, keepdims=True)
    return policy


def score(policy: Array, states: np.ndarray, actions: np.ndarray, weights: Array) -> Array:
    """Σ_t w_t ∇θ log π(a_t|s_t), whose row s_t is w_t (1_{a_t} − π(·|s_t)). (S, A), int (T,) x 2, (T,) -> (S, A)

    Source: Sutton and Barto 2018, Reinforcement Learning, exercise 13.3.
    """
    gradient = np.zeros_like(policy)
    np.add.at(gradient, states, -weights[:, None] * policy[states])
    np.add.at(gradient, (states, actions), weights)
    return gradient


def entropy_gradient(policy: Array) -> Array:
    """∇θ(s,·) H(π(·|s)) = −π (log π + H). (..., A) -> (..., A)"""
    logs = np.log(np.maximum(policy, np.finfo(float).tiny))
    entropy: Array = -(policy * logs).sum(-1, keepdims=True)
    return -policy * (logs + entropy)


class Steps(NamedTuple):
    """Whole episodes, one after the other, as arrays (T,); `times` count from 0 in each."""

    times: np.ndarray
    states: np.ndarray
    actions: np.ndarray
    rewards: Array
    next_states: np.ndarray
    terminated: np.ndarray
    ended: np.ndarray

    @classmethod
    def of(cls, steps: Sequence[Step]) -> Steps:
        times, states, actions, rewards, following, terminated, truncated = map(np.array, zip(*steps, strict=True))
        return cls(times, states, actions, rewards.astype(float), following, terminated, terminated | truncated)


def gae(steps: Steps, values: Array, gamma: float, gae_lambda: float) -> Array:
    """A_t = δ_t + γλ A_{t+1} within an episode, δ_t = r_t + γ V(s_{t+1}) − V(s_t). (S,) -> (T,)

    In reward. V(s_{t+1}) is 0 where the episode terminated, and stands where time was up. λ = 1 is reward-to-go − V.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16; Pardo et al. 2018, arXiv:1712.00378 (time limits).
    """
    following = np.where(steps.terminated, 0.0, values[steps.next_states])
    deltas: Array = steps.rewards + gamma * following - values[steps.states]
    advantages, advantage = np.empty_like(deltas), 0.0
    for t in reversed(range(len(deltas))):
        advantage = deltas[t] + gamma * gae_lambda * (0.0 if steps.ended[t] else advantage)
        advantages[t] = advantage
    return advantages


# Ψ_t, what ∇ log π of each step is weighted by: (steps, V, γ, weights) -> (T,), weights those of `state_weights`.
Psi = Callable[[Steps, Array, float, Array], Array]


def state_weights(steps: Steps, knobs: Knobs) -> Array:
    """w_t = γ^t where `discount_states` is 1, else 1. -> (T,)"""
    return knobs["gamma"] ** steps.times if knobs["discount_states"] else np.ones(len(steps.times))


def returns(steps: Steps, values: Array, gamma: float) -> Array:
    """G_t = r_t + γ G_{t+1}; where time was up the last G is V of where it stopped. (S,) -> (T,)

    In reward.

    Source: Sutton and Barto 2018, Reinforcement Learning, eq. 3.9.
    """
    following: Array = gae(steps, values, gamma, 1.0) + values[steps.states]
    return following


def total_return(steps: Steps, values: Array, gamma: float, weights: Array) -> Array:
    """Ψ_t = G_0, the return of the whole episode seen from its start, so there is no γ^t. (S,) -> (T,)

    Source: Williams 1992, Machine Learning 8:229.
    """
    started = np.maximum.accumulate(np.where(steps.times == 0, np.arange(len(steps.times)), 0))
    return returns(steps, values, gamma)[started]


def reward_to_go(steps: Steps, values: Array, gamma: float, weights: Array) -> Array:
    """Ψ_t = w_t G_t. (S,) -> (T,)

    Source: Sutton and Barto 2018, Reinforcement Learning, eq. 13.8.
    """
    return weights * returns(steps, values, gamma)


def with_baseline(steps: Steps, values: Array, gamma: float, weights: Array) -> Array:
    """Ψ_t = w_t (G_t − V(s_t)). (S,) -> (T,)

    Source: Williams 1992, Machine Learning 8:229; Sutton and Barto 2018, Reinforcement Learning, eq. 13.11.
    """
    above: Array = returns(steps, values, gamma) - values[steps.states]
    return weights * above


def clipped_score(policy: Array, old_policy: Array, steps: Steps, advantages: Array, clip_range: float) -> Array:
    """∇θ Σ_t min(ρ_t A_t, clip(ρ_t, 1 − ε, 1 + ε) A_t), ρ = π/π_old. (S, A) x 2, (T,) -> (S, A)

    Where the clipped term is the smaller the gradient is 0: what is left is ρ_t A_t ∇ log π(a_t|s_t) of the others.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7.
    """
    where = steps.states, steps.actions  # first: elsewhere a probability may have become 0
    ratio = policy[where] / old_policy[where]
    kept = np.where(advantages > 0, ratio <= 1 + clip_range, ratio >= 1 - clip_range)
    return score(policy, steps.states, steps.actions, kept * ratio * advantages)
