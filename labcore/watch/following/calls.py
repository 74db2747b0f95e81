"""The data that a reader yields: rows of metrics, completions, settings, names and the end of a run.

A reader knows one format but no runs. The follower converts its data to calls of `labcore.watch.Watch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """A row of a log under the trainer's names, with its step columns. `clock` is the unix time at which it was
    written; None if only the file has a time. `run` names the row's run in a file with several runs."""

    values: Mapping[str, Any]
    clock: float | None = None
    run: str = ""


@dataclass(frozen=True)
class Completions:
    """Completions of a step: all lists have one item per completion. `group` is the number per prompt. Prompts and
    completions are texts or lists of messages."""

    step: int
    prompts: Sequence[Any]
    completions: Sequence[Any]
    rewards: Mapping[str, Sequence[float | None]]
    more: Mapping[str, Any] = field(default_factory=dict)  # for Watch.rollouts, such as advantages
    group: int | None = None


@dataclass(frozen=True)
class Pictures:
    """Completions of a step. They are large, so they are read only when they are sent. `done` is called afterwards."""

    step: int
    read: Callable[[], Completions]
    done: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Settings:
    """Settings of a run, or changed settings."""

    values: Mapping[str, Any]
    run: str = ""


@dataclass(frozen=True)
class Named:
    """The trainer's name for the run."""

    name: str
    run: str = ""


@dataclass(frozen=True)
class End:
    """The run has ended."""

    state: str
    message: str = ""
    run: str = ""


Call = Row | Completions | Pictures | Settings | Named | End
