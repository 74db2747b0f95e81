"""Planning: values and policies of a world whose transitions are known, sweep by sweep.

The generators yield after every sweep over all states and read `knobs["gamma"]` before it, so γ can be moved while they
run. `exact_values` solves the same equations at once and is what everything else is measured against.

Left out: asynchronous sweeps and prioritised sweeping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from labcore.errors import LabError
from labcore.worlds.mdp import MDP, Array

Knobs = Mapping[str, float]

# Two actions whose values differ by less are equally good: sums in another order differ in the last digits.
TIE = 1e-9


@dataclass(frozen=True, eq=False)
class Sweep:
    """Where a method stands after a sweep: V (S,), the Q (S, A) that it was made of, and the policy (S, A) it has.

    `change` is max |V_new − V_old|; `improved` says that the policy is a new one.
    """

    number: int
    values: Array
    action_values: Array
    policy: Array
    change: float
    improved: bool = False


def uniform_policy(mdp: MDP) -> Array:
    """π(a|s) = 1/A. -> (S, A)"""
    return np.full(mdp.rewards.shape, 1 / mdp.rewards.shape[1])


def greedy(action_values: Array) -> Array:
    """π(a|s) = [Q(s,a) = max Q(s,·)] / number of such actions: ties share alike. (S, A) -> (S, A)

    >>> greedy(np.array([[1.0, 2.0, 2.0]])).tolist()
    [[0.0, 0.5, 0.5]]
    """
    best = action_values.max(1, keepdims=True)
    ties = action_values >= best - TIE * (1 + abs(best))
    return ties / ties.sum(1, keepdims=True)


def exact_values(mdp: MDP, policy: Array, gamma: float) -> Array:
    """V_π = (I − γ P_π)⁻¹ R_π. (S, A) -> (S,)

    In reward.

    Raises:
        LabError: with γ = 1 the policy may walk for ever, so its value is no number.

    Source: Sutton and Barto 2018, Reinforcement Learning, eq. 4.4 in matrix form.
    """
    transitions, rewards = mdp.under(policy)
    ahead = gamma * transitions
    if gamma == 1 and not _ends(transitions, mdp.terminal):
        raise LabError("With gamma = 1 this policy may walk for ever, so its values are no numbers: "
                       "set gamma below 1, for example 0.99.")
    return np.linalg.solve(np.eye(len(ahead)) - ahead, rewards)


def _ends(transitions: Array, terminal: np.ndarray) -> bool:
    """Whether an end can be reached from every state. P_π lacks the steps that end: there its rows sum to less."""
    ending = terminal | (transitions.sum(1) < 1 - 1e-12)
    while True:
        grown = ending | (transitions[:, ending] > 0).any(1)
        if (grown == ending).all():
            return bool(ending.all())
        ending = grown


def policy_evaluation(mdp: MDP, policy: Array, knobs: Knobs, tolerance: float = 1e-12,
                      values: Array | None = None) -> Iterator[Sweep]:
    """V(s) ← Σ_a π(a|s) (R(s,a) + γ Σ_s' P(s'|s,a) V(s')) for all s at once, until no V changes by more than that.

    Source: Sutton and Barto 2018, Reinforcement Learning, eq. 4.5 (with two arrays).
    """
    values = np.zeros(len(mdp.rewards)) if values is None else values
    number, change = 0, np.inf
    while change > tolerance:
        action_values = mdp.action_values(values, knobs["gamma"])
        new = (policy * action_values).sum(1)
        change, values, number = float(abs(new - values).max()), new, number + 1
        yield Sweep(number, values, action_values, policy, change)


def improve(policy: Array, values: Array, action_values: Array) -> Array:
    """π'(s) = argmax_a Q_π(s,a) where that is better than V_π(s), else π(s). (S, A), (S,), (S, A) -> (S, A)

    To keep a row that cannot be bettered makes the method end, and keeps it right with γ = 1: a greedy choice between
    equals could walk in circles for ever.
    """
    better = action_values.max(1) > values + TIE * (1 + abs(values))
    return np.where(better[:, None], greedy(action_values), policy)


def policy_iteration(mdp: MDP, knobs: Knobs, tolerance: float = 1e-12) -> Iterator[Sweep]:
    """Evaluate π, make it greedy, again, until it is greedy already; begins with the uniform policy.

    Yields each sweep of evaluation, and each improvement with `improved` (its V is still that of the old policy).
    The last policy may keep uniform rows where all actions are equally good.

    Source: Howard 1960, Dynamic Programming and Markov Processes; Sutton and Barto 2018, section 4.3.
    """
    policy, values, number = uniform_policy(mdp), np.zeros(len(mdp.rewards)), 0
    while True:
        for evaluated in policy_evaluation(mdp, policy, knobs, tolerance, values):
            number += 1
            values, action_values = evaluated.values, evaluated.action_values
            yield Sweep(number, values, action_values, policy, evaluated.change)
        better = improve(policy, values, action_values)
        if (better == policy).all():
            return
        policy = better
        yield Sweep(number, values, action_values, policy, 0.0, improved=True)


def value_iteration(mdp: MDP, knobs: Knobs, tolerance: float = 1e-12) -> Iterator[Sweep]:
    """V(s) ← max_a (R(s,a) + γ Σ_s' P(s'|s,a) V(s')) for all s at once, until no V changes by more than `tolerance`.

    Source: Bellman 1957, Dynamic Programming; Sutton and Barto 2018, Reinforcement Learning, eq. 4.10.
    """
    values, number, change = np.zeros(len(mdp.rewards)), 0, np.inf
    while change > tolerance:
        action_values = mdp.action_values(values, knobs["gamma"])
        new = action_values.max(1)
        change, values, number = float(abs(new - values).max()), new, number + 1
        yield Sweep(number, values, action_values, greedy(action_values), change)


def optimal_values(mdp: MDP, gamma: float) -> tuple[Array, Array]:
    """V* and Q*, exactly: policy iteration with a linear solve. -> (S,), (S, A)

    In reward. What the errors of the learning methods are measured against.

    Raises:
        LabError: with γ = 1 it may be best, or the only way, to walk for ever.
    """
    policy = uniform_policy(mdp)
    while True:
        values = exact_values(mdp, policy, gamma)
        action_values = mdp.action_values(values, gamma)
        better = improve(policy, values, action_values)
        if (better == policy).all():
            return values, action_values
        policy = better
