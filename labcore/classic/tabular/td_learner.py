"""A table of action values that walks by ε-greedy choices, and that a method of `temporal_difference` updates.

The knobs are read at every step: `alpha`, `alpha_decay` (ω in α/n(s,a)^ω, 0: constant), `gamma`, `epsilon` with its
schedule (`epsilon_end`, `epsilon_steps`) and, for traces, `lambda`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from labcore.classic.envs.mdp import Array
from labcore.classic.tabular.estimates import Estimates
from labcore.classic.tabular.walks import Knobs, Step


class Update(NamedTuple):
    """The last update of a cell as its arithmetic: `after` = `before` + `alpha` × `delta`, where
    `delta` = `target` − `before` and `target` = `reward` + `gamma` × `next_value`.

    Where a method has two tables, `head` (1 or 2) is the one that learnt, and `mean` the mean of both after it.
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
        before = f"{self.before:z.4g}"
        less = f"+ {before[1:]}" if self.before < 0 else f"− {before}"
        return (f"{before} + {self.alpha:z.4g} × ({self.reward:z.4g} + {self.gamma:z.4g} × {self.next_value:z.4g} "
                f"{less}) = {self.after:z.4g}").replace("-", "−")

    def written(self, arrow: str) -> str:
        """The update of the move `arrow`; where a method has two tables, with the mean of both."""
        head, together = "", ""
        if self.head:
            head, together = "₁₂"[self.head - 1], f"; mean of both {self.mean:z.4g}".replace("-", "−")
        return f"Q{head}(s,{arrow}) ← {self.arithmetic()}{together}"


@dataclass(eq=False)
class Tables:
    """The tables of a learner: Q (S, A), which it acts on, and what its method keeps beside it.

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
        count = float(self.visits[step.state, step.action])
        decay: float = count ** knobs["alpha_decay"]
        return knobs["alpha"] / decay


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
    policy: Array = chance / len(q_row) + (1 - chance) * ties / ties.sum()
    return policy


def epsilon_greedy(q_row: Array, chance: float, rng: np.random.Generator) -> int:
    """An action drawn from `epsilon_greedy_policy`. (A,) -> int"""
    row = q_row.tolist()
    if rng.random() < chance:
        return int(rng.random() * len(row))
    best = max(row)
    ties = [action for action, value in enumerate(row) if value == best]
    return ties[0] if len(ties) == 1 else ties[int(rng.random() * len(ties))]


Method = Callable[[Tables, Step, Knobs, np.random.Generator], None]


class TDLearner:
    """A method and its tables, as `walks.walk` wants them."""

    def __init__(self, method: Method, states: int, actions: int, initial_q: float = 0.0) -> None:
        self.tables = Tables(np.full((states, actions), initial_q))
        self._method = method

    @property
    def waiting(self) -> bool:
        """True if steps wait for an update: never at the end of an episode."""
        return bool(self.tables.episode) and not self.tables.episode[-1].ended

    def begin(self) -> None:
        self.tables.begin()

    def choose(self, state: int, knobs: Knobs, rng: np.random.Generator) -> int:
        return self.tables.choose(state, knobs, rng)

    def learn(self, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
        self.tables.steps += 1
        self.tables.made.clear()
        self._method(self.tables, step, knobs, rng)

    def estimates(self, knobs: Knobs) -> Estimates:
        """max Q, Q and the ε-greedy policy at present."""
        q, chance = self.tables.q, epsilon(knobs, self.tables.steps)
        return Estimates(q.max(1), q, np.stack([epsilon_greedy_policy(row, chance) for row in q]), "max Q")

    def measures(self, knobs: Knobs, states: np.ndarray) -> dict[str, float]:
        """The share of random actions, ε."""
        return {"epsilon": epsilon(knobs, self.tables.steps)}

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

    def recall(self, updates: Iterable[Sequence[Any]]) -> None:
        """Take up the last updates of an earlier learner, as they were read from a file."""
        self.tables.last = {row[0]: Update(*row) for row in updates}

    def continue_from(self, parent: TDLearner, same: bool) -> None:
        """Take up the Q of `parent`; if the method is not the `same` and has two tables, both begin as copies of it."""
        self.load(parent.state())
        self.tables.last = dict(parent.tables.last)
        if not same:
            self.tables.pair[:] = self.tables.q
