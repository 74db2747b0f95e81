"""The sizes of a Gymnasium environment, or one sentence why it cannot be used here."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from labcore.catalog.goal import Goal, of_task
from labcore.catalog.knob import Value, suggestion
from labcore.catalog.task import Task
from labcore.classic.envs import arguments as own
from labcore.classic.envs import own_modules
from labcore.errors import LabError, first_line, quoted
from labcore.runs.spec.run_spec import RunSpec

STEP_LIMIT = 1000  # where an environment has no time limit of its own
UNBOUNDED = 1e6  # larger bounds mean no bound: older environments write the largest float
MOST = 65536  # numbers of an observation
_COMMAND = re.compile(r"`(pip install [^`]+)`")
PACKAGES = {"ALE": "ale-py", "procgen": "procgen", "minigrid": "minigrid"}  # by their namespace


@dataclass(frozen=True)
class World:
    """The sizes of an environment: D numbers are observed; one of A actions is taken, or an action of A numbers.

    `scale` (D,) brings every bounded number into ±1 by a factor; 1 where there is no bound, empty where there is none
    at all. `states` is True if the observation is one of D states, written as D numbers: 1 for this state, else 0.
    `low` and `high` (A,) are the bounds to which continuous actions are clipped; empty for discrete actions.
    """

    env_id: str
    observation_size: int
    actions: int
    max_steps: int
    first_action: int = 0
    scale: tuple[float, ...] = ()
    states: bool = False
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    arguments: str = ""

    @property
    def continuous(self) -> bool:
        return bool(self.low)


def make_one(env_id: str, arguments: str = "") -> gym.Env:
    """One environment of that id with these arguments, and a time limit. Raises LabError if the id is unknown, it needs
    a package that is not installed, or an argument is wrong."""
    registered, given = own_modules.load(env_id), own.parse(arguments)
    _check_id(registered)
    own.check(registered, given)
    limit = given.pop(own.LIMIT, None) or gym.registry[registered].max_episode_steps or STEP_LIMIT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return gym.make(registered, max_episode_steps=limit, disable_env_checker=True, **given)
    except (ImportError, gym.error.Error) as error:
        commands = " and ".join(_COMMAND.findall(str(error))) or f"install it ({first_line(error)})"
        raise LabError(f"{env_id} needs a package that is not installed: {commands}, or take CartPole-v1.") from error
    except Exception as error:  # the environment's own code
        about = f" with {arguments}" if arguments else ""
        raise LabError(f"{env_id} cannot be made{about} ({type(error).__name__}: {first_line(error)}): correct "
                       f"{'the arguments' if arguments else 'its constructor'}.") from error


def _check_id(env_id: str) -> None:
    """Raises LabError if Gymnasium does not know the id."""
    if env_id in gym.registry:
        return
    space, slash, _ = env_id.rpartition("/")
    if slash and not any(known.startswith(f"{space}/") for known in gym.registry):
        raise LabError(f"{quoted(env_id)} is from the package {PACKAGES.get(space, space)}, which is not installed "
                       f"here: pip install {PACKAGES.get(space, space)}, or take CartPole-v1.")
    raise LabError(f"Gymnasium has no environment {quoted(env_id)}: {suggestion(env_id, _near(env_id))}")


def describe(env_id: str, arguments: str = "") -> World:
    """The sizes of the environment `env_id`; a process makes it once to find them. Raises LabError if it is unknown,
    cannot be made, or has spaces that the methods cannot use."""
    own_modules.load(env_id)  # allowed by this lab, whatever the process has imported before
    return described(env_id, arguments)


@lru_cache
def described(env_id: str, arguments: str) -> World:
    """`describe`, after a check that the environment's module may be imported."""
    env = make_one(env_id, arguments)
    try:
        return _world(env, env_id, arguments)
    finally:
        env.close()


def check(task: Task, knobs: Mapping[str, Value]) -> None:
    """Check that the methods can learn the task. Raises LabError if they cannot."""
    describe(task.key, str(knobs.get("env_args", "")))


def check_few_actions(task: Task, knobs: Mapping[str, Value]) -> None:
    """Check that a task's actions can be compared one by one, for methods that compare the values of all actions.
    Raises LabError if they are continuous."""
    if describe(task.key, str(knobs.get("env_args", ""))).continuous:
        raise LabError(f"{task.key} has continuous actions, but this method needs discrete ones: choose PPO, A2C, TRPO "
                       "or REINFORCE, or a world such as CartPole-v1.")


def caution(spec: RunSpec) -> str:
    """The reason, from its row in the catalog, why the method learns this environment badly; usually empty."""
    return spec.task_row.cautions.get(spec.algorithm, "")


def goal(spec: RunSpec) -> Goal:
    """The sentence about the goal of a run: from the catalog for known environments, else from the sizes of the
    environment. Raises LabError as `describe`."""
    if said := of_task(spec.task_row, spec.knobs):
        return Goal((f"The agent {said}.",))
    world = describe(spec.task, str(spec.knobs.get("env_args", "")))
    seen = f"one of {world.observation_size} states" if world.states else _numbers(world.observation_size)
    acts = f"chooses {_numbers(world.actions)}" if world.continuous else f"takes one of {world.actions} actions"
    return Goal((f"The agent sees {seen}, {acts}, and earns the rewards of {spec.task} for up to {world.max_steps:,} "
                 "steps.",))


def _numbers(count: int) -> str:
    return f"{count:,} number{'' if count == 1 else 's'}"


def _world(env: gym.Env, env_id: str, arguments: str) -> World:
    seen, acted = env.observation_space, env.action_space
    states = isinstance(seen, spaces.Discrete)
    flat = seen if isinstance(seen, (spaces.Box, spaces.Discrete)) else _flat(seen, env_id)
    size = int(spaces.flatdim(flat))
    if size > MOST:
        raise LabError(f"{env_id} observes {size:,} numbers, but the networks here take at most {MOST:,}: choose an "
                       "environment with smaller images, or one that observes its state.")
    scale = _scale(flat) if isinstance(flat, spaces.Box) else ()
    limit = env.spec.max_episode_steps if env.spec else None
    sizes: dict[str, Any] = {"max_steps": limit or STEP_LIMIT, "scale": scale, "states": states, "arguments": arguments}
    if isinstance(acted, spaces.Discrete):
        return World(env_id, size, int(acted.n), first_action=int(acted.start), **sizes)
    if not isinstance(acted, spaces.Box) or not np.issubdtype(acted.dtype, np.floating):
        raise LabError(f"{env_id} has {_kind(acted)} actions, but the methods here need discrete actions (Discrete) or "
                       "continuous numbers (Box): choose another environment, or wrap this one.")
    low, high = (tuple(bound.reshape(-1).astype(float).tolist()) for bound in (acted.low, acted.high))
    return World(env_id, size, len(low), low=low, high=high, **sizes)


def _flat(space: spaces.Space[Any], env_id: str) -> spaces.Box:
    """The space that `gymnasium.spaces.flatten` maps to, where it is one row of numbers."""
    try:
        flat = spaces.flatten_space(space) if space.is_np_flattenable else None
    except (NotImplementedError, ValueError, TypeError):
        flat = None
    if not isinstance(flat, spaces.Box):
        raise LabError(f"{env_id} observes a {type(space).__name__} of no fixed length, but the networks here take one "
                       "row of numbers: choose an environment whose observations flatten to a Box.")
    return flat


def _kind(space: spaces.Space[Any]) -> str:
    return "integer Box" if isinstance(space, spaces.Box) else type(space).__name__


def _scale(box: spaces.Box) -> tuple[float, ...]:
    """1 / max(|low|, |high|), or 1 where that is no bound: infinite, the largest float, or 0. -> (D,)"""
    bounds = np.maximum(abs(box.low.astype(np.float64)), abs(box.high.astype(np.float64))).reshape(-1)
    return tuple(1 / bound if 0 < bound < UNBOUNDED else 1.0 for bound in bounds.tolist())


def _near(word: str) -> list[str]:
    """Ids to suggest, the same name in another version first."""
    name = word.rpartition("-v")[0] or word
    same = [known for known in gym.registry if known.rpartition("-v")[0].lower() == name.lower()]
    usual = ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1", "FrozenLake-v1", "CliffWalking-v1",
             "Taxi-v4"]
    return same or [known for known in usual if known in gym.registry]
