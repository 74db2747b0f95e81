"""A maze in words: "open: n e; exit: n" says which ways are open and where the exit lies, and a turn is a step, "n".

Walls are drawn at random until the exit can be reached within the turn limit. The model never sees the maze: it walks
by the words, and has to find its way round walls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from labcore.catalog.knob import Value
from labcore.tasks.environment import Environment, EnvironmentTask, Player, Row, Step
from labcore.tasks.task import Chance

WAYS = {"n": (0, -1), "e": (1, 0), "s": (0, 1), "w": (-1, 0)}
WALLED = 0.3  # share of the inner walls that stand
WALL, NO_WAY, EXIT = "wall; ", "no way; ", "exit"
AIMED = 0.6  # share of the simple player's steps towards the exit
Place = tuple[int, int]


class Corridors:
    """One episode: `row` has the `size`, the `walls` (pairs of cells that are walled off), `start` and `exit`."""

    def reset(self, row: Row) -> str:
        self.size, self.at, self.exit = int(row["size"]), tuple(row["start"]), tuple(row["exit"])
        self.walls = {frozenset((tuple(one), tuple(other))) for one, other in row["walls"]}
        return self._seen()

    def step(self, text: str) -> Step:
        way = text.strip()
        if way not in WAYS:
            return Step(NO_WAY + self._seen(), 0.0, False)
        if way not in self.open:
            return Step(WALL + self._seen(), 0.0, False)
        self.at = (self.at[0] + WAYS[way][0], self.at[1] + WAYS[way][1])
        return Step(EXIT, 1.0, True) if self.at == self.exit else Step(self._seen(), 0.0, False)

    @property
    def open(self) -> list[str]:
        """The ways that lead on from here."""
        found = {way: (self.at[0] + x, self.at[1] + y) for way, (x, y) in WAYS.items()}
        return [way for way, (x, y) in found.items() if 0 <= x < self.size and 0 <= y < self.size
                and frozenset((self.at, (x, y))) not in self.walls]

    def _seen(self) -> str:
        aim = ("n" if self.exit[1] < self.at[1] else "s" if self.exit[1] > self.at[1] else "") + (
            "e" if self.exit[0] > self.at[0] else "w" if self.exit[0] < self.at[0] else "")
        return f"open: {' '.join(self.open)}; exit: {aim}"


class WordMaze(EnvironmentTask):
    """Mazes of `knobs["maze_size"]` × `knobs["maze_size"]` cells."""

    name = "word_maze"
    characters = "open: nesw; exit wall way [];"

    def __init__(self, knobs: Mapping[str, Value], data: Path | None = None) -> None:
        super().__init__(knobs)
        self.maze_size = int(knobs["maze_size"])

    def environment(self) -> Environment:
        return Corridors()

    def draw_rows(self, count: int, rng: Chance) -> list[Row]:
        assert isinstance(rng, np.random.Generator), "it has no file"
        return [self._row(rng) for _ in range(count)]

    def _row(self, rng: np.random.Generator) -> Row:
        cells = [(x, y) for y in range(self.maze_size) for x in range(self.maze_size)]
        between = [(cell, (cell[0] + x, cell[1] + y)) for cell in cells for x, y in ((1, 0), (0, 1))
                   if cell[0] + x < self.maze_size and cell[1] + y < self.maze_size]
        while True:
            walls = [pair for pair in between if rng.random() < WALLED]
            start, target = (cells[place] for place in rng.permutation(len(cells))[:2])
            if distance(self.maze_size, walls, start, target) <= self.max_turns:
                return {"size": self.maze_size, "walls": walls, "start": start, "exit": target}

    def player(self, rng: np.random.Generator) -> Player:
        def play(observation: str) -> str:
            ways, aim = observation.split("open: ")[1].split("; exit: ")
            wise = [way for way in ways.split() if way in aim]
            return str(rng.choice(wise if wise and rng.random() < AIMED else ways.split() or list(WAYS)))
        return play


def distance(size: int, walls: list[tuple[Place, Place]], start: Place, target: Place) -> float:
    """Steps of the shortest way; infinite where there is none.

    >>> distance(2, [((0, 0), (1, 0))], (0, 0), (1, 0)), distance(1, [], (0, 0), (0, 0))
    (3, 0)
    """
    maze, found, waiting = Corridors(), {start: 0}, deque([start])
    while waiting:
        at = waiting.popleft()
        maze.reset({"size": size, "walls": walls, "start": at, "exit": target})
        for way in maze.open:
            near = (at[0] + WAYS[way][0], at[1] + WAYS[way][1])
            if near not in found:
                found[near] = found[at] + 1
                waiting.append(near)
    return found.get(target, float("inf"))
