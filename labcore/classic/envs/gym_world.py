"""The sizes of a Gymnasium environment, or one sentence why it cannot be used here."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from labcore.catalog.goal import Goal, of_task
from labcore.catalog.knob import Value, suggestion
from labcore.catalog.task import Task
from labcore.errors import LabError, first_line, quoted
from labcore.runs.spec.run_spec import RunSpec

STEP_LIMIT = 1000  # where an environment has no time limit of its own
# Where all environments have continuous actions: their classes cannot be asked without the packages that they need.
CONTINUOUS = re.compile(r"^gymnasium\.envs\.(mujoco|box2d\.(bipedal_walker|car_racing)|phys2d\.pendulum)\b"
                        r"|_raise_mujoco_py_error")
UNBOUNDED = 1e6  # a bound from here on says nothing of what is usual: older environments write the largest float


@dataclass(frozen=True)
class World:
    """The sizes of an environment: D numbers are observed, one of A actions is taken.

    `scale` (D,) brings every bounded number into ±1 by a factor; 1 where there is no bound, empty where there is none
    at all. `states` where what is observed is one of D states: a one at its place among zeros.
    """

    env_id: str
    observation_size: int
    actions: int
    max_steps: int
    first_action: int = 0
    scale: tuple[float, ...] = ()
    states: bool = False


def make_one(env_id: str) -> gym.Env:
    """One environment of that id, with a time limit.

    Raises:
        LabError: the id is unknown, or needs a package that is not installed.
    """
    if env_id not in gym.registry:
        raise LabError(f"Gymnasium has no environment {quoted(env_id)}: {suggestion(env_id, _discrete_ids(env_id))}")
    limit = gym.registry[env_id].max_episode_steps or STEP_LIMIT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return gym.make(env_id, max_episode_steps=limit, disable_env_checker=True)
    except (ImportError, gym.error.Error) as error:
        if _is_continuous(env_id):  # then no package helps
            raise _no_few_actions(env_id, "continuous actions") from error
        raise LabError(f"{env_id} needs a package that is not installed ({first_line(error)}): install it, or take "
                       "CartPole-v1.") from error


@lru_cache
def describe(env_id: str) -> World:
    """The sizes of the environment `env_id`, which is made once in a process to find them.

    Raises:
        LabError: it is unknown, cannot be made, or has spaces that the methods cannot use.
    """
    env = make_one(env_id)
    try:
        return _world(env, env_id)
    finally:
        env.close()


def check(task: Task, knobs: Mapping[str, Value]) -> None:
    """Raises LabError where the task is no environment that the methods can learn."""
    describe(task.key)


def goal(spec: RunSpec) -> Goal:
    """The sentence about the goal of a run: from the catalog for known environments, else from the sizes of the
    environment. Raises LabError as `describe`."""
    if said := of_task(spec.task_row, spec.knobs):
        return Goal((f"The agent {said}.",))
    world = describe(spec.task)
    seen = "one of {} states" if world.states else "{} numbers"
    return Goal((f"The agent sees {seen.format(world.observation_size)}, takes one of {world.actions} actions, and "
                 f"earns the rewards of {spec.task} for up to {world.max_steps:,} steps.",))


def _world(env: gym.Env, env_id: str) -> World:
    seen, acted = env.observation_space, env.action_space
    if not isinstance(acted, spaces.Discrete):
        kind = "continuous actions" if isinstance(acted, spaces.Box) else f"{type(acted).__name__} actions"
        raise _no_few_actions(env_id, kind)
    if isinstance(seen, spaces.Discrete):
        size: int = int(seen.n)
        scale: tuple[float, ...] = ()
    elif isinstance(seen, spaces.Box) and len(seen.shape) <= 2:
        size, scale = prod(seen.shape), _scale(seen)
    else:
        kind = "pixels" if isinstance(seen, spaces.Box) else f"a {type(seen).__name__}"
        raise LabError(f"{env_id} observes {kind}, and the networks here take one row of numbers: take an environment "
                       "with a Discrete or a flat Box observation space.")
    return World(env_id, size, int(acted.n), gym.registry[env_id].max_episode_steps or STEP_LIMIT, int(acted.start),
                 scale, isinstance(seen, spaces.Discrete))


def _no_few_actions(env_id: str, actions: str) -> LabError:
    return LabError(f"{env_id} has {actions}, and the methods here need a discrete set: choose CartPole-v1, Acrobot-v1 "
                    "or another environment with a Discrete action space.")


def _is_continuous(env_id: str) -> bool:
    """True if one of Gymnasium's own environments is known to have continuous actions, also where it cannot be made."""
    about = gym.registry[env_id]
    return bool(CONTINUOUS.search(str(about.entry_point))) or bool(about.kwargs.get("continuous"))


def _scale(box: spaces.Box) -> tuple[float, ...]:
    """1 / max(|low|, |high|), or 1 where that is no bound: infinite, the largest float, or 0. -> (D,)"""
    bounds = np.maximum(abs(box.low), abs(box.high)).reshape(-1).astype(np.float64)
    return tuple(1 / bound if 0 < bound < UNBOUNDED else 1.0 for bound in bounds.tolist())


def _discrete_ids(word: str) -> list[str]:
    """Ids to suggest, the same name in another version first."""
    name = word.rpartition("-v")[0] or word
    same = [known for known in gym.registry if known.rpartition("-v")[0].lower() == name.lower()]
    usual = ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"]
    return same or [known for known in usual if known in gym.registry]
