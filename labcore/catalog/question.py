"""A question that arises while a run learns, with its answer, and the topics of questions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A question with its answer.

    `findings` are rules of the doctor; `metrics` and `knobs` are keys of the catalog, the closest
    first; `lesson` and `page` are the keys of a lesson and a page that show the answer.
    """

    key: str
    topic: str
    ask: str
    answer: str
    findings: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    knobs: tuple[str, ...] = ()
    lesson: str = ""
    page: str = ""


TOPICS = ("Reward", "Groups and advantages", "Ratio and clip", "KL", "Entropy and sampling", "Completions",
          "Preferences and reward models", "Critic", "Mazes", "Comparing", "Runs and models")
