"""The scores of a completion's steps for the pictures: at its tokens, and as the texts of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

from labcore.llm.rewards import Rewards

Values = list[float | None]


def at_tokens(rewards: Rewards, row: int, length: int) -> dict[str, Values]:
    """The score of each step of a completion and the verdict of the task's verifier, at the step's last token; None at
    all other tokens. Empty if steps are not scored."""
    found = {"step_scores": rewards.step_scores, "step_gold": rewards.step_gold}
    return {name: [None if isnan(value) else round(value, 5) for value in values[row, :length].tolist()]
            for name, values in found.items() if values is not None}


def as_steps(tokens: Sequence[str], scores: Sequence[float | None], gold: Sequence[float | None]) -> list[list[Any]]:
    """[text, score, gold] of each step: its tokens up to the one that has its score; gold is None without a verifier.

    >>> as_steps(["2", "*", "3", ""], [None, 0.9, 0.8, 0.1], [])
    [['2*', 0.9, None], ['3', 0.8, None], ['', 0.1, None]]
    """
    found, text = [], ""
    for place, token in enumerate(tokens):
        text += token
        if (score := scores[place]) is not None:
            found.append([text, score, gold[place] if gold else None])
            text = ""
    return found
