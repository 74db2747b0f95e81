"""A maze and a sample of a run as data for the board. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labcore.classic.envs.maze import Maze
from labcore.classic.envs.maze_text import drawn

HEATS = {"values": "Values", "visits": "Visits", "error": "Error"}
ARROWS = {"greedy": "Greedy", "policy": "Behaviour", "none": "No arrows"}
HEIGHT, TALLEST = 340, 560  # pixels of the board, as far as the maze's shape lets it fill them
SMALLEST = 20  # pixels of a cell in a maze of many rows, as long as the board is not too tall
Numbers = list[float | None]


@dataclass(frozen=True)
class View:
    """The look of the board: a key of HEATS and one of ARROWS, and what else is drawn."""

    heat: str = "values"
    arrows: str = "greedy"
    path: bool = True
    numbers: bool = True


def board(maze: Maze, key: str, sample: dict[str, Any] | None = None, view: View | None = None,
          picked: int | None = None, pinned: int = 0) -> dict[str, Any]:
    """The data of the board that is looked at. `key`: another key, another board (player and cursor begin anew).

    `pinned` is the earlier step that was chosen, 0 for always the newest: with another one the player begins anew too.
    """
    rows, rewards = drawn(maze)
    view = view or View()
    data = {"key": key, "mode": "look", "rows": rows, "rewards": rewards, "picked": picked,
            "height": max(HEIGHT, min(SMALLEST * maze.height, TALLEST)),
            "heat": None, "arrows": None, "episode": None, "pinned": 0, "numbers": view.numbers, "path": view.path,
            "proportional": view.arrows == "policy"}
    if sample is None:
        return data
    return data | {"heat": heat(maze, sample, view.heat), "arrows": sample.get(view.arrows),
                   "episode": episode(sample), "pinned": pinned}


def editor(maze: Maze, key: str, sign: str, pay: float | None) -> dict[str, Any]:
    """The data of the board that is painted with a cell of that sign and pay."""
    return board(maze, key) | {"mode": "edit", "brush": {"sign": sign, "pay": pay}}


def heat(maze: Maze, sample: dict[str, Any], what: str) -> dict[str, Any] | None:
    """The numbers that colour the cells, with their name, unit and scale; None where the run has no such numbers."""
    values, symbol = sample["values"], "max Q" if sample["values_of"] == "max Q" else "V"
    if what == "visits":
        return sample["visits"] and _heat(maze, sample["visits"], "visits", "moves", "log", 0)
    if what == "error":
        exact, of = truth(sample)
        errors = exact and [None if value is None or right is None else abs(value - right)
                            for value, right in zip(values, exact, strict=True)]
        label = f"|{symbol} − {of}|" if " " not in of else f"error to {of}"
        return _heat(maze, errors, label, "reward", "sequential", _digits(errors)) if errors else None
    present = [value for value in values if value is not None]
    per_cell = maze.cell_rewards[~maze.where("wall")]
    mixed = min(present) < 0 < max(present) or maze.step_reward < 0 < per_cell.max()
    return _heat(maze, values, f"{symbol}(s)" if symbol == "V" else "max Q(s,·)", "reward",
                 "signed" if mixed else "sequential", _digits(values))


def truth(sample: dict[str, Any]) -> tuple[Numbers | None, str]:
    """The exact values with which the estimates are compared, and their name: V*, or the values of the policy."""
    return sample.get("truth", sample.get("optimal")), sample.get("truth_of") or "V*"


def _heat(maze: Maze, values: Numbers, label: str, unit: str, scale: str, digits: int) -> dict[str, Any]:
    """Walls and ends have no number: nothing is learnt of them."""
    blank = maze.where("wall", "goal", "trap")
    shown = [None if none or value is None else float(f"{value:.5g}")
             for value, none in zip(values, blank, strict=True)]
    return {"values": shown, "label": label, "unit": unit, "scale": scale, "digits": digits}


def _digits(values: Numbers) -> int:
    """Decimals for three significant digits of the largest.

    >>> _digits([0.5, -3.0]), _digits([12.0, None]), _digits([-250.0])
    (2, 1, 0)
    """
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    return 2 if largest < 9.995 else 1 if largest < 99.95 else 0


def episode(sample: dict[str, Any]) -> dict[str, Any] | None:
    """The newest episode, as the board plays it; None before the first and where nothing walks."""
    if not sample.get("moves"):
        return None
    return {"key": sample["step"], "step": sample["step"], "path": sample["path"], "moves": sample["moves"],
            **sample["episode"]}
