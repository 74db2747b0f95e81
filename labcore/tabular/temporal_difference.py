"""Learning action values from steps: Monte Carlo control, SARSA, Q-learning and their kin, with ε-greedy choices.

A method is one function of (tables, step, knobs, rng) that reads like its update; `METHODS` names them all, `TDLearner`
lets one of them walk. The knobs are read at every step: `alpha`, `alpha_decay` (ω in α/n(s,a)^ω, 0: constant),
`gamma`, `epsilon` with its schedule (`epsilon_end`, `epsilon_steps`) and, for traces, `lambda`.

Where an episode terminated, what follows is worth 0; where time was up (`truncated`) it is worth what the table says.

Left out: n-step methods (traces take their place), accumulating traces (these are replacing ones), off-policy Monte
Carlo.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from labcore.envs.mdp import Array
from labcore.tabular.walks import Step

Knobs = Mapping[str, float]


class Update(NamedTuple):
    """The last update of a cell as its arithmetic: `after` = `before` + `alpha` × `delta`, where
    `delta` = `target` − `before` and `target` = `reward` + `gamma` × `next_value`.

    Where a method has two tables, `head` (1 or 2) is the one that learnt, and `mean` what both now say together.
    """

    state: int
    action: int
    reward: float
    gamma: float
    next_value: float
    target: float
    before: float
    delta: float
    alpha: float
    after: float
    head: int = 0
    mean: float = 0.0

    def arithmetic(self) -> str:
        """The update with its numbers.

        >>> Update(0, 1, 1.0, 0.9, 5.0, 5.5, 2.0, 3.5, 0.5, 3.75).arithmetic()
        '2 + 0.5 × (1 + 0.9 × 5 − 2) = 3.75'
        """
        before = f"{self.before:.4g}"
        less = f"+ {before[1:]}" if self.before < 0 else f"− {before}"
        return (f"{before} + {self.alpha:.4g} × ({self.reward:.4g} + {self.gamma:.4g} × {self.next_value:.4g} {less}) "
                f"= {self.after:.4g}").replace("-", "−")


@dataclass(eq=False)
class Tables:
    """What a learner knows: Q (S, A), which it acts on, and what its method keeps beside it.

    `visits` counts the updates of each (s, a) and `steps` all steps, both for the schedules; `last` is the last update
    that began in each state, `made` those of the newest call of the method, in the order of the steps.
    """

    q: Array
    visits: np.ndarray = field(init=False)
    traces: Array = field(init=False)
    pair: Array = field(init=False)
    episode: list[Step] = field(default_factory=list)
    committed: int | None = None
    steps: int = 0
    last: dict[int, Update] = field(default_factory=dict)
    made: list[Update] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.visits = np.zeros(self.q.shape, dtype=np.int64)
        self.traces = np.zeros_like(self.q)
        self.pair = np.stack([self.q, self.q])

    def begin(self) -> None:
        """Forget what belongs to an episode."""
        self.traces[:] = 0
        self.episode.clear()
        self.committed = None

    def choose(self, state: int, knobs: Knobs, rng: np.random.Generator) -> int:
        """The action that the last update has already drawn (`commit`), or a new ε-greedy one."""
        action, self.committed = self.committed, None
        return epsilon_greedy(self.q[state], epsilon(knobs, self.steps), rng) if action is None else action

    def commit(self, state: int, knobs: Knobs, rng: np.random.Generator) -> int:
        """Draw a' now, so that the update can use it, and take it at the next step."""
        self.committed = self.choose(state, knobs, rng)
        return self.committed

    def rate(self, step: Step, knobs: Knobs) -> float:
        """α / n(s,a)^ω, n counting this update as well."""
        return knobs["alpha"] / float(self.visits[step.state, step.action]) ** knobs["alpha_decay"]


def epsilon(knobs: Knobs, steps: int) -> float:
    """ε_n = (1 − x) ε + x ε_end, x = min(n/N, 1), with n steps done and N = epsilon_steps; N = 0: ε throughout.

    >>> [epsilon({"epsilon": 1.0, "epsilon_end": 0.2, "epsilon_steps": 4}, steps) for steps in (0, 2, 9)]
    [1.0, 0.6, 0.2]
    """
    share = min(steps / knobs["epsilon_steps"], 1.0) if knobs["epsilon_steps"] else 0.0
    return (1 - share) * knobs["epsilon"] + share * knobs["epsilon_end"]


def epsilon_greedy_policy(q_row: Array, chance: float) -> Array:
    """π(a) = ε/A + (1 − ε) [Q(a) = max Q] / number of such actions. (A,) -> (A,)

    >>> epsilon_greedy_policy(np.array([1.0, 3.0, 3.0, 0.0]), 0.2).tolist()
    [0.05, 0.45, 0.45, 0.05]
    """
    ties = q_row == q_row.max()
    return chance / len(q_row) + (1 - chance) * ties / ties.sum()


def epsilon_greedy(q_row: Array, chance: float, rng: np.random.Generator) -> int:
    """An action drawn from `epsilon_greedy_policy`. (A,) -> int"""
    row = q_row.tolist()
    if rng.random() < chance:
        return int(rng.random() * len(row))
    best = max(row)
    ties = [action for action, value in enumerate(row) if value == best]
    return ties[0] if len(ties) == 1 else ties[int(rng.random() * len(ties))]


Method = Callable[[Tables, Step, Knobs, np.random.Generator], None]


def _update(tables: Tables, table: Array, step: Step, next_value: float, knobs: Knobs) -> Update:
    """Q(s,a) ← Q(s,a) + α δ, δ = r + γ v' − Q(s,a), where v' is what `next_value` says of the rest."""
    state, action, gamma = step.state, step.action, knobs["gamma"]
    tables.visits[state, action] += 1
    alpha, before = tables.rate(step, knobs), float(table[state, action])
    target = step.reward + gamma * next_value
    delta = target - before
    after = before + alpha * delta
    table[state, action] = after
    tables.last[state] = Update(state, action, step.reward, gamma, next_value, target, before, delta, alpha, after)
    tables.made.append(tables.last[state])
    return tables.last[state]


def _expected(tables: Tables, state: int, knobs: Knobs) -> float:
    """Σ_a π(a|s) Q(s,a), π the ε-greedy policy."""
    row = tables.q[state]
    return float(epsilon_greedy_policy(row, epsilon(knobs, tables.steps)) @ row)


def sarsa(tables: Tables, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
    """Q(s,a) ← Q(s,a) + α (r + γ Q(s',a') − Q(s,a)), a' the action taken next.

    Source: Rummery and Niranjan 1994; Sutton and Barto 2018, Reinforcement Learning, eq. 6.7.
    """
    next_value = 0.0
    if not step.terminated:
        next_value = float(tables.q[step.next_state, tables.commit(step.next_state, knobs, rng)])
    _update(tables, tables.q, step, next_value, knobs)


def expected_sarsa(tables: Tables, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
    """Q(s,a) ← Q(s,a) + α (r + γ Σ_a' π(a'|s') Q(s',a') − Q(s,a)), π the ε-greedy policy.

    Source: van Seijen et al. 2009, ADPRL; Sutton and Barto 2018, eq. 6.9.
    """
    next_value = 0.0 if step.terminated else _expected(tables, step.next_state, knobs)
    _update(tables, tables.q, step, next_value, knobs)


def q_learning(tables: Tables, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
    """Q(s,a) ← Q(s,a) + α (r + γ max_a' Q(s',a') − Q(s,a)).

    Source: Watkins 1989, Learning from Delayed Rewards; Sutton and Barto 2018, eq. 6.8.
    """
    next_value = 0.0 if step.terminated else float(tables.q[step.next_state].max())
    _update(tables, tables.q, step, next_value, knobs)


def double_q_learning(tables: Tables, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
    """Q_1(s,a) ← Q_1(s,a) + α (r + γ Q_2(s', argmax_a' Q_1(s',a')) − Q_1(s,a)), or with 1 and 2 exchanged.

    A coin decides which. What it acts on and shows is their mean.

    Source: van Hasselt 2010, "Double Q-learning", NeurIPS, algorithm 1.
    """
    heads = int(rng.random() < 0.5)
    learns, judges = tables.pair[heads], tables.pair[1 - heads]
    next_value = 0.0
    if not step.terminated:
        best = epsilon_greedy(learns[step.next_state], 0.0, rng)
        next_value = float(judges[step.next_state, best])
    update = _update(tables, learns, step, next_value, knobs)
    mean = float(tables.pair[:, step.state, step.action].mean())
    tables.q[step.state, step.action] = mean
    tables.made[-1] = tables.last[step.state] = update._replace(head=heads + 1, mean=mean)


def monte_carlo(tables: Tables, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
    """At the end of the episode, from its last step to its first: Q(s,a) ← Q(s,a) + α (G − Q(s,a)), G ← r + γ G.

    Every visit counts. Where time was up, G begins with Σ_a π(a|s_T) Q(s_T,a), the table's word for the rest.

    Source: Sutton and Barto 2018, Reinforcement Learning, section 5.4 and eq. 6.1.
    """
    tables.episode.append(step)
    if not step.ended:
        return
    following = 0.0 if step.terminated else _expected(tables, step.next_state, knobs)
    for passed in reversed(tables.episode):
        following = _update(tables, tables.q, passed, following, knobs).target
    tables.made.reverse()


def _update_traces(tables: Tables, step: Step, next_value: float, knobs: Knobs) -> None:
    """e(s,a) ← 1; Q ← Q + α δ e; e ← γ λ e. The recorded update is that of the step's own cell, whose trace is 1."""
    q, traces = tables.q, tables.traces
    traces[step.state, step.action] = 0.0
    update = _update(tables, q, step, next_value, knobs)
    q += update.alpha * update.delta * traces
    traces[step.state, step.action] = 1.0
    traces *= update.gamma * knobs["lambda"]


def sarsa_lambda(tables: Tables, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
    """Q ← Q + α δ e, δ = r + γ Q(s',a') − Q(s,a), with replacing traces e; λ = 0 is SARSA, λ = 1 Monte Carlo.

    Source: Singh and Sutton 1996 (replacing traces); Sutton and Barto 2018, section 12.7.
    """
    next_value = 0.0
    if not step.terminated:
        next_value = float(tables.q[step.next_state, tables.commit(step.next_state, knobs, rng)])
    _update_traces(tables, step, next_value, knobs)


def q_lambda(tables: Tables, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
    """Q ← Q + α δ e, δ = r + γ max_a' Q(s',a') − Q(s,a); the traces end where an action is not greedy.

    λ = 0 is Q-learning.

    Source: Watkins 1989; Sutton and Barto 2018, section 12.10.
    """
    next_value, greedy = 0.0, True
    if not step.terminated:
        row = tables.q[step.next_state]
        next_value = float(row.max())
        greedy = bool(row[tables.commit(step.next_state, knobs, rng)] == next_value)
    _update_traces(tables, step, next_value, knobs)
    if not greedy:
        tables.traces[:] = 0


METHODS: dict[str, Method] = {
    "monte_carlo": monte_carlo, "sarsa": sarsa, "expected_sarsa": expected_sarsa, "q_learning": q_learning,
    "double_q_learning": double_q_learning, "sarsa_lambda": sarsa_lambda, "q_lambda": q_lambda}


class TDLearner:
    """A method and its tables, as `walks.walk` wants them."""

    def __init__(self, method: Method, states: int, actions: int, initial_q: float = 0.0) -> None:
        self.tables = Tables(np.full((states, actions), initial_q))
        self._method = method

    @property
    def waiting(self) -> bool:
        """Whether steps wait for an update: never at the end of an episode."""
        return bool(self.tables.episode) and not self.tables.episode[-1].ended

    def begin(self) -> None:
        self.tables.begin()

    def choose(self, state: int, knobs: Knobs, rng: np.random.Generator) -> int:
        return self.tables.choose(state, knobs, rng)

    def learn(self, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
        self.tables.steps += 1
        self.tables.made.clear()
        self._method(self.tables, step, knobs, rng)

    def policy(self, knobs: Knobs) -> Array:
        """The ε-greedy policy at present. -> (S, A)"""
        chance = epsilon(knobs, self.tables.steps)
        return np.stack([epsilon_greedy_policy(row, chance) for row in self.tables.q])

    def state(self) -> dict[str, np.ndarray]:
        """All that the next episode depends on, as arrays; taken between two episodes."""
        tables = self.tables
        return {"q": tables.q.copy(), "pair": tables.pair.copy(), "visits": tables.visits.copy(),
                "steps": np.array(tables.steps)}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Take up what `state` gave."""
        for name in ("q", "pair", "visits"):
            getattr(self.tables, name)[:] = state[name]
        self.tables.steps = int(state["steps"])
