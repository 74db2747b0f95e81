"""A maze as JSON for files, and as a short text for the address of a page.

JSON holds the rows as drawn (. free, # wall, S start, G goal, T trap, R reward cell) and the rewards of the G, T and R
cells in reading order. The short text has the same parts. It uses only characters that need no escape in an address
(letters, digits, - . _ ~), and writes equal neighbours once with their number: 8. is eight free cells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby, repeat
from typing import Any, TypeVar

from labcore.classic.envs.maze import CELL_REWARDS, MAX_SIDE, Cell, Kind, Maze, check_size
from labcore.errors import LabError, quoted
from labcore.runs.files.untrusted import NotJSON, json_of

SIGNS: dict[str, Kind] = {".": "free", "#": "wall", "S": "start", "G": "goal", "T": "trap", "R": "reward"}
T = TypeVar("T")
SIGN_OF = {kind: sign for sign, kind in SIGNS.items()}
LONGEST = 40_000  # characters of a maze in an address; 900 cells and 900 rewards of 24 digits fit
_FIELDS = ("rows", "rewards", "step_reward", "slip", "gamma")


def from_rows(rows: list[str] | tuple[str, ...], rewards: list[float] | tuple[float, ...] | None = None,
              **rules: float) -> Maze:
    """The maze drawn by `rows`; `rewards` are those of its G, T and R cells in reading order (usual ones if None).

    Raises:
        LabError: a sign is unknown, the number of rewards is not that of the cells, or as `Maze`.

    >>> from_rows(["S..", ".TG"]).cell_rewards.tolist()
    [0.0, 0.0, 0.0, 0.0, -10.0, 10.0]
    """
    check_size(rows)  # before a cell is made: a link of some kB may say hundreds of thousands
    unknown = sorted(set("".join(rows)) - SIGNS.keys())
    if unknown:
        raise LabError(f"The maze holds {quoted(unknown[0])}: draw it with {' '.join(SIGNS)}.")
    paying = sum(SIGNS[sign] in CELL_REWARDS for row in rows for sign in row)
    if rewards is not None and len(rewards) != paying:
        raise LabError(f"The maze has {paying} goals, traps and reward cells but {len(rewards)} rewards: "
                       "give one for each, in reading order.")
    following: Iterator[float | None] = iter(rewards) if rewards else repeat(None)
    cells = tuple(tuple(Cell(SIGNS[sign], next(following) if SIGNS[sign] in CELL_REWARDS else None) for sign in row)
                  for row in rows)
    return Maze(cells, **rules)


def drawn(maze: Maze) -> tuple[list[str], list[float]]:
    """The rows of signs, and the rewards of the goals, traps and reward cells in reading order."""
    rows = ["".join(SIGN_OF[cell.kind] for cell in row) for row in maze.cells]
    return rows, [cell.reward for row in maze.cells for cell in row if cell.reward is not None]


def to_json(maze: Maze) -> str:
    """The maze as JSON, one row to a line."""
    rows, rewards = drawn(maze)
    return json.dumps(dict(zip(_FIELDS, (rows, rewards, maze.step_reward, maze.slip, maze.gamma), strict=True)),
                      indent=1)


def from_json(text: str | bytes) -> Maze:
    """The maze that `to_json` wrote; everything but the rows may be left out. Raises LabError if it is no JSON of a
    maze, has no start or no goal, or as `Maze`."""
    try:
        given = json_of(text)
    except NotJSON as error:
        raise LabError(f"This is not the JSON of a maze ({error}): save one from the maze page to see the form.") \
            from error
    rows = given.get("rows") if isinstance(given, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, str) for row in rows):
        raise LabError('The JSON of a maze needs "rows", a list of texts such as ["S..", ".TG"].')
    unknown = sorted(given.keys() - set(_FIELDS))
    if unknown:
        raise LabError(f"The JSON of a maze has no field {quoted(unknown[0])}: use {', '.join(_FIELDS)}.")
    rewards = given.get("rewards")
    if rewards is not None and not isinstance(rewards, list):
        raise LabError('"rewards" must be a list of numbers: one for each G, T and R in reading order.')
    rules = {name: _number(name, given[name]) for name in _FIELDS[2:] if name in given}
    numbers = None if rewards is None else [_number("a reward", reward) for reward in rewards]
    return from_rows(rows, numbers, **rules).check()


def to_text(maze: Maze) -> str:
    """The maze in few characters, all of which an address may hold.

    >>> to_text(from_rows(["S..", "#TG"], step_reward=-0.5))
    'S2.~xTG_-10~10_-0.5_0_0.9'
    """
    rows, rewards = drawn(maze)
    pictures = ("".join(f"{count if count > 1 else ''}{sign}" for sign, count in _runs(row.replace("#", "x")))
                for row in rows)
    numbers = (f"{_written(reward)}x{count}" if count > 1 else _written(reward) for reward, count in _runs(rewards))
    return "_".join(["~".join(pictures), "~".join(numbers), *map(_written, (maze.step_reward, maze.slip, maze.gamma))])


def from_text(text: str) -> Maze:
    """The maze that `to_text` wrote. Raises LabError if it is cut or changed, has no start or goal, or as `Maze`."""
    return unfinished(text).check()


def unfinished(text: str) -> Maze:
    """The maze that `to_text` wrote during editing, which may have no start and no goal yet. Raises LabError if the
    text is cut or changed, or as `Maze`."""
    parts = text.split("_") if len(text) <= LONGEST else []
    if len(parts) != len(_FIELDS) or not re.fullmatch(r"(?:\d{0,2}[.xSGTR]|~)+", parts[0]):
        raise LabError("The maze in this address is cut or changed: copy the whole address again.")
    rows = [re.sub(r"(\d+)(.)", lambda run: run[2] * int(run[1]), row).replace("x", "#") for row in parts[0].split("~")]
    rewards = []
    for run in filter(None, parts[1].split("~")):
        number, _, count = run.partition("x")
        if not re.fullmatch(r"\d{0,3}", count):
            raise LabError("The maze in this address is cut or changed: copy the whole address again.")
        rewards += [_number("a reward", number)] * min(int(count or 1), MAX_SIDE**2 + 1)
    rules = {name: _number(name, value) for name, value in zip(_FIELDS[2:], parts[2:], strict=True)}
    return from_rows(rows, rewards, **rules)


def _number(name: str, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise LabError(f"In this maze {name} is {quoted(str(value))}, not a number: use a number such as 10."
                       "") from error


def _written(number: float) -> str:
    """The shortest text that reads back as the same number, without a plus sign (a blank in an address)."""
    return repr(float(number)).removesuffix(".0").replace("e+", "e")


def _runs(items: Iterable[T]) -> list[tuple[T, int]]:
    """Equal neighbours as one, with their number."""
    return [(item, len(list(same))) for item, same in groupby(items)]
