"""The sentence about the goal of a run: what the model sees, what it must do and what earns reward.

Its parts come from the rows of the catalog: `Task.sees` and `Task.goal` describe the task, a kind's `goal` names the
function that fills in an example, and `Reward.words` describe the reward where the task's verifier does not give it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from labcore.catalog import reward_terms
from labcore.catalog.choices import REWARD
from labcore.catalog.knob import Value, shown
from labcore.catalog.task import Task
from labcore.errors import LabError

LONGEST = 60  # characters of an example
_FIELD = re.compile(r"\{(\w+)\}")


class Quote(str):
    """A text of the task within a sentence, as it is: the page sets it in another face."""


@dataclass(frozen=True)
class Goal:
    """A sentence in parts, of which some are quotes. As a string, it has them in backquotes.

    >>> str(filled("Sees {prompt} and earns {reward}.", {"prompt": Quote("ba="), "reward": 1.0}))
    'Sees `ba=` and earns 1.'
    """

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return "".join(f"`{part}`" if isinstance(part, Quote) else part for part in self.parts)


def filled(template: str, values: Mapping[str, Value | Quote]) -> Goal:
    """The sentence of a template with values for the names in its braces; quotes are cut to one short line."""
    cuts = _FIELD.split(template)
    return Goal(tuple(_said(values[cut]) if place % 2 else cut for place, cut in enumerate(cuts) if cut))


def _said(value: Value | Quote) -> str:
    if not isinstance(value, Quote):
        return shown(value).replace("-", "−")
    line = " ".join(value.split()) or value
    return Quote(line if len(line) <= LONGEST else f"{line[:LONGEST - 1].rstrip()}…")


def of_task(task: Task, knobs: Mapping[str, Value]) -> str:
    """The part of the sentence that belongs to the task, by the knob that decides it."""
    chosen = (str(knobs.get(knob.key)) for knob in task.knobs)
    return next((task.goal[value] for value in chosen if value in task.goal), task.goal.get("", ""))


def reward_words(knobs: Mapping[str, Value]) -> str:
    """The source of a run's rewards in words; empty where the task's own verifier gives them.

    >>> reward_words({"reward_source": "noisy_verifier", "reward_noise": 0.1})
    "the verifier's rewards, of which a share of 0.1 is flipped"
    """
    source = str(knobs.get("reward_source"))
    said = REWARD[source].words if source in REWARD.names else ""
    return said and said.format(**{"sum": _sum(knobs), **{key: shown(value) for key, value in knobs.items()}})


def _sum(knobs: Mapping[str, Value]) -> str:
    """The rewards of the user's own by their weights, "right + 0.5 × brief"."""
    named = reward_terms.of(knobs)
    try:
        weights = reward_terms.weights(str(knobs.get("reward_weights", "")), len(named))
    except LabError:  # said where the weights are
        weights = [1.0] * len(named)
    return " + ".join(term.part if weight == 1 else f"{weight:g} × {term.part}"
                      for term, weight in zip(named, weights, strict=True)) or "no reward chosen yet"
