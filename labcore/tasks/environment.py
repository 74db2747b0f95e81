"""Environments: tasks with several turns. The model writes a turn, the environment answers with an observation, and
so on until the environment ends the episode or the turn limit does.

    reset(row) → first observation        step(turn) → observation, reward, done

An environment sees text alone, and nothing that a model writes is run. All chance is in the row of an episode, so
equal turns get equal observations: an episode is repeated by its row and its turns. A task of one turn is the special
case of one step that ends the episode; the lab's tasks of that kind stay what they are and play no episodes.

Left out: tokens, as in all tasks (`labcore.llm.episodes` has those).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from labcore.catalog.knob import Value
from labcore.errors import LabError, quoted
from labcore.tasks.task import Chance, Problem, Score

SOLVED = 1 - 1e-9  # what a solved episode earns, but for the rounding of a sum
TRIES = 100  # of a player at one problem
Row = Mapping[str, Any]


class Step(NamedTuple):
    """The environment's answer to a turn. `reward` is that of this turn alone; after `done` there is no other turn."""

    observation: str
    reward: float
    done: bool


class Environment(Protocol):
    """One episode at a time: `reset` begins one, `step` answers the model's turn."""

    def reset(self, row: Row) -> str: ...

    def step(self, text: str) -> Step: ...


class Begun(NamedTuple):
    """A given turn at the start of an episode. `instead` is the text that the model reads in place of the environment's
    answer; None: it reads that answer."""

    text: str
    instead: str | None = None


class Move(NamedTuple):
    """A turn of an episode: what the model wrote, and how the environment answered."""

    text: str
    observation: str
    reward: float


class Episode(str):
    """An episode as a completion: a text of its turns, each with the observation in brackets, which also has its
    `moves`. `done`: the environment ended it, not the turn limit or a limit of tokens. `cut` counts observations that
    were longer than allowed.

    >>> str(Episode([Move("8", "higher", 0.0), Move("12", "correct", 1.0)], True))
    '8 [higher] 12 [correct]'
    """

    moves: Sequence[Move]
    done: bool
    cut: int

    def __new__(cls, moves: Sequence[Move], done: bool, cut: int = 0) -> Episode:
        found = super().__new__(cls, " ".join(f"{move.text} [{move.observation}]" for move in moves))
        found.moves, found.done, found.cut = tuple(moves), done, cut
        return found

    def __getnewargs__(self) -> tuple[Sequence[Move], bool, int]:  # type: ignore[override]  # as its copies are made
        return self.moves, self.done, self.cut

    @property
    def rewards(self) -> list[float]:
        """The reward of each turn."""
        return [move.reward for move in self.moves]

    @property
    def score(self) -> Score:
        """The return, and whether the episode is solved: the environment ended it, and its return or the reward of its
        last turn is 1 or more, so that costs of earlier turns do not count."""
        total = sum(self.rewards)
        return Score(total, self.done and max(total, self.rewards[-1]) >= SOLVED)


class Play:
    """An episode in progress: `first` is its first observation, and `cut` counts observations that were too long.
    Raises LabError, here and in `step`, if the environment raises or returns something other than it should."""

    def __init__(self, name: str, environment: Environment, row: Row, most: int) -> None:
        self._name, self._environment, self._most = name, environment, most
        self.moves: list[Move] = []
        self.done, self.cut = False, 0
        self.first = self._text(environment.reset(row), "reset")
        if not self.first:
            raise LabError(f"The environment {name} returned an empty observation from reset: return text for the "
                           "model to read.")

    def step(self, text: str, instead: str | None = None) -> Move:
        """Have the environment answer a turn. Unless the episode ends, the model reads `instead` in place of the
        answer; reward and state stay those of the environment."""
        assert not self.done, "the episode is over"
        turn = len(self.moves) + 1
        observation, reward, done = self._environment.step(text)
        try:
            number = float(reward)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise LabError(f"The environment {self._name} returned {quoted(reward)} as the reward of turn {turn}: "
                           "return a finite number.")
        if not isinstance(done, (bool, int, np.bool_)):
            raise LabError(f"The environment {self._name} returned {quoted(done)} as done in turn {turn}: return True "
                           "or False.")
        self.done = bool(done)
        move = Move(text, self._text(observation, f"step in turn {turn}"), number)
        if not (self.done or move.observation):
            raise LabError(f"The environment {self._name} returned an empty observation from step in turn {turn}, but "
                           "the episode is not over: return text for the model to read, or return done=True.")
        if instead is not None and not self.done:
            move = move._replace(observation=self._text(instead, "you"))
        self.moves.append(move)
        return move

    def _text(self, observation: object, source: str) -> str:
        if not isinstance(observation, str):
            raise LabError(f"The environment {self._name} returned {quoted(observation)} as the observation from "
                           f"{source}: return a text.")
        self.cut += len(observation) > self._most
        return observation[:self._most]

    @property
    def episode(self) -> Episode:
        """The episode so far."""
        return Episode(self.moves, self.done, self.cut)


class EnvironmentTask(ABC):
    """A task whose completions are episodes. `knobs` are those of `catalog.llm.environments.LIMITS` and its own.

    A problem is the first observation of an episode; its `columns` are the episode's row. Its `answer` is an episode
    too, which SFT learns: one that a simple player solves, or "" where nobody plays.
    """

    size: int | None = None
    characters: str
    name: str

    def __init__(self, knobs: Mapping[str, Value], data: Path | None = None) -> None:
        self.max_turns, self.turn_tokens = int(knobs["max_turns"]), int(knobs["turn_tokens"])
        self.observation_length = int(knobs["observation_length"])

    @abstractmethod
    def environment(self) -> Environment:
        """An environment for one episode."""

    @abstractmethod
    def draw_rows(self, count: int, rng: Chance) -> Sequence[Row]:
        """The rows of `count` episodes."""

    def player(self, rng: np.random.Generator) -> Player | None:
        """A player whose episodes SFT learns; None without a player."""
        return None

    def feedback(self, problem: Problem, completion: str) -> str:
        """The environment's answer to the last turn of an episode; "" if it has no turns yet."""
        return completion.moves[-1].observation if isinstance(completion, Episode) and completion.moves else ""

    def begin(self, problem: Problem) -> Play:
        """A new episode of a problem."""
        return Play(self.name, self.environment(), problem.columns, self.observation_length)

    def problems(self, count: int, rng: Chance) -> list[Problem]:
        return [self.problem(row, rng) for row in self.draw_rows(count, rng)]

    def problem(self, row: Row, rng: Chance) -> Problem:
        """The problem of an episode's row, with an episode that a player solves as its answer where there is one."""
        asked, answer = Problem("", "", columns=row), ""
        for _ in range(TRIES):
            player = self.player(rng) if isinstance(rng, np.random.Generator) else None
            if player is None:
                break
            answer = self.played(asked, player)
            if answer.score.exact:
                break
        return Problem(self.begin(asked).first, answer, columns=row)

    def played(self, problem: Problem, player: Player) -> Episode:
        """An episode by a player, to its end or the turn limit."""
        play = self.begin(problem)
        observation = play.first
        while not play.done and len(play.moves) < self.max_turns:
            observation = play.step(player(observation)).observation
        return play.episode

    def score(self, problem: Problem, completion: str) -> Score:
        """The score of an episode; a mere text is played as the only turn of one."""
        if isinstance(completion, Episode):
            return completion.score
        play = self.begin(problem)
        play.step(completion)
        return play.episode.score


class Player(Protocol):
    """Plays one episode: called with each observation, it gives the next turn."""

    def __call__(self, observation: str) -> str: ...
