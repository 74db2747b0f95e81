"""Learning a softmax policy with one number θ(s,a) for each action of each state: REINFORCE, actor-critic, PPO.

The gradients are written out: ∇θ(s,·) log π(a|s) = 1_a − π(·|s), so every method is an equation over numpy arrays.
`METHODS` names them all, `PolicyLearner` lets one of them walk. The knobs are read at every update: `alpha` (of θ),
`value_alpha` (of V), `gamma`, `entropy_coef`, `episodes_per_update` and, for PPO, `gae_lambda`, `clip_range`, `epochs`
and `standardise`.

The true gradient of V(start) weighs the step at time t with γ^t. `discount_states` 1 does so; 0, as deep methods do,
leaves the weight out, which learns faster far from the start but is no gradient where γ < 1.

REINFORCE and the actor-critic climb Σ_t of an episode, PPO the mean over steps, as published: its `alpha` is larger.

Left out: mini-batches and value clipping. A table needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from labcore.envs.mdp import MDP, Array
from labcore.tabular.walks import Step, sample

Knobs = Mapping[str, float]


def softmax(theta: Array) -> Array:
    """π(a|s) = exp θ(s,a) / Σ_b exp θ(s,b). (..., A) -> (..., A)"""
    powers = np.exp(theta - theta.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


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
    entropy = -(policy * logs).sum(-1, keepdims=True)
    return -policy * (logs + entropy)


def exact_policy_gradient(mdp: MDP, theta: Array, start: int, gamma: float) -> Array:
    """∇θ V_π(start) = d(s) π(a|s) (Q_π(s,a) − V_π(s)), with d = (I − γ P_πᵀ)⁻¹ 1_start. (S, A) -> (S, A)

    In reward. What the sampled gradients are estimates of, where `discount_states` is 1.

    Source: Sutton et al. 2000, "Policy gradient methods", NeurIPS, theorem 1.
    """
    policy = softmax(theta)
    transitions, rewards = mdp.under(policy)
    ahead = np.eye(len(policy)) - gamma * transitions
    values = np.linalg.solve(ahead, rewards)
    visits = np.linalg.solve(ahead.T, np.eye(len(policy))[start])
    gradient = visits[:, None] * policy * (mdp.action_values(values, gamma) - values[:, None])
    return np.where(mdp.terminal[:, None], 0.0, gradient)


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
    deltas = steps.rewards + gamma * following - values[steps.states]
    advantages, advantage = np.empty_like(deltas), 0.0
    for t in reversed(range(len(deltas))):
        advantage = deltas[t] + gamma * gae_lambda * (0.0 if steps.ended[t] else advantage)
        advantages[t] = advantage
    return advantages


# What each step of an episode is praised for: (steps, V, γ, weights) -> (T,), weights those of `state_weights`.
Psi = Callable[[Steps, Array, float, Array], Array]


def state_weights(steps: Steps, knobs: Knobs) -> Array:
    """w_t = γ^t where `discount_states` is 1, else 1. -> (T,)"""
    return knobs["gamma"] ** steps.times if knobs["discount_states"] else np.ones(len(steps.times))


def returns(steps: Steps, values: Array, gamma: float) -> Array:
    """G_t = r_t + γ G_{t+1}; where time was up the last G is V of where it stopped. (S,) -> (T,)

    In reward.

    Source: Sutton and Barto 2018, Reinforcement Learning, eq. 3.9.
    """
    return gae(steps, values, gamma, 1.0) + values[steps.states]


def total_return(steps: Steps, values: Array, gamma: float, weights: Array) -> Array:
    """Ψ_t = G_0: each step is praised for the whole episode, seen from its start, so no weight is due. (S,) -> (T,)

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
    return weights * (returns(steps, values, gamma) - values[steps.states])


def clipped_score(policy: Array, old_policy: Array, steps: Steps, advantages: Array, clip_range: float) -> Array:
    """∇θ Σ_t min(ρ_t A_t, clip(ρ_t, 1 − ε, 1 + ε) A_t), ρ = π/π_old. (S, A) x 2, (T,) -> (S, A)

    Where the clipped term is the smaller nothing pulls: what is left is ρ_t A_t ∇ log π(a_t|s_t) of the others.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7.
    """
    where = steps.states, steps.actions  # first: elsewhere a chance may have become 0
    ratio = policy[where] / old_policy[where]
    pulls = np.where(advantages > 0, ratio <= 1 + clip_range, ratio >= 1 - clip_range)
    return score(policy, steps.states, steps.actions, pulls * ratio * advantages)


class PolicyUpdate(NamedTuple):
    """The last update that a step of a state took part in: δ = r + γ V(s') − V(s) with the V before it, what the step
    was praised for (`praise`, Ψ or A with its weight), and π(a|s) before and after."""

    state: int
    action: int
    reward: float
    gamma: float
    next_value: float
    value: float
    delta: float
    praise: float
    before: float
    after: float

    def arithmetic(self) -> str:
        """The update with its numbers.

        >>> PolicyUpdate(0, 1, 1.0, 0.9, 5.0, 2.0, 3.5, 3.5, 0.25, 0.5).arithmetic()
        'δ = 1 + 0.9 × 5 − 2 = 3.5, praise 3.5: π 0.25 → 0.5'
        """
        less = f"+ {-self.value:.4g}" if self.value < 0 else f"− {self.value:.4g}"
        return (f"δ = {self.reward:.4g} + {self.gamma:.4g} × {self.next_value:.4g} {less} = {self.delta:.4g}, "
                f"praise {self.praise:.4g}: π {self.before:.4g} → {self.after:.4g}").replace("-", "−")


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

    def note(self, steps: Steps, praise: Array, gamma: float, values: Array, before: Array) -> None:
        """Keep the updates of this batch, made with the V and π before it."""
        following = np.where(steps.terminated, 0.0, values[steps.next_states])
        own = values[steps.states]
        where = steps.states, steps.actions
        columns = (steps.states, steps.actions, steps.rewards, np.full(len(own), gamma), following, own,
                   steps.rewards + gamma * following - own, praise, before[where], self.policy[where])
        for row in zip(*(column.tolist() for column in columns), strict=True):
            self.made.append(PolicyUpdate(*row))
            self.last[row[0]] = self.made[-1]


PSI: dict[str, Psi] = {"total_return": total_return, "reward_to_go": reward_to_go, "baseline": with_baseline}


def reinforce(tables: PolicyTables, step: Step, knobs: Knobs) -> None:
    """θ ← θ + α 1/N Σ_t Ψ_t ∇θ log π(a_t|s_t) at the end of N episodes; V(s) moves towards the returns.

    `knobs["psi"]` names Ψ.

    V is the baseline where there is one, and what follows where time was up.

    Source: Williams 1992, Machine Learning 8:229.
    """
    steps = tables.gather(step, knobs)
    if steps is None:
        return
    gamma, values, before = knobs["gamma"], tables.values.copy(), tables.policy
    praise = PSI[knobs["psi"]](steps, values, gamma, state_weights(steps, knobs))
    tables.ascend(score(before, steps.states, steps.actions, praise), steps, knobs, steps.ended.sum())
    tables.fit_values(steps, returns(steps, values, gamma), knobs)
    tables.note(steps, praise, gamma, values, before)


def actor_critic(tables: PolicyTables, step: Step, knobs: Knobs) -> None:
    """V(s) ← V(s) + α_V δ, θ ← θ + α w_t δ ∇θ log π(a|s), with δ = r + γ V(s') − V(s), at every step.

    Source: Sutton and Barto 2018, Reinforcement Learning, section 13.5 (one-step actor-critic).
    """
    state, action, gamma = step.state, step.action, knobs["gamma"]
    value = float(tables.values[state])
    next_value = 0.0 if step.terminated else float(tables.values[step.next_state])
    delta = step.reward + gamma * next_value - value
    praise = delta * (gamma**step.time if knobs["discount_states"] else 1.0)
    tables.values[state] += knobs["value_alpha"] * delta
    row = tables.policy[state]
    direction = praise * ((np.arange(len(row)) == action) - row) + knobs["entropy_coef"] * entropy_gradient(row)
    tables.theta[state] += knobs["alpha"] * direction
    before, tables.policy[state] = float(row[action]), softmax(tables.theta[state])
    tables.made.append(PolicyUpdate(state, action, step.reward, gamma, next_value, value, delta, praise, before,
                                    float(tables.policy[state, action])))
    tables.last[state] = tables.made[-1]


def ppo(tables: PolicyTables, step: Step, knobs: Knobs) -> None:
    """K times θ ← θ + α ∇θ mean_t min(ρ_t A_t, clip(ρ_t, 1 − ε, 1 + ε) A_t), with the A and π_old of the batch.

    A by generalised advantage estimation, divided by its root mean square where `standardise` is 1; V(s) moves
    towards A + V before that.

    Source: Schulman et al. 2017, arXiv:1707.06347, algorithm 1.
    """
    steps = tables.gather(step, knobs)
    if steps is None:
        return
    gamma, values, before = knobs["gamma"], tables.values.copy(), tables.policy
    advantages = gae(steps, values, gamma, knobs["gae_lambda"])
    praise = advantages * state_weights(steps, knobs)
    if knobs["standardise"]:
        praise = praise / (np.sqrt((praise**2).mean()) + 1e-8)  # not centred: moves that are all good stay so
    for _ in range(int(knobs["epochs"])):
        pull = clipped_score(tables.policy, before, steps, praise, knobs["clip_range"])
        tables.ascend(pull, steps, knobs, len(steps.states))
        tables.fit_values(steps, advantages + values[steps.states], knobs)
    tables.note(steps, praise, gamma, values, before)


Method = Callable[[PolicyTables, Step, Knobs], None]

METHODS: dict[str, Method] = {
    "reinforce": reinforce,
    "actor_critic": actor_critic,
    "ppo": ppo}


class PolicyLearner:
    """A method and its tables, as `walks.walk` wants them."""

    def __init__(self, method: Method, states: int, actions: int) -> None:
        self.tables = PolicyTables(np.zeros((states, actions)))
        self._method = method

    @property
    def waiting(self) -> bool:
        """Whether steps wait for an update."""
        return bool(self.tables.batch)

    def begin(self) -> None:
        """Nothing of an episode is kept but the batch, which may hold several."""

    def choose(self, state: int, knobs: Knobs, rng: np.random.Generator) -> int:
        return sample(self.tables.policy[state].tolist(), rng)

    def learn(self, step: Step, knobs: Knobs, rng: np.random.Generator) -> None:
        self.tables.steps += 1
        self.tables.made.clear()
        self._method(self.tables, step, knobs)

    def policy(self, knobs: Knobs) -> Array:
        """π at present. -> (S, A)"""
        return self.tables.policy.copy()

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
