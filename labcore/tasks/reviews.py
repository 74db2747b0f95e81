"""Film reviews in a few words: "the plot was " is continued by "very good but slow". The score is hidden gold.

A grammar of word pairs makes the reviews. Their gold score is sentiment times the square of fluency, and people's
preferences follow it with noise: so a reward model learns it from pairs, and one can see by how much it is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import exp
from pathlib import Path

import numpy as np

from labcore.catalog.knob import Value
from labcore.tasks.task import Pair, Problem, Score

SUBJECTS = ("plot", "cast", "film", "song", "end")
PRAISE, BLAME = ("good", "fun", "warm", "great"), ("bad", "dull", "cold", "weak")
DEGREES, LINKS = ("so", "very"), ("and", "but")
PART = {**dict.fromkeys(PRAISE + BLAME, "adjective"), **dict.fromkeys(DEGREES, "degree"),
        **dict.fromkeys(LINKS, "link")}
START, END = "start", "end"
# Which part of speech may follow which: what makes a review fluent.
FOLLOWS = {START: ("adjective", "degree"), "degree": ("adjective",), "adjective": ("link", END),
           "link": ("adjective", "degree"), END: ()}
MOST_ADJECTIVES, DEGREE_SHARE = 3, 0.3


class Reviews:
    """Beginnings of reviews to be continued. `answer` is one continuation that the grammar makes: SFT learns it.

    Exact is a fluent review, whatever its sentiment. A pair is two reviews of the grammar, of which the first is chosen
    with probability σ((gold₁ − gold₂)/`knobs["label_temperature"]`): Bradley–Terry labels, at temperature 0 the better
    one.
    """

    size = None
    characters = "".join(sorted(set("".join((*SUBJECTS, *PART)) + "the was ")))

    def __init__(self, knobs: Mapping[str, Value], data: Path | None = None) -> None:
        self.temperature = float(knobs["label_temperature"])

    def problems(self, count: int, rng: np.random.Generator) -> list[Problem]:
        return [Problem(f"the {rng.choice(SUBJECTS)} was ", review(rng)) for _ in range(count)]

    def pairs(self, count: int, rng: np.random.Generator) -> list[Pair]:
        return [self._labelled(problem, rng) for problem in self.problems(count, rng)]

    def _labelled(self, problem: Problem, rng: np.random.Generator) -> Pair:
        first = second = problem.answer
        while second == first:
            second = review(rng)
        prefers_first = rng.random() < preference(gold(first) - gold(second), self.temperature)
        chosen, rejected = (first, second) if prefers_first else (second, first)
        return Pair(problem.prompt, chosen, rejected, answer=problem.answer)

    def score(self, problem: Problem, completion: str) -> Score:
        return Score(gold(completion), fluency(completion) == 1)


def review(rng: np.random.Generator) -> str:
    """A review that the grammar makes: one to three adjectives, some with a degree, joined by links."""
    words: list[str] = []
    for _ in range(1 + rng.integers(MOST_ADJECTIVES)):
        words += [rng.choice(LINKS)] if words else []
        words += [rng.choice(DEGREES)] if rng.random() < DEGREE_SHARE else []
        words.append(rng.choice(PRAISE if rng.random() < 0.5 else BLAME))
    return " ".join(words)


def gold(completion: str) -> float:
    """Sentiment × fluency², in [0, 1].

    >>> round(gold("good and warm"), 3), round(gold("good good warm"), 3), round(gold("dull"), 3)
    (0.881, 0.238, 0.269)
    """
    return sentiment(completion) * fluency(completion) ** 2


def sentiment(completion: str) -> float:
    """σ(words of praise − words of blame).

    >>> sentiment("good but cold")
    0.5
    """
    words = completion.split(" ")
    return 1 / (1 + exp(sum(word in BLAME for word in words) - sum(word in PRAISE for word in words)))


def fluency(completion: str) -> float:
    """The share of steps from word to word, the start and the end included, that the grammar allows.

    >>> fluency("so good and warm"), fluency("good good"), fluency("goo")
    (1.0, 0.6666666666666666, 0.0)
    """
    parts = [START, *(PART.get(word, "") for word in completion.split(" ")), END]
    steps = list(pairwise(parts))
    return sum(later in FOLLOWS.get(earlier, ()) for earlier, later in steps) / len(steps)


def preference(difference: float, temperature: float) -> float:
    """σ(difference/temperature): the probability that the first of two is chosen; at temperature 0 the better one.

    >>> preference(0.2, 0.2), preference(-0.1, 0.0), preference(0.0, 0.0)
    (0.7310585786300049, 0.0, 0.5)
    """
    if temperature == 0 or abs(difference) > 700 * temperature:  # beyond that exp overflows
        return 0.5 + 0.5 * ((difference > 0) - (difference < 0))
    return 1 / (1 + exp(-difference / temperature))
