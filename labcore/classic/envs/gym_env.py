"""Any Gymnasium environment with discrete actions, many copies side by side, each reset within the step that ends it.

`step` gives the true next observation, also where the episode ended there; `observations` is then what to act on.
`state()` is JSON-clean and complete: `load_state` continues bit for bit. Left out: continuous actions, pixels,
normalised observations.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from labcore.classic.envs import acrobot
from labcore.classic.envs.gym_world import World, describe, make_one

ACROBOT = "gymnasium.envs.classic_control.acrobot:AcrobotEnv"


class Step(NamedTuple):
    """The results of one action in each of E environments. `next_observations` are those before any reset."""

    next_observations: np.ndarray  # (E, D) float32
    rewards: np.ndarray  # (E,) float32
    terminated: np.ndarray  # (E,) bool: the episode is over; nothing follows
    truncated: np.ndarray  # (E,) bool: the time limit ended it; the next observation still has a value


class Environments(Protocol):
    """E environments side by side."""

    world: World
    count: int
    observations: np.ndarray  # (E, D) float32

    def reset(self) -> None:
        """Begin a new episode everywhere."""

    def step(self, actions: np.ndarray) -> Step:
        """Take the actions (E,), counted from 0."""

    def state(self) -> dict[str, Any]:
        """All that the future depends on, JSON-clean."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state()` of another instance."""


def make_environments(env_id: str, count: int, seed: int) -> Environments:
    """`count` environments of that id, the first episodes begun.

    Gymnasium's own vectorised CartPole and the lab's Acrobot where these are asked for; any other id is stepped one
    after the other.

    Raises:
        LabError: see `describe`.
    """
    world = describe(env_id)
    entry = gym.registry[env_id].vector_entry_point
    if isinstance(entry, str) and entry.endswith(f":{CartPoleVectorEnv.__name__}"):
        return CartPoleEnvironments(world, count, seed)
    if gym.registry[env_id].entry_point == ACROBOT and not gym.registry[env_id].kwargs:
        return AcrobotEnvironments(world, count, seed)
    return SingleEnvironments(world, count, seed)


class CartPoleEnvironments:
    """Gymnasium's numpy CartPole. It resets in the step after the end; here that is done within the step."""

    def __init__(self, world: World, count: int, seed: int):
        self.world, self.count = world, count
        self._env = CartPoleVectorEnv(count, max_episode_steps=world.max_steps)
        self.observations, _ = self._env.reset(seed=seed)

    @property
    def _state(self) -> np.ndarray:
        """(4, E). Gymnasium declares None, which it is only before the first `reset`."""
        return cast(np.ndarray, self._env.state)

    def reset(self) -> None:
        self.observations, _ = self._env.reset()

    def step(self, actions: np.ndarray) -> Step:
        env = self._env
        following, rewards, terminated, truncated, _ = env.step(actions)
        self.observations = following
        if env.prev_done.any():
            ended = env.prev_done
            self._state[:, ended] = env.np_random.uniform(env.low, env.high, (4, int(ended.sum())))
            env.steps[ended] = 0
            env.prev_done = np.zeros_like(ended)
            self.observations = self._state.T.astype(np.float32)
        return Step(following, rewards, terminated, truncated & ~terminated)

    def state(self) -> dict[str, Any]:
        env = self._env
        return {"state": self._state.tolist(), "steps": env.steps.tolist(), "rng": env.np_random.bit_generator.state}

    def load_state(self, state: dict[str, Any]) -> None:
        env = self._env
        self._state[:] = state["state"]
        env.steps = np.array(state["steps"], np.int32)
        env.prev_done = np.zeros(self.count, bool)
        env.np_random.bit_generator.state = state["rng"]
        self.observations = self._state.T.astype(np.float32)


class SingleEnvironments:
    """Environments stepped one by one.

    Gymnasium has no way to save one. So every episode begins with a seed of its own, and its state is that seed and
    the actions since: loading takes the same actions again.
    """

    def __init__(self, world: World, count: int, seed: int):
        self.world, self.count = world, count
        self._envs = [make_one(world.env_id) for _ in range(count)]
        self._space = self._envs[0].observation_space
        self._rng = np.random.default_rng(seed)
        self._seeds = [0] * count
        self._actions: list[list[int]] = [[] for _ in range(count)]
        self.observations = np.zeros((count, world.observation_size), np.float32)
        self.reset()

    def reset(self) -> None:
        for index in range(self.count):
            self._begin(index, int(self._rng.integers(2**31)))

    def step(self, actions: np.ndarray) -> Step:
        count = self.count
        following, rewards = np.zeros_like(self.observations), np.zeros(count, np.float32)
        terminated, truncated = np.zeros((2, count), bool)
        for index, action in enumerate(actions.tolist()):
            self._actions[index].append(action)
            seen, rewards[index], ended, cut, _ = self._envs[index].step(action + self.world.first_action)
            following[index], terminated[index], truncated[index] = self._row(seen), ended, cut and not ended
        self.observations = following.copy()
        for over in np.flatnonzero(terminated | truncated):
            self._begin(int(over), int(self._rng.integers(2**31)))
        return Step(following, rewards, terminated, truncated)

    def _begin(self, index: int, seed: int) -> None:
        self._seeds[index], self._actions[index] = seed, []
        self.observations[index] = self._row(self._envs[index].reset(seed=seed)[0])

    def _row(self, seen: Any) -> np.ndarray:
        """An observation as D numbers; the n-th of a Discrete space as a one at n among zeros."""
        if isinstance(self._space, spaces.Discrete):
            place = int(seen) - int(self._space.start)
            return np.eye(1, int(self._space.n), place, dtype=np.float32).reshape(-1)
        return np.asarray(seen, np.float32).reshape(-1)

    def state(self) -> dict[str, Any]:
        return {"seeds": list(self._seeds), "actions": [list(taken) for taken in self._actions],
                "rng": self._rng.bit_generator.state}

    def load_state(self, state: dict[str, Any]) -> None:
        for index, (seed, actions) in enumerate(zip(state["seeds"], state["actions"], strict=True)):
            self._begin(index, seed)
            for action in actions:
                seen = self._envs[index].step(action + self.world.first_action)[0]
                self.observations[index] = self._row(seen)
            self._actions[index] = list(actions)
        self._rng.bit_generator.state = state["rng"]


class AcrobotEnvironments(SingleEnvironments):
    """Gymnasium's Acrobot, where all copies take their step at once. Seeds, numbers and `state()` are those of
    `SingleEnvironments`.
    """

    def __init__(self, world: World, count: int, seed: int):
        self._links = np.zeros((4, count))  # θ₁, θ₂ in rad, θ̇₁, θ̇₂ in rad/s
        super().__init__(world, count, seed)

    def step(self, actions: np.ndarray) -> Step:
        self._links = acrobot.dynamics(self._links, actions)
        for taken, action in zip(self._actions, actions.tolist(), strict=True):
            taken.append(action)
        following, terminated = acrobot.observed(self._links), acrobot.reached(self._links)
        truncated = np.array([len(taken) >= self.world.max_steps for taken in self._actions]) & ~terminated
        self.observations = following.copy()
        for index in np.flatnonzero(terminated | truncated):
            self._begin(int(index), int(self._rng.integers(2**31)))
        return Step(following, np.where(terminated, 0, -1).astype(np.float32), terminated, truncated)

    def _begin(self, index: int, seed: int) -> None:
        super()._begin(index, seed)
        self._links[:, index] = self._envs[index].get_wrapper_attr("state")

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self._links = np.stack([env.get_wrapper_attr("state") for env in self._envs], axis=1).astype(np.float64)
