"""Problems so small that every completion can be enumerated: a few letters, a few tokens, one letter as the prompt.

How many completions there are is counted here, without torch, so that a form can say so before a run starts.
Preference pairs are of random completions, labelled by Bradley and Terry's model on the reward itself,
P(y_w ≻ y_l) = σ(R_w − R_l): then what DPO learns at β is the optimum of the reward less β KL, at the same β.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import pairwise, product
from pathlib import Path

import numpy as np

from labcore.catalog.choices import REWARD
from labcore.catalog.knob import Value
from labcore.catalog.task import Task
from labcore.errors import LabError
from labcore.tasks.task import Pair, Problem, Score, TextTask, make_task

LIMIT = 10_000  # completions of a prompt
ALPHABET = "abcdef"
LENGTH = 3  # tokens, where nothing else is said
SOURCES = tuple(source.key for source in REWARD if source.known)


def count(letters: int, length: int, limit: int = LIMIT, ends: bool = True) -> int:
    """The completions of at most `length` tokens of `letters` and, where it `ends`, the end token.

    Raises:
        LabError: there are more than `limit`.

    >>> count(3, 3), count(2, 4, ends=False)
    (40, 16)
    """
    found: int = letters**length + (sum(letters**size for size in range(length)) if ends else 0)
    if found > limit:
        raise LabError(f"{letters} letters and up to {length} tokens make {found:,} completions, and at most {limit:,} "
                       "can be enumerated: take fewer letters (`vocabulary`) or a lower length limit "
                       "(`max_new_tokens`).")
    return found


def check(row: Task, knobs: Mapping[str, Value]) -> TextTask:
    """The problem of a task's row, all of whose completions can be enumerated. Raises LabError if the problem has too
    many completions, fewer letters than prompts, or a reward source whose mean rewards are not known."""
    letters, prompts = int(knobs["vocabulary"]), int(knobs["prompt_count"])
    count(letters, int(knobs.get("max_new_tokens", LENGTH)))
    if prompts > letters:
        raise LabError(f"Each prompt is a different letter, so {prompts} prompts (`prompt_count`) are too many for "
                       f"{letters} letters (`vocabulary`): take {letters} prompts or fewer.")
    if (source := knobs.get("reward_source", SOURCES[0])) not in SOURCES:
        raise LabError(f"The mean reward of every completion is not known with the reward source `{source}`: set "
                       f"{' or '.join(f'`reward_source={each}`' for each in SOURCES)}.")
    return make_task(row, knobs)


class Enumerable(ABC):
    """`knobs["vocabulary"]` letters and the end token, `knobs["prompt_count"]` prompts, completions of `length`."""

    size = None

    def __init__(self, knobs: Mapping[str, Value], data: Path | None = None) -> None:
        self.characters = ALPHABET[: int(knobs["vocabulary"])]
        self.prompts = self.characters[: int(knobs["prompt_count"])]
        self.length = int(knobs.get("max_new_tokens", LENGTH))

    def problem(self, prompt: str) -> Problem:
        return Problem(prompt, self.answer(prompt))

    def problems(self, count: int, rng: np.random.Generator) -> list[Problem]:
        return [self.problem(self.prompts[place]) for place in rng.integers(len(self.prompts), size=count)]

    def can_become_right(self, problem: Problem, beginning: str) -> bool:
        most = self.length - len(beginning)
        return any(self.score(problem, beginning + "".join(rest)).exact
                   for size in range(most + 1) for rest in product(self.characters, repeat=size))

    def score(self, problem: Problem, completion: str) -> Score:
        reward = self.reward(problem.prompt, completion)
        return Score(reward, reward == 1)

    def pairs(self, count: int, rng: np.random.Generator) -> list[Pair]:
        return [self._pair(problem, rng) for problem in self.problems(count, rng)]

    def _pair(self, problem: Problem, rng: np.random.Generator) -> Pair:
        """Two random completions, and a label that is the likelier the larger the difference of their rewards."""
        (chosen, cut), (rejected, other_cut) = self._walk(rng), self._walk(rng)
        gain = self.reward(problem.prompt, chosen) - self.reward(problem.prompt, rejected)
        if rng.random() > 1 / (1 + math.exp(-gain)):
            chosen, rejected, cut, other_cut = rejected, chosen, other_cut, cut
        return Pair(problem.prompt, chosen, rejected, None, cut, other_cut, problem.answer)

    def _walk(self, rng: np.random.Generator) -> tuple[str, bool]:
        """A completion of tokens that are all equally likely, and whether the length limit cut it."""
        tokens = rng.integers(len(self.characters) + 1, size=self.length).tolist()
        ends = tokens.index(len(self.characters)) if len(self.characters) in tokens else self.length
        return "".join(self.characters[token] for token in tokens[:ends]), ends == self.length

    def _after(self, letter: str, steps: int = 1) -> str:
        """The letter that many places on, from the last one back to the first."""
        return self.characters[(self.characters.index(letter) + steps) % len(self.characters)]

    @abstractmethod
    def answer(self, prompt: str) -> str:
        """A right answer."""

    @abstractmethod
    def reward(self, prompt: str, completion: str) -> float:
        """The reward of a completion, in [0, 1]."""


class Sorted(Enumerable):
    """The share of places at which no letter comes before the one on its left, the prompt's first of all."""

    def answer(self, prompt: str) -> str:
        return prompt * self.length

    def reward(self, prompt: str, completion: str) -> float:
        whole = prompt + completion
        return sum(left <= right for left, right in pairwise(whole)) / self.length


class OneWinner(Enumerable):
    """1 for a single completion, the letters that follow the prompt's; 0 for all others."""

    def answer(self, prompt: str) -> str:
        return "".join(self._after(prompt, place + 1) for place in range(self.length))

    def reward(self, prompt: str, completion: str) -> float:
        return float(completion == self.answer(prompt))


class FreeLength(Enumerable):
    """1 for the prompt's letter and then the end; anything else is wrong, however long it is."""

    def answer(self, prompt: str) -> str:
        return prompt

    def reward(self, prompt: str, completion: str) -> float:
        return float(completion == prompt)


class TwoModes(Enumerable):
    """1 for the prompt's letter at every place, 0.9 for the letter after it at every place; 0 for all between."""

    def answer(self, prompt: str) -> str:
        return prompt * self.length

    def reward(self, prompt: str, completion: str) -> float:
        return {self.answer(prompt): 1.0, self._after(prompt) * self.length: 0.9}.get(completion, 0.0)
