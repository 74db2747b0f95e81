"""A maze: cells with rewards, and an agent that walks from cell to cell until a goal or a trap ends the episode.

A step gives the reward of the cell in which it ends: the reward of a goal, a trap or a reward cell, otherwise the step
reward. A step into a wall or over the edge ends in the cell where it began, and gives that cell's reward. With
probability `slip` a step turns to the left or to the right of its direction, half of `slip` each (Russell and Norvig
2021, section 17.1).

Left out: more than one start, cells that move the agent (the cliff ends the episode, it does not send it back), and
one-time rewards: a reward cell gives its reward at every step that ends in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from labcore.classic.envs.mdp import MDP
from labcore.errors import LabError, quoted

Kind = Literal["free", "wall", "start", "goal", "trap", "reward"]

ACTIONS = ("up", "right", "down", "left")
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
MAX_SIDE = 30
MAX_REWARD = 1e6  # positive or negative; sums of rewards stay far below the largest float
KINDS: tuple[Kind, ...] = ("free", "wall", "start", "goal", "trap", "reward")
# The default reward of a step into a cell of these kinds; the others give the step reward.
CELL_REWARDS: dict[Kind, float] = {"goal": 10.0, "trap": -10.0, "reward": 1.0}
ENDS: tuple[Kind, ...] = ("goal", "trap")


@dataclass(frozen=True)
class Cell:
    """A cell of a maze. `reward` is the reward of a step into it; None stands for the step reward."""

    kind: Kind = "free"
    reward: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise LabError(f"A cell cannot be {quoted(self.kind)}: use one of {', '.join(KINDS)}.")
        own = self.kind in CELL_REWARDS
        reward = CELL_REWARDS.get(self.kind) if self.reward is None or not own else float(self.reward)
        # − 0 and 0 are the same reward and must be the same text.
        object.__setattr__(self, "reward", reward + 0.0 if reward is not None else None)


@dataclass(frozen=True)
class Maze:
    """A grid of cells and its rules. States are cells in reading order: row × width + column; walls are never entered.

    A maze may be unfinished while it is edited: `check` says whether it has a start and a goal. Raises LabError if the
    grid is empty, ragged or larger than 30 × 30, has two starts, or a number is out of its range.
    """

    cells: tuple[tuple[Cell, ...], ...]
    step_reward: float = 0.0
    slip: float = 0.0
    gamma: float = 0.9

    def __post_init__(self) -> None:
        _check_grid(self.cells)
        for row, column in self._places():
            reward = self.cells[row][column].reward
            if reward is not None and not abs(reward) <= MAX_REWARD:
                raise LabError(f"The reward in row {row + 1}, column {column + 1} is {reward:g}, which is not a finite "
                               f"number from {-MAX_REWARD:,.0f} to {MAX_REWARD:,.0f}: set it to a number such as 10.")
        if not abs(self.step_reward) <= MAX_REWARD:
            raise LabError(f"The step reward is {self.step_reward:g}, not a finite number from {-MAX_REWARD:,.0f} to "
                           f"{MAX_REWARD:,.0f}: use a number such as -0.1.")
        if not 0 <= self.slip < 1:
            raise LabError(f"The slip probability is {self.slip:g}: use a value from 0 up to, but not, 1.")
        if not 0 <= self.gamma <= 1:
            raise LabError(f"The discount gamma is {self.gamma:g}: use a value from 0 to 1.")

    @property
    def height(self) -> int:
        return len(self.cells)

    @property
    def width(self) -> int:
        return len(self.cells[0])

    @property
    def states(self) -> int:
        return self.height * self.width

    def state(self, row: int, column: int) -> int:
        """The state of a cell. Raises LabError if there is no such cell."""
        if not (0 <= row < self.height and 0 <= column < self.width):
            raise LabError(f"There is no cell in row {row + 1}, column {column + 1}: the maze has {self.height} rows "
                           f"and {self.width} columns.")
        return row * self.width + column

    def place(self, state: int) -> tuple[int, int]:
        """(row, column) of a state."""
        return divmod(state, self.width)

    def where(self, *kinds: Kind) -> NDArray[np.bool_]:
        """A mask of the states of these kinds. -> bool (S,)"""
        return np.array([self.cells[row][column].kind in kinds for row, column in self._places()])

    @cached_property
    def start(self) -> int | None:
        """The state in which an episode starts; None if the maze has no start yet."""
        found = np.flatnonzero(self.where("start"))
        return int(found[0]) if len(found) else None

    @cached_property
    def cell_rewards(self) -> NDArray[np.float64]:
        """The reward of a step that ends in a state. -> (S,)"""
        rewards = [self.cells[row][column].reward for row, column in self._places()]
        return np.array([self.step_reward if reward is None else reward for reward in rewards])

    @cached_property
    def neighbours(self) -> NDArray[np.int64]:
        """The state in which each move ends if it does not slip. -> int (S, A)"""
        return np.array([[self._moved(row, column, *move) for move in MOVES] for row, column in self._places()])

    @cached_property
    def mdp(self) -> MDP:
        """P (S, A, S), expected R (S, A) and the terminal states, exactly.

        P(s'|s,a) = (1 − slip) [s' = m(s,a)] + slip/2 [s' = m(s,a−1)] + slip/2 [s' = m(s,a+1)], R(s,a) = Σ_s' P r(s')
        """
        transitions = np.zeros((self.states, len(ACTIONS), self.states))
        state, action = np.ogrid[: self.states, : len(ACTIONS)]
        for turn, chance in ((0, 1 - self.slip), (-1, self.slip / 2), (1, self.slip / 2)):
            transitions[state, action, np.roll(self.neighbours, -turn, axis=1)] += chance
        rewards = transitions @ self.cell_rewards
        # States that cannot be entered count as ends too: with γ = 1 an enclosed cell would have no finite value.
        still = self.where(*ENDS) | self.where("wall") | (~self.reachable() if self.start is not None else False)
        transitions[still] = np.eye(self.states)[still][:, None]
        rewards[still] = 0.0
        return MDP(transitions, rewards, still)

    def check(self) -> Maze:
        """The maze itself, after a check. Raises LabError if it has no start or no goal."""
        if self.start is None:
            raise LabError("The maze has no start: paint one cell as the start.")
        if not self.where("goal").any():
            raise LabError("The maze has no goal: paint at least one cell as a goal.")
        return self

    def unreachable_goals(self) -> tuple[tuple[int, int], ...]:
        """(row, column) of each goal that cannot be reached from the start. A way through a trap does not count."""
        reached = self.reachable()
        return tuple(self.place(int(state)) for state in np.flatnonzero(self.where("goal") & ~reached))

    def caution(self) -> str:
        """A sentence about the goals that cannot be reached; empty where all can, or while there is no start."""
        goals = [f"row {row + 1}, column {column + 1}" for row, column in self.unreachable_goals()
                 if self.start is not None]
        if not goals:
            return ""
        one = len(goals) == 1
        return (f"The goal{'' if one else 's'} in {' and '.join(goals[:3])}{' and others' if goals[3:] else ''} cannot "
                "be reached from the start: open a way through the walls and traps. The run can start, but will not "
                f"find {'it' if one else 'them'}.")

    def reachable(self) -> NDArray[np.bool_]:
        """A mask of the states that can be reached from the start without slipping. -> bool (S,)"""
        reached = np.zeros(self.states, dtype=bool)
        ends = self.where(*ENDS)
        waiting = deque([] if self.start is None else [self.start])
        while waiting:
            state = waiting.popleft()
            if not reached[state]:
                reached[state] = True
                waiting.extend([] if ends[state] else self.neighbours[state].tolist())
        return reached

    def paint(self, row: int, column: int, kind: Kind, reward: float | None = None) -> Maze:
        """The maze with another cell there. A new start takes the old one's place. Raises LabError if there is no such
        cell, or the reward is not finite."""
        self.state(row, column)
        rows = [[Cell() if kind == "start" == cell.kind else cell for cell in line] for line in self.cells]
        rows[row][column] = Cell(kind, reward)
        return replace(self, cells=tuple(tuple(line) for line in rows))

    def _places(self) -> Iterator[tuple[int, int]]:
        return ((row, column) for row in range(self.height) for column in range(self.width))

    def _moved(self, row: int, column: int, down: int, right: int) -> int:
        there = row + down, column + right
        inside = 0 <= there[0] < self.height and 0 <= there[1] < self.width
        blocked = not inside or self.cells[there[0]][there[1]].kind == "wall"
        return self.state(row, column) if blocked else self.state(*there)


def check_size(rows: Sequence[Sized]) -> None:
    """Raises LabError if there are more than 30 rows of cells, or a row is longer than 30. The rows may have any
    form."""
    if rows and max(len(rows), *map(len, rows)) > MAX_SIDE:
        raise LabError(f"The maze is {len(rows)} × {max(map(len, rows))} cells, larger than {MAX_SIDE} × {MAX_SIDE}: "
                       "remove rows or columns.")


def _check_grid(cells: tuple[tuple[Cell, ...], ...]) -> None:
    """Raises LabError if the cells are no grid of at most 30 × 30 with at most one start."""
    if not cells or not cells[0]:
        raise LabError("The maze has no cells: give it at least one row and one column.")
    check_size(cells)
    ragged = next((number for number, row in enumerate(cells, 1) if len(row) != len(cells[0])), None)
    if ragged:
        raise LabError(f"Row {ragged} of the maze has {len(cells[ragged - 1])} cells, but row 1 has {len(cells[0])}: "
                       "make all rows equally long.")
    starts = sum(cell.kind == "start" for row in cells for cell in row)
    if starts > 1:
        raise LabError(f"The maze has {starts} starts: keep one.")
