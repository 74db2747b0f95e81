"""The walk that all tabular learners share: choose, step, learn, yield; it does not depend on the learner.

A learner keeps its tables and sees every step; all random numbers come from one generator, the environment's too.
A walk always starts with a new episode, so a learner saved at the end of an episode continues bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import gymnasium
import numpy as np

from labcore.classic.envs.maze_env import Number

Knobs = Mapping[str, float]


class Step(NamedTuple):
    """One step: in `state` (the `time`-th of the episode, from 0) `action` gave `reward` and led to `next_state`.

    `terminated`: nothing follows, the value of what follows is 0. `truncated`: the time limit cut the episode off.
    """

    time: int
    state: int
    action: int
    reward: float
    next_state: int
    terminated: bool
    truncated: bool

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


class Learner(Protocol):
    """An agent that acts and learns. `begin` is called at the start of an episode, `learn` after every step."""

    def begin(self) -> None: ...

    def choose(self, state: int, knobs: Knobs, rng: np.random.Generator) -> int: ...

    def learn(self, step: Step, knobs: Knobs, rng: np.random.Generator) -> None: ...


def walk(env: gymnasium.Env[Number, Number], learner: Learner, knobs: Knobs,
         rng: np.random.Generator) -> Iterator[Step]:
    """Steps without end, episode after episode. `knobs` are read at every step. To stop, stop iterating."""
    env.unwrapped.np_random = rng
    while True:
        state, _ = env.reset()
        state, time, ended = int(state), 0, False
        learner.begin()
        while not ended:
            action = learner.choose(state, knobs, rng)
            following, reward, terminated, truncated, _ = env.step(action)
            step = Step(time, state, action, float(reward), int(following), terminated, truncated)
            learner.learn(step, knobs, rng)
            yield step
            state, time, ended = step.next_state, time + 1, step.ended


@dataclass
class Episode:
    """A whole episode: its steps; `total` is Σ r, without discount."""

    steps: list[Step] = field(default_factory=list)

    @property
    def total(self) -> float:
        return sum(step.reward for step in self.steps)

    @property
    def path(self) -> list[int]:
        """The states walked through, the last one included."""
        return [step.state for step in self.steps] + [step.next_state for step in self.steps[-1:]]


def episodes(steps: Iterable[Step]) -> Iterator[Episode]:
    """The steps of a walk, episode by episode."""
    episode = Episode()
    for step in steps:
        episode.steps.append(step)
        if step.ended:
            yield episode
            episode = Episode()


def sample(chances: Iterable[float], rng: np.random.Generator) -> int:
    """An index, drawn with these probabilities. If rounding leaves a rest, it belongs to the last index that is
    possible."""
    left, chosen = rng.random(), 0
    for index, chance in enumerate(chances):
        if chance > 0:
            chosen = index
            left -= chance
            if left < 0:
                break
    return chosen
