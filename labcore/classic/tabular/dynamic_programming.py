"""Planning: values and policies of a world whose transitions are known, sweep by sweep.

The generators yield after every sweep over all states and read `knobs["gamma"]` and `knobs["tolerance"]` before it, so
these can be moved while they run; they continue from `since`, an earlier sweep. `exact_values` solves the same
equations at once; all other results are compared with it.

Left out: asynchronous sweeps and prioritised sweeping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from labcore.classic.envs.mdp import MDP, Array
from labcore.errors import LabError

Knobs = Mapping[str, float]

# Two actions whose values differ by less are equally good: sums in another order differ in the last digits.
TIE = 1e-9

MOST_SWEEPS = 200  # before the exact solution begins
NEARLY_1 = 0.9999


@dataclass(frozen=True, eq=False)
class Sweep:
    """The state of a method after a sweep: V (S,), the Q (S, A) from which V was made, and the policy (S, A).

    `change` is max |V_new − V_old|, or infinite if V is not yet that of the policy at all. `improved` means that the
    policy is a new one.
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
    policy: Array = ties / ties.sum(1, keepdims=True)
    return policy


def exact_values(mdp: MDP, policy: Array, gamma: float) -> Array:
    """V_π = (I − γ P_π)⁻¹ R_π. (S, A) -> (S,)

    In reward.

    Raises:
        LabError: γ is 1 and the policy may never reach an end, so its value is no number.

    Source: Sutton and Barto 2018, Reinforcement Learning, eq. 4.4 in matrix form.
    """
    return _solve(*mdp.under(policy), mdp.terminal, gamma)


def exact_value(mdp: MDP, policy: Array, gamma: float, start: int) -> float:
    """V_π(start), exactly. Only states that the policy may reach from `start` count; from other states it may never
    reach an end.

    In reward. Raises LabError if γ is 1 and the policy may never reach an end from `start`.
    """
    transitions, rewards = mdp.under(policy)
    here = np.arange(len(rewards)) == start
    while (grown := here | (transitions[here] > 0).any(0)).sum() > here.sum():
        here = grown
    values = _solve(transitions[np.ix_(here, here)], rewards[here], mdp.terminal[here], gamma)
    return float(values[here[:start].sum()])


def _solve(transitions: Array, rewards: Array, terminal: np.ndarray, gamma: float) -> Array:
    ahead = gamma * transitions
    if gamma == 1 and not _ends(transitions, terminal):
        raise LabError("With gamma = 1 this policy may walk for ever, so its values are no numbers: "
                       "set gamma below 1, for example 0.99.")
    return np.asarray(np.linalg.solve(np.eye(len(ahead)) - ahead, rewards), np.float64)


def _ends(transitions: Array, terminal: np.ndarray) -> bool:
    """True if an end can be reached from every state. P_π lacks the steps that end: there its rows sum to less."""
    ending = terminal | (transitions.sum(1) < 1 - 1e-12)
    while True:
        grown = ending | (transitions[:, ending] > 0).any(1)
        if (grown == ending).all():
            return bool(ending.all())
        ending = grown


def nothing_known(mdp: MDP) -> Sweep:
    """The state before the first sweep: V = 0 and the uniform policy."""
    zeros = np.zeros(mdp.rewards.shape)
    return Sweep(0, zeros[:, 0], zeros, uniform_policy(mdp), np.inf)


def _change(new: Array, old: Array) -> float:
    return float(abs(new - old).max())


def policy_evaluation(mdp: MDP, knobs: Knobs, since: Sweep | None = None) -> Iterator[Sweep]:
    """V(s) ← Σ_a π(a|s) (R(s,a) + γ Σ_s' P(s'|s,a) V(s')) for all s at once, until no V changes by more than the
    tolerance; π is the policy of `since`.

    Source: Sutton and Barto 2018, Reinforcement Learning, eq. 4.5 (with two arrays).
    """
    now = since or nothing_known(mdp)
    while now.change > knobs["tolerance"]:
        action_values = mdp.action_values(now.values, knobs["gamma"])
        values = (now.policy * action_values).sum(1)
        now = Sweep(now.number + 1, values, action_values, now.policy, _change(values, now.values))
        yield now


def improve(policy: Array, values: Array, action_values: Array) -> Array:
    """π'(s) = argmax_a Q_π(s,a) where that is better than V_π(s), else π(s). (S, A), (S,), (S, A) -> (S, A)

    A row that cannot be improved is kept, so the method ends when no row changes. With γ = 1 and free steps this also
    keeps the way to the end: all ways are then worth the same, and a greedy choice among equals wanders between them.
    """
    better = action_values.max(1) > values + TIE * (1 + abs(values))
    return np.where(better[:, None], greedy(action_values), policy)


def policy_iteration(mdp: MDP, knobs: Knobs, since: Sweep | None = None) -> Iterator[Sweep]:
    """Evaluate π and make it greedy, repeatedly, until it is greedy already. Begins with the uniform policy.

    Yields each sweep of evaluation, and each improvement with `improved` (its V is still that of the old policy).
    The last policy may keep uniform rows where all actions are equally good.

    Source: Howard 1960, Dynamic Programming and Markov Processes; Sutton and Barto 2018, section 4.3.
    """
    now = since or nothing_known(mdp)
    while True:
        for sweep in policy_evaluation(mdp, knobs, now):
            now = sweep
            yield sweep
        better = improve(now.policy, now.values, now.action_values)
        if (better == now.policy).all():
            return
        now = replace(now, policy=better, change=np.inf, improved=True)
        yield now


def value_iteration(mdp: MDP, knobs: Knobs, since: Sweep | None = None) -> Iterator[Sweep]:
    """V(s) ← max_a (R(s,a) + γ Σ_s' P(s'|s,a) V(s')) for all s at once, until no V changes by more than the tolerance.

    Source: Bellman 1957, Dynamic Programming; Sutton and Barto 2018, Reinforcement Learning, eq. 4.10.
    """
    now = since or nothing_known(mdp)
    while now.change > knobs["tolerance"]:
        action_values = mdp.action_values(now.values, knobs["gamma"])
        values = action_values.max(1)
        now = Sweep(now.number + 1, values, action_values, greedy(action_values), _change(values, now.values))
        yield now


def backup(mdp: MDP, values: Array, gamma: float, state: int, action: int) -> str:
    """Q(s,a) = R(s,a) + γ Σ_s' P(s'|s,a) V(s') with its numbers, the terms with P = 0 left out. (S,)

    In reward.
    """
    chances = mdp.transitions[state, action]
    following = np.where(mdp.terminal, 0.0, values)
    terms = " + ".join(f"{chances[after]:.4g} × {following[after]:.4g}" for after in np.flatnonzero(chances))
    total = mdp.rewards[state, action] + gamma * float(chances @ following)
    return f"{mdp.rewards[state, action]:z.4g} + {gamma:z.4g} × ({terms}) = {total:z.4g}".replace("-", "−")


def optimal_values(mdp: MDP, gamma: float) -> tuple[Array, Array]:
    """V* and Q*, exactly: policy iteration with a linear solve. -> (S,), (S, A)

    In reward. The errors of the learning methods are measured against these values. Raises LabError if γ is 1
    and a best policy may never reach an end.
    """
    # Starting from a nearly right policy saves linear solves, which take most of the time.
    *_, last = islice(value_iteration(mdp, {"gamma": min(gamma, NEARLY_1), "tolerance": 1e-3}), MOST_SWEEPS)
    ends = gamma < 1 or _ends(mdp.under(last.policy)[0], mdp.terminal)
    policy = last.policy if ends else uniform_policy(mdp)
    while True:
        values = exact_values(mdp, policy, gamma)
        action_values = mdp.action_values(values, gamma)
        better = improve(policy, values, action_values)
        if (better == policy).all():
            return values, action_values
        policy = better
