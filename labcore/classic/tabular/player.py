"""Letting the policy of a checkpoint walk through its maze."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from labcore.classic.envs.maze import ACTIONS, Maze
from labcore.classic.envs.maze_env import MazeEnv
from labcore.classic.envs.maze_text import drawn, from_json
from labcore.classic.tabular.view import ARROWS
from labcore.classic.tabular.walks import sample
from labcore.errors import LabError, first_line
from labcore.runs.files import untrusted

LONGEST = 1000  # moves: a policy that walks in circles is stopped


def replay(folder: Path, episodes: int, seed: int, best: bool = False) -> dict[str, Any]:
    """Walk by the greedy policy of a `policy` folder; tables are kept as they are, so `best` changes nothing.

    JSON-clean: returns, lengths, and `path`, the states of the first episode; `drawing` shows it with the last move
    from each cell. Raises LabError if it is no such folder, or its files cannot be read.
    """
    try:
        config = untrusted.read_json(folder / "config.json", constants=True)
        maze = from_json(untrusted.read(folder / "maze.json"))
        step, policy = int(config["step"]), load_file(folder / "model.safetensors")["greedy"]
        if policy.shape != (maze.states, len(ACTIONS)):
            raise ValueError("its tables are of another maze")
    except (LabError, OSError, ValueError, KeyError, TypeError, ArithmeticError, SafetensorError) as error:
        raise LabError(f"{folder} holds no policy that can be played ({first_line(error)}): give the id of a "
                       "maze run or the folder of its exported checkpoint.") from error
    rng = np.random.default_rng(seed)
    env = MazeEnv(maze, LONGEST)
    env.np_random = rng
    walks = [_walk(env, policy, rng) for _ in range(episodes)]
    return {"environment": "maze", "step": step, "returns": [total for total, _, _ in walks],
            "lengths": [len(moves) for _, _, moves in walks], "path": walks[0][1],
            "drawing": _drawing(maze, walks[0][1], walks[0][2])}


def _walk(env: MazeEnv, policy: np.ndarray, rng: np.random.Generator) -> tuple[float, list[int], list[int]]:
    """One episode: its return, its states, its moves."""
    state, _ = env.reset()
    total, states, moves, ended = 0.0, [state], [], False
    while not ended:
        moves.append(sample(policy[state].tolist(), rng))
        state, reward, terminated, truncated, _ = env.step(moves[-1])
        total, ended = total + reward, terminated or truncated
        states.append(state)
    return total, states, moves


def _drawing(maze: Maze, states: list[int], moves: list[int]) -> str:
    signs = [list(row) for row in drawn(maze)[0]]
    for state, move in zip(states[1:-1], moves[1:], strict=True):
        row, column = maze.place(state)
        signs[row][column] = ARROWS[move]
    return "\n".join(" ".join(row) for row in signs)
