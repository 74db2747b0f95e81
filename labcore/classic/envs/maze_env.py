"""The maze as a Gymnasium environment: `gymnasium.make("labcore.classic.envs.maze_env:RLLab/Maze-v0", maze=...)`.

All random numbers come from `np_random`: hand it a generator, or seed it by `reset(seed=...)`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from labcore.classic.envs.maze import ACTIONS, ENDS, Maze
from labcore.classic.envs.maze_presets import textbook
from labcore.classic.envs.maze_text import SIGN_OF, from_text

ENV_ID = "RLLab/Maze-v0"
Number = int | np.int64  # of a state or a move; the samples of a space are numpy's


class MazeEnv(gymnasium.Env[Number, Number]):
    """Walks of an agent in a maze. Observation: the state; actions: up, right, down, left.

    `maze` is a Maze or its short text. A goal or a trap terminates; `max_steps` steps (0: no limit) truncate.
    `random_start` begins in any state that can be reached from the start and is no end, so that every state is tried.
    Raises LabError if the maze has no start or no goal.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's own form)

    def __init__(self, maze: Maze | str | None = None, max_steps: int = 0, random_start: bool = False,
                 render_mode: str | None = None) -> None:
        maze = from_text(maze) if isinstance(maze, str) else maze or textbook()
        self.maze, self.max_steps, self.render_mode = maze.check(), max_steps, render_mode
        self.observation_space, self.action_space = Discrete(maze.states), Discrete(len(ACTIONS))
        ends = maze.where(*ENDS)
        start = maze.start
        assert start is not None, "a maze that is checked has one"
        self._starts: list[int] = np.flatnonzero(maze.reachable() & ~ends).tolist() if random_start else [start]
        # Python's own lists: an element of an array takes several times as long.
        self._neighbours, self._ends = maze.neighbours.tolist(), ends.tolist()
        self._rewards = maze.cell_rewards.tolist()
        self._state, self._steps = start, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        several = len(self._starts) > 1
        self._state = self._starts[int(self.np_random.random() * len(self._starts)) if several else 0]
        self._steps = 0
        return self._state, {}

    def step(self, action: Number) -> tuple[int, float, bool, bool, dict[str, Any]]:
        turn = 0
        if self.maze.slip:
            chance = self.np_random.random()
            turn = (chance < self.maze.slip / 2) - (self.maze.slip / 2 <= chance < self.maze.slip)
        self._state = self._neighbours[self._state][(action + turn) % len(ACTIONS)]
        self._steps += 1
        truncated = 0 < self.max_steps <= self._steps
        terminated = self._ends[self._state]
        return self._state, self._rewards[self._state], terminated, truncated and not terminated, {}

    def render(self) -> str | None:
        """The maze as text, the agent as @."""
        if self.render_mode is None:
            return None
        here = self.maze.place(self._state)
        return "\n".join("".join("@" if (row, column) == here else SIGN_OF[cell.kind]
                                 for column, cell in enumerate(line)) for row, line in enumerate(self.maze.cells))


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, entry_point="labcore.classic.envs.maze_env:MazeEnv", kwargs={"max_steps": 1000})
