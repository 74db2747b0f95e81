"""Any Gymnasium environment, many copies side by side, each reset within the step that ends it.

`step` gives the true next observation, also where the episode ended there; `observations` is then what to act on.
`state()` is JSON-clean and complete: `load_state` continues bit for bit. Left out: convolutions for pictures, actions
that are neither one of a few nor a Box.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, NamedTuple, Protocol, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from labcore.classic.envs import acrobot, pendulum
from labcore.classic.envs.gym_world import World, describe, make_one
from labcore.errors import LabError, first_line, quoted

# Those whose equations the lab computes for all copies at once, by the class of Gymnasium.
TOGETHER = {"gymnasium.envs.classic_control.acrobot:AcrobotEnv": acrobot,
            "gymnasium.envs.classic_control.pendulum:PendulumEnv": pendulum}


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
        """Take the actions: (E,), counted from 0, or (E, A) where they are continuous."""

    def state(self) -> dict[str, Any]:
        """All data on which the future depends, JSON-clean."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state()` of another instance."""


def make_environments(env_id: str, count: int, seed: int, arguments: str = "") -> Environments:
    """`count` environments of that id with these arguments, the first episodes begun.

    Gymnasium's own vectorised CartPole and the lab's Acrobot and Pendulum are used for their ids; the copies of any
    other environment are stepped one after the other. Raises LabError as `describe`.
    """
    world = describe(env_id, arguments)
    about = gym.registry.get(env_id)  # None for an environment in a module of the user's
    if about is None or arguments:
        return SingleEnvironments(world, count, seed)
    entry = about.vector_entry_point
    if isinstance(entry, str) and entry.endswith(f":{CartPoleVectorEnv.__name__}"):
        return CartPoleEnvironments(world, count, seed)
    if about.entry_point in TOGETHER and not about.kwargs:
        return TogetherEnvironments(world, count, seed)
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

    Gymnasium cannot save an environment. So every episode begins with its own seed, and its state is that seed and the
    actions since. Loading a state takes the same actions again.
    """

    def __init__(self, world: World, count: int, seed: int):
        self.world, self.count = world, count
        self._envs = [make_one(world.env_id, world.arguments) for _ in range(count)]
        self._space, self._acted = self._envs[0].observation_space, self._envs[0].action_space
        self._rng = np.random.default_rng(seed)
        self._seeds = [0] * count
        self._actions: list[list[Any]] = [[] for _ in range(count)]
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
            seen, reward, ended, cut, _ = self._take(index, action)
            if not isfinite(reward):
                raise LabError(f"{self.world.env_id} gave the reward {reward} in step {len(self._actions[index])} of "
                               "an episode: correct it, so that every reward is a finite number.")
            following[index], rewards[index] = self._row(seen), reward
            terminated[index], truncated[index] = ended, cut and not ended
        self.observations = following.copy()
        for over in np.flatnonzero(terminated | truncated):
            self._begin(int(over), int(self._rng.integers(2**31)))
        return Step(following, rewards, terminated, truncated)

    def _begin(self, index: int, seed: int) -> None:
        self._seeds[index], self._actions[index] = seed, []
        try:
            seen = self._envs[index].reset(seed=seed)[0]
        except Exception as error:  # the environment's own code
            raise self._broken("reset", error) from error
        self.observations[index] = self._row(seen)

    def _take(self, index: int, action: Any) -> tuple[Any, float, bool, bool, Any]:
        """A step of one environment. Continuous actions are clipped to its bounds, as Stable-Baselines3 does."""
        box = self._acted
        taken = (np.clip(np.array(action, box.dtype).reshape(box.shape), box.low, box.high)
                 if isinstance(box, spaces.Box) else action + self.world.first_action)
        try:
            seen, reward, ended, cut, more = self._envs[index].step(taken)
            return seen, float(reward), bool(ended), bool(cut), more
        except Exception as error:  # the environment's own code
            raise self._broken(f"step {len(self._actions[index])} of an episode", error) from error

    def _broken(self, where: str, error: Exception) -> LabError:
        return LabError(f"{self.world.env_id} failed in {where} ({type(error).__name__}: {first_line(error)}): correct "
                        "the environment, then start the run again.")

    def _row(self, seen: Any) -> np.ndarray:
        """An observation as D numbers; the n-th of a Discrete space as a one at n among zeros."""
        if isinstance(self._space, spaces.Discrete):
            place = int(seen) - int(self._space.start)
            return np.eye(1, int(self._space.n), place, dtype=np.float32).reshape(-1)
        try:
            plain = isinstance(self._space, spaces.Box)
            row = np.asarray(seen if plain else spaces.flatten(self._space, seen), np.float32).reshape(-1)
        except Exception as error:  # an observation that is none of its space
            raise self._broken("an observation", error) from error
        if len(row) != self.world.observation_size or not np.isfinite(row).all():
            raise LabError(f"{self.world.env_id} gave the observation {quoted(row.tolist())}, and its space has "
                           f"{self.world.observation_size} finite numbers: correct the environment.")
        return row

    def state(self) -> dict[str, Any]:
        return {"seeds": list(self._seeds), "actions": [list(taken) for taken in self._actions],
                "rng": self._rng.bit_generator.state}

    def load_state(self, state: dict[str, Any]) -> None:
        for index, (seed, actions) in enumerate(zip(state["seeds"], state["actions"], strict=True)):
            self._begin(index, seed)
            for action in actions:
                self.observations[index] = self._row(self._take(index, action)[0])
            self._actions[index] = list(actions)
        self._rng.bit_generator.state = state["rng"]


class Physics(Protocol):
    """The equations of a world, for E copies at once. A state is (S, E) float64."""

    SIZE: int  # S

    def advance(self, state: np.ndarray, actions: np.ndarray, /) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The state one time step later, the rewards float32 (E,), and whether the episode is over, bool (E,)."""

    def observed(self, state: np.ndarray, /) -> np.ndarray:
        """The observation of the state. (S, E) -> float32 (E, D)"""


class TogetherEnvironments(SingleEnvironments):
    """Gymnasium environments whose copies all step at once. Seeds, numbers and `state()` are those of
    `SingleEnvironments`."""

    def __init__(self, world: World, count: int, seed: int):
        self._physics: Physics = TOGETHER[str(gym.registry[world.env_id].entry_point)]
        self._state = np.zeros((self._physics.SIZE, count))
        super().__init__(world, count, seed)

    def step(self, actions: np.ndarray) -> Step:
        self._state, rewards, terminated = self._physics.advance(self._state, actions)
        for taken, action in zip(self._actions, actions.tolist(), strict=True):
            taken.append(action)
        following = self._physics.observed(self._state)
        truncated = np.array([len(taken) >= self.world.max_steps for taken in self._actions]) & ~terminated
        self.observations = following.copy()
        for index in np.flatnonzero(terminated | truncated):
            self._begin(int(index), int(self._rng.integers(2**31)))
        return Step(following, rewards, terminated, truncated)

    def _begin(self, index: int, seed: int) -> None:
        super()._begin(index, seed)
        self._state[:, index] = self._envs[index].get_wrapper_attr("state")

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self._state = np.stack([env.get_wrapper_attr("state") for env in self._envs], axis=1).astype(np.float64)
