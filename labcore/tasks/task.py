"""The interface of a text task: it draws prompts, knows the answers, and scores completions.

Left out: tokens. A task speaks in characters; the loop cuts them into tokens and knows the model's context.
No task imports torch, so the page can check a file before it starts a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from labcore.catalog.knob import Value
from labcore.catalog.task import Task
from labcore.runs.files import storage

# ---------------------------------------------------------------- epochs
# Shuffled epochs: every row of a file is drawn once before any is drawn again, in a new order in each epoch.
#
# The order follows from the seed and the number of the epoch alone, so a resumed run or a fork needs only two numbers
# to continue: the epoch, and how many of its rows have been drawn.

SHUFFLED, AT_RANDOM = "shuffled", "random"  # the values of the knob `order`


class Epochs:
    """Draws rows in shuffled epochs. It is given to a task in place of a random generator.

    `size` is the number of rows of an epoch, known once some have been drawn.
    """

    def __init__(self, seed: Sequence[int], epoch: int = 0, drawn: int = 0, size: int = 0) -> None:
        self._seed, self.epoch, self.drawn, self.size = tuple(seed), epoch, drawn, size

    def take(self, size: int, count: int) -> list[tuple[int, int]]:
        """The next `count` of `size` rows: the epoch and the index of each. A count above the size continues in the
        next epochs."""
        self.size, found = size, list[tuple[int, int]]()
        while len(found) < count:
            if self.drawn >= size:
                self.epoch, self.drawn = self.epoch + 1, 0
            order = _order(self._seed, self.epoch, size)
            some = order[self.drawn: self.drawn + count - len(found)].tolist()
            found += [(self.epoch, index) for index in some]
            self.drawn += len(some)
        return found

    def rng(self, epoch: int) -> np.random.Generator:
        """The random numbers of an epoch, from its first one on."""
        return np.random.default_rng((*self._seed, epoch))


@lru_cache(maxsize=4)  # a step asks for a few of what may be a million rows
def _order(seed: tuple[int, ...], epoch: int, size: int) -> np.ndarray:
    return np.random.default_rng((*seed, epoch)).permutation(size)


Chance = np.random.Generator | Epochs  # what a task of the user's file draws rows with


# ---------------------------------------------------------------- task

class Turn(NamedTuple):
    """A turn of a conversation: `role` is "system", "user", "assistant" or "tool"."""

    role: str
    content: str


Turns = Sequence[Turn]


@dataclass(frozen=True)
class Problem:
    """A prompt and its answer; also an SFT example. `line` is where it stands in the user's file.

    Of a conversation `turns` are all turns before the answer, and `prompt` is what the user said last. `columns` are
    the fields of its row in the file as they stand there, but for prompt and answer. Of a `whole` conversation, TRL's
    `messages`, SFT learns every turn of the assistant. `talk`: the prompt stands in the file as a list of turns, be it
    of one, as reward functions get it. `level` is how hard it is, where that is known; higher: harder.
    """

    prompt: str
    answer: str
    line: int | None = None
    turns: Turns = ()
    columns: Mapping[str, Any] = field(default_factory=dict, compare=False)
    whole: bool = False
    talk: bool = field(default=False, compare=False)
    level: int | None = field(default=None, compare=False)


def prompt_key(problem: Problem) -> str:
    """The text by which a prompt is known again: with its conversation, or with the row of its episode, since many
    episodes begin with the same words."""
    if problem.turns:
        return json.dumps([[*turn] for turn in problem.turns])
    of_episode = problem.columns and problem.line is None
    return json.dumps([problem.prompt, problem.columns], default=str, sort_keys=True) if of_episode else problem.prompt


@dataclass(frozen=True)
class Pair:
    """A prompt with a preferred and a dispreferred completion; `line` and `turns` as in `Problem`.

    `chosen_truncated` and `rejected_truncated`: the side was sampled and cut at the length limit, so it is learnt
    without an end token. `answer` is the task's right answer, if it has one. `margin` is the required difference of the
    rewards of the two sides, if the pair has one. `tie`: neither side is better. `sampled` has the token ids of both
    sides if a model sampled them, because their texts may encode to other ids. `theirs` is the side that the reference
    sampled if the policy sampled the other one.
    """

    prompt: str
    chosen: str
    rejected: str
    line: int | None = None
    chosen_truncated: bool = False
    rejected_truncated: bool = False
    answer: str = ""
    turns: Turns = ()
    sampled: Sequence[Sequence[int]] = field(default=(), compare=False)
    margin: float | None = None
    theirs: Literal["", "chosen", "rejected"] = ""
    tie: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Single:
    """A prompt with one completion, and whether it is desired: `label`; `line` and `turns` as in `Problem`."""

    prompt: str
    completion: str
    label: bool
    line: int | None = None
    turns: Turns = ()


@dataclass(frozen=True)
class Score:
    """The score of a completion: `reward` in [0, 1], and whether it is wholly right."""

    reward: float
    exact: bool


class TextTask(Protocol):
    """The interface of every class named by a `catalog.tasks.Task.source`.

    All chance comes from the generator that is passed in, so its state is the only thing to checkpoint.
    `size` is the number of problems (None: they are made afresh); `characters` holds every character that
    prompts and answers can contain, for the character tokenizer. A task that reads its prompts from a file has them
    all in `rows`, so that those which do not fit the model are found before the run and not in its middle. It has those
    that are held out in `held`, and what there is to say of that in `said` (`tasks.held_out`).
    """

    size: int | None
    characters: str

    def __init__(self, knobs: Mapping[str, Value], data: Path | None) -> None: ...

    def problems(self, count: int, rng: np.random.Generator) -> list[Problem]: ...

    def score(self, problem: Problem, completion: str) -> Score: ...


@runtime_checkable
class PairTask(Protocol):
    """A task that brings its own preferences; for the others the loop samples and judges pairs."""

    def pairs(self, count: int, rng: np.random.Generator) -> list[Pair]: ...


@runtime_checkable
class SingleTask(Protocol):
    """A task whose preferences may be single completions with a label: `unpaired` says whether they are."""

    unpaired: bool | None

    def singles(self, count: int, rng: np.random.Generator) -> list[Single]: ...


@runtime_checkable
class FeedbackTask(Protocol):
    """A task whose feedback on a wrong completion says more than the right answer."""

    def feedback(self, problem: Problem, completion: str) -> str: ...


PRIVILEGED = "privileged_context"  # TRL's name for the column that only a teacher may read


def privileged(problem: Problem) -> str:
    """The text that only a teacher may read: the row's column of this name, otherwise the right answer."""
    return str(problem.columns.get(PRIVILEGED) or problem.answer)


def feedback_on(task: object, problem: Problem, completion: str, right: bool) -> str:
    """The feedback on a completion: the row's own column, whether the completion is right or wrong; without that
    column, and only on a wrong completion, the task's feedback or else the right answer. "" if there is none."""
    given = str(problem.columns.get(PRIVILEGED) or "")
    if given or right:
        return given
    return task.feedback(problem, completion) if isinstance(task, FeedbackTask) else problem.answer


def has_singles(task: object) -> bool:
    """True if a task has single completions with labels instead of pairs."""
    return isinstance(task, SingleTask) and bool(task.unpaired)


def held_of(task: object) -> Sequence[Problem | Pair | Single]:
    """The held-out rows of a task; none of one that makes its problems afresh."""
    return getattr(task, "held", ())


Row = TypeVar("Row")


def draw(rows: Sequence[Row], count: int, rng: Chance) -> list[Row]:
    """`count` rows at random: no row twice while there are enough of them. A larger draw begins with a smaller one.
    With `Epochs` the next rows of the epoch."""
    if isinstance(rng, Epochs):
        return [rows[index] for _, index in rng.take(len(rows), count)]
    some = rng.permutation(len(rows))[:count] if count <= len(rows) else rng.integers(len(rows), size=count)
    return [rows[index] for index in some]


def make_task(row: Task, knobs: Mapping[str, Value], data: str | Path | None = None) -> TextTask:
    """The task of the table's `row`; reads the whole file where the task has one. Raises LabError if the file or a knob
    cannot be used; the message names the line."""
    task: TextTask = resolve_name(row.source)(knobs, storage.fetch(data) if data else None)
    return task


def check_data(row: Task, data: str | Path | None, knobs: Mapping[str, Value]) -> int | None:
    """The number of problems in the user's file, after a check of all of them; None for a task without a file. Raises
    LabError as `make_task`."""
    return make_task(row, knobs, data).size
