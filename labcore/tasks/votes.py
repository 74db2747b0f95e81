"""Votes between two answers, kept as preference pairs that DPO can learn from.

`RL_LAB_HOME/votes/preferences.jsonl` has one line for each vote that preferred an answer: prompt (a text, or the turns
of a conversation), chosen and rejected, as the task `preferences` reads them, then where they came from. Ties go to
`ties.jsonl`, since they teach nothing. A vote is on the disk before the next one is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labcore.errors import LabError, os_reason
from labcore.runs.files import atomic
from labcore.runs.files.paths import home, made

Prompt = str | Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Side:
    """An answer and the model that gave it, by its pinned name."""

    model: str
    text: str


@dataclass(frozen=True)
class Tally:
    """The number of votes for the first of two models, for the second, and for neither."""

    first: int
    second: int
    ties: int

    @property
    def decided(self) -> int:
        return self.first + self.second


def pairs_file() -> Path:
    return home() / "votes" / "preferences.jsonl"


def ties_file() -> Path:
    return home() / "votes" / "ties.jsonl"


def prefer(prompt: Prompt, chosen: Side, rejected: Side, **about: Any) -> None:
    """Keep a vote for `chosen`. `about` says how the answers were drawn. Raises LabError if the two are the same text,
    the prompt is empty, or the file cannot be written."""
    if chosen.text == rejected.text or not prompt:
        raise LabError("Equal answers, or answers to nothing, make no pair to learn from: vote on two that differ.")
    _append(pairs_file(), {"prompt": prompt, "chosen": chosen.text, "rejected": rejected.text,
                           "chosen_model": chosen.model, "rejected_model": rejected.model, **about})


def tie(prompt: Prompt, one: Side, other: Side, **about: Any) -> None:
    """Keep a vote for neither. Raises LabError where the file cannot be written."""
    _append(ties_file(), {"prompt": prompt, "answers": [one.text, other.text], "models": [one.model, other.model],
                          **about})


def tally(first: str, second: str) -> Tally:
    """The votes between two models so far."""
    wins = [(row.get("chosen_model"), row.get("rejected_model")) for row in atomic.rows(pairs_file())]
    ties = sum(row.get("models") in ([first, second], [second, first]) for row in atomic.rows(ties_file()))
    return Tally(wins.count((first, second)), wins.count((second, first)), ties)


def count() -> int:
    """The number of pairs of all models."""
    return sum(1 for _ in atomic.rows(pairs_file()))


def _append(path: Path, row: dict[str, Any]) -> None:
    made(path.parent)
    try:
        atomic.append_row(path, {**row, "time": round(time.time(), 3)})
    except OSError as error:
        raise LabError(f"The vote could not be kept in {path} ({os_reason(error)}): free some space, or check the "
                       "folder's permissions.") from error
