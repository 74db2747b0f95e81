"""A softmax policy and its V in tables, which walk and which a method of `policy_gradient` updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from labcore.classic.envs.mdp import Array
from labcore.classic.tabular.estimates import Estimates
from labcore.classic.tabular.policy_maths import Steps, entropy_gradient, softmax
from labcore.classic.tabular.walks import Knobs, Step, sample


class PolicyUpdate(NamedTuple):
    """The last update that a step of a state took part in: δ = r + γ V(s') − V(s) with the V before it, the `weight` of
    ∇ log π (Ψ or A, with γ^t where the states are discounted), and π(a|s) before and after."""

    state: int
    action: int
    reward: float
    gamma: float
    next_value: float
    value: float
    delta: float
    weight: float
    before: float
    after: float

    def arithmetic(self) -> str:
        """The update with its numbers.

        >>> PolicyUpdate(0, 1, 1.0, 0.9, 5.0, 2.0, 3.5, 3.5, 0.25, 0.5).arithmetic()
        'δ = 1 + 0.9 × 5 − 2 = 3.5, weight 3.5: π 0.25 → 0.5'
        """
        less = f"+ {-self.value:.4g}" if self.value < 0 else f"− {self.value:z.4g}"
        return (f"δ = {self.reward:z.4g} + {self.gamma:z.4g} × {self.next_value:z.4g} {less} = {self.delta:z.4g}, "
                f"weight {self.weight:z.4g}: π {self.before:z.4g} → {self.after:z.4g}").replace("-", "−")

    def written(self, arrow: str) -> str:
        """The update of the move `arrow`."""
        return f"{arrow}: {self.arithmetic()}"


@dataclass(eq=False)
class PolicyTables:
    """θ (S, A) with its π, V (S,), the steps since the last update, the last update that began in each state, and those
    that the newest call of the method made, in the order of the steps.
    """

    theta: Array
    values: Array = field(init=False)
    policy: Array = field(init=False)
    batch: list[Step] = field(default_factory=list)
    finished: int = 0
    steps: int = 0
    last: dict[int, PolicyUpdate] = field(default_factory=dict)
    made: list[PolicyUpdate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values, self.policy = np.zeros(len(self.theta)), softmax(self.theta)

    def gather(self, step: Step, knobs: Knobs) -> Steps | None:
        """The steps since the last update once `episodes_per_update` episodes have ended, else None."""
        self.batch.append(step)
        self.finished += step.ended
        if not step.ended or self.finished < knobs["episodes_per_update"]:
            return None
        steps = Steps.of(self.batch)
        self.batch.clear()
        self.finished = 0
        return steps

    def ascend(self, gradient: Array, steps: Steps, knobs: Knobs, count: int) -> None:
        """θ ← θ + α (g + c Σ_t ∇H(π(·|s_t))) / `count`, both sums over the batch."""
        bonus = np.zeros_like(gradient)
        np.add.at(bonus, steps.states, entropy_gradient(self.policy[steps.states]))
        self.theta += knobs["alpha"] * (gradient + knobs["entropy_coef"] * bonus) / count
        self.policy = softmax(self.theta)

    def fit_values(self, steps: Steps, targets: Array, knobs: Knobs) -> None:
        """V(s) ← V(s) + α_V (mean of the targets seen from s − V(s)). (T,)"""
        count = np.bincount(steps.states, minlength=len(self.values))
        total = np.bincount(steps.states, targets, len(self.values))
        seen = count > 0
        self.values[seen] += knobs["value_alpha"] * (total[seen] / count[seen] - self.values[seen])

    def note(self, steps: Steps, weights: Array, gamma: float, values: Array, before: Array) -> None:
        """Keep the updates of this batch, made with the V and π before it."""
        following = np.where(steps.terminated, 0.0, values[steps.next_states])
        own = values[steps.states]
        where = steps.states, steps.actions
        columns = (steps.states, steps.actions, steps.rewards, np.full(len(own), gamma), following, own,
                   steps.rewards + gamma * following - own, weights, before[where], self.policy[where])
        for row in zip(*(column.tolist() for column in columns), strict=True):
            self.made.append(PolicyUpdate(*row))
            self.last[row[0]] = self.made[-1]


Method = Callable[[PolicyTables, Step, Knobs], None]


class PolicyLearner:
    """A method and its tables, as `walks.walk` wants them."""

    def __init__(self, method: Method, states: int, actions: int) -> None:
        self.tables = PolicyTables(np.zeros((states, actions)))
        self._method = method

    @property
    def waiting(self) -> bool:
        """True if steps wait for an update."""
        return bool(self.tables.batch)

    def begin(self) -> None:
        """Begin an episode. Nothing of the last one is kept but its steps in the batch, which may hold several
        episodes."""

    def choose(self, state: int, knobs: Knobs, rng: np.random.Generator) -> int:
        return sample(self.tables.policy[state].tolist(), rng)

    def learn(self, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
        self.tables.steps += 1
        self.tables.made.clear()
        self._method(self.tables, step, knobs)

    def estimates(self, knobs: Knobs) -> Estimates:
        """V and π at present."""
        return Estimates(self.tables.values, None, self.tables.policy.copy(), "V")

    def measures(self, knobs: Knobs, states: np.ndarray) -> dict[str, float]:
        """The policy's randomness: its mean entropy over some states. bool (S,)"""
        chances = self.tables.policy[states]
        return {"entropy/action": float(-(chances * np.log(np.maximum(chances, 1e-300))).sum(1).mean())}

    def state(self) -> dict[str, np.ndarray]:
        """All that the next episode depends on, as arrays; taken between two episodes.

        `batch` (n, 7) holds the steps of episodes that wait for an update.
        """
        tables = self.tables
        return {"theta": tables.theta.copy(), "values": tables.values.copy(), "steps": np.array(tables.steps),
                "batch": np.array(tables.batch, dtype=np.float64).reshape(-1, len(Step._fields))}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Take up what `state` gave."""
        tables = self.tables
        tables.theta[:], tables.values[:], tables.steps = state["theta"], state["values"], int(state["steps"])
        tables.policy = softmax(tables.theta)
        tables.batch = [Step(int(time), int(place), int(action), reward, int(following), bool(end), bool(cut))
                        for time, place, action, reward, following, end, cut in state["batch"].tolist()]
        tables.finished = sum(step.ended for step in tables.batch)

    def recall(self, updates: Iterable[Sequence[Any]]) -> None:
        """Take up the last updates of an earlier learner, as they were read from a file."""
        self.tables.last = {row[0]: PolicyUpdate(*row) for row in updates}

    def continue_from(self, parent: PolicyLearner, same: bool) -> None:
        """Take up the θ and V of `parent`, whether its method is the `same` or not."""
        self.load(parent.state())
        self.tables.last = dict(parent.tables.last)
