"""Mazes to begin with, each of which shows one thing. A row of the catalog names each of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pkgutil import resolve_name

import numpy as np
from numpy.typing import NDArray

from labcore.catalog.goal import Goal, filled
from labcore.catalog.knob import Value, shown
from labcore.catalog.task import Task
from labcore.classic.envs.maze import MAX_SIDE, Maze
from labcore.classic.envs.maze import Kind as CellKind
from labcore.classic.envs.maze_text import from_rows, from_text
from labcore.errors import LabError
from labcore.maths.call import call
from labcore.runs.spec.run_spec import RunSpec


def textbook() -> Maze:
    """2 × 3: +10 at the goal, −10 in the trap beside it, 0 elsewhere; small enough to compute by hand."""
    return from_rows(["S..", ".TG"], gamma=0.9)


def slippery() -> Maze:
    """4 × 4 with slip: since a step may turn sideways, the short way along the traps is not the best."""
    return from_rows(["S...", ".T.T", "...T", "T..G"], step_reward=-0.1, slip=0.2, gamma=0.95)


def corridors() -> Maze:
    """8 × 8 corridors: a long way with dead ends, where credit must travel far."""
    return from_rows(["S...#...", ".##.#.#.", ".#..#.#.", ".#.##.#.", ".#....#.", ".####.#.", "....#.#.", "###...#G"],
                     step_reward=-0.1, gamma=0.97)


def cliff() -> Maze:
    """4 × 12, −1 a step and −100 over the edge: SARSA learns the safe way, Q-learning the short one.

    Source: Sutton and Barto 2018, Reinforcement Learning, example 6.6; here a fall ends the episode.
    """
    return from_rows(["............"] * 3 + ["STTTTTTTTTTG"], [-100.0] * 10 + [-1.0], step_reward=-1.0, gamma=1.0)


def two_goals() -> Maze:
    """A small goal near, a large one far: γ decides which is worth more, exploration which is found."""
    return from_rows(["..........", ".########.", "GS........", ".########.", ".........G"], [1.0, 10.0], gamma=0.9)


def own(maze: str) -> Maze:
    """The maze that a short text describes. Raises LabError as `from_text`."""
    return from_text(maze)


def build(task: Task, knobs: Mapping[str, Value]) -> Maze:
    """The maze of a task with the values of its knobs. Raises LabError if it cannot be built, or has no start or no
    goal."""
    maze: Maze = call(resolve_name(task.source), knobs, {})
    return maze.check()


def caution(spec: RunSpec) -> str:
    """A caution for a maze that can be run but not solved; mostly empty. Raises LabError as `build`."""
    return build(spec.task_row, spec.knobs).caution()


_WALKS = "The agent starts at cell ({row}, {column}){goal} and earns {pays}."
_GOALS = {"planning": "The method knows the maze and computes the value of every cell. Rewards: {pays}.",
          "temporal_difference": _WALKS, "tabular_policy_gradient": _WALKS}
_PLACES: dict[CellKind, str] = {"goal": "at the goal", "trap": "in a trap", "reward": "in a reward cell"}


def goal(spec: RunSpec) -> Goal:
    """The sentence about the goal of a run, with the rewards of its maze. Raises LabError as `build`."""
    maze = build(spec.task_row, spec.knobs)
    assert maze.start is not None, "it was checked"
    row, column = maze.place(maze.start)
    earned = pays(maze)
    return filled(_GOALS[spec.row.loop], {"row": row + 1, "column": column + 1, "pays": earned,
                                          "goal": "" if _PLACES["goal"] in earned else ", must reach the goal,"})


def pays(maze: Maze) -> str:
    """The rewards of a maze in words.

    >>> pays(textbook()), pays(cliff())
    ('10 at the goal, −10 in a trap and 0 per move', '−100 in a trap and −1 per move')
    """
    cells = [cell for row in maze.cells for cell in row]
    parts = []
    for kind, where in _PLACES.items():
        rewards = {float(cell.reward) for cell in cells if cell.kind == kind and cell.reward is not None}
        if own := sorted(rewards - {maze.step_reward}):
            parts.append(f"{' or '.join(map(shown, own))} {where}")
    slip = f"; {100 * maze.slip:.3g} % of the moves slip sideways" if maze.slip else ""
    step = f"{shown(maze.step_reward)} per move"
    return (f"{', '.join(parts)} and {step}" if parts else step).replace("-", "−") + slip


@lru_cache(maxsize=8)  # a form asks for the same maze at every turn of a knob
def random_maze(maze_seed: int, height: int = 10, width: int = 10, wall_frac: float = 0.3,
                trap_frac: float = 0.03) -> Maze:
    """Walls and traps at random, from the top left to the bottom right, the goal always within reach.

    Cells are tried in random order, and a wall or trap that would cut the goal off is not placed, so there may be fewer
    than asked for. Free cells that can no longer be reached become walls. Raises LabError if it would be larger than 30
    × 30 or smaller than two cells.
    """
    if not (1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE and height * width > 1):
        raise LabError(f"A random maze cannot be {height} × {width}: use 2 cells or more, at most {MAX_SIDE} × "
                       f"{MAX_SIDE}.")
    rng = np.random.default_rng(maze_seed)
    order = 1 + rng.permutation(height * width - 2)
    signs = np.full(height * width, ".")
    signs[0], signs[-1] = "S", "G"
    walls, traps = int(wall_frac * signs.size), int(trap_frac * signs.size)
    for cell in order:
        if walls + traps == 0:
            break
        signs[cell] = "#" if walls else "T"
        if not _reached(signs.reshape(height, width))[-1, -1]:
            signs[cell] = "."
        elif walls:
            walls -= 1
        else:
            traps -= 1
    grid = signs.reshape(height, width)
    rows = ["".join(row) for row in np.where(_reached(grid) | (grid == "T"), grid, "#")]
    return from_rows(rows, step_reward=-0.1, gamma=0.98)


def _reached(signs: NDArray[np.str_]) -> NDArray[np.bool_]:
    """To which cells a way leads from the first that keeps off walls and traps. (H, W) -> (H, W)"""
    is_open = np.isin(signs, list(".SG"))
    reached = np.zeros_like(is_open)
    reached[0, 0], count = True, 0
    while reached.sum() > count:
        count = reached.sum()
        grown = reached.copy()
        grown[1:] |= reached[:-1]
        grown[:-1] |= reached[1:]
        grown[:, 1:] |= reached[:, :-1]
        grown[:, :-1] |= reached[:, 1:]
        reached = grown & is_open
    return reached
