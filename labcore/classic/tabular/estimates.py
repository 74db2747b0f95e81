"""The present estimates of any method: V, Q where there is one, and the policy; and their files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save_file

from labcore.classic.envs.maze import ACTIONS, Maze
from labcore.classic.envs.maze_text import to_json
from labcore.classic.envs.mdp import Array
from labcore.classic.tabular.dynamic_programming import greedy
from labcore.runs.files import tables


class Estimates(NamedTuple):
    """V (S,), Q (S, A) if the method has one, and the acting policy (S, A). `named` is the name of V on screen."""

    values: Array
    action_values: Array | None
    policy: Array
    named: str

    @property
    def greedy(self) -> Array:
        """The greedy policy by Q, or without a Q by the policy itself; ties share alike. (S, A)"""
        return greedy(self.policy if self.action_values is None else self.action_values)


def save_policy(folder: Path, found: Estimates, maze: Maze, gamma: float, config: dict[str, Any]) -> None:
    """Write the tables as `model.safetensors` and CSV, the maze as JSON, and `config.json`: all it takes to act."""
    folder.mkdir()
    arrays = {"values": found.values, "policy": found.policy, "greedy": found.greedy}
    if found.action_values is not None:
        arrays["action_values"] = found.action_values
        _table(folder / "q.csv", maze, list(ACTIONS), found.action_values)
    _table(folder / "v.csv", maze, ["value"], found.values[:, None])
    _table(folder / "policy.csv", maze, list(ACTIONS), found.policy)
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / "model.safetensors")
    (folder / "maze.json").write_text(to_json(replace(maze, gamma=gamma)), encoding="utf-8")
    config = {**config, "values": found.named, "actions": list(ACTIONS), "gamma": gamma}
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def _table(path: Path, maze: Maze, columns: list[str], table: Array) -> None:
    """One line per state that is no wall, rows and columns counted from 1, numbers to the last digit."""
    tables.write(path, ["state", "row", "column", *columns], (
        [state, *(place + 1 for place in maze.place(state)), *table[state].tolist()]
        for state in np.flatnonzero(~maze.where("wall")).tolist()))
