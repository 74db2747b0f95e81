"""What a reader of files finds: rows of numbers, completions, settings, sentences and the end of a run.

A reader knows one format and no run. The follower makes calls of `labcore.watch.Watch` of what it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """A row of a log under the tool's names, with the columns that place it. `clock` is when it was written, unix time;
    None where only the time of the file says so. `run` names the run of a row in a file that has several."""

    values: Mapping[str, Any]
    clock: float | None = None
    run: str = ""


@dataclass(frozen=True)
class Completions:
    """Completions of a step: all lists have one item per completion. `group` is the number per prompt."""

    step: int
    prompts: Sequence[str]
    completions: Sequence[str]
    rewards: Mapping[str, Sequence[float | None]]
    more: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # such as advantages, as Watch.rollouts takes them
    group: int | None = None


@dataclass(frozen=True)
class Pictures:
    """Completions of a step that are read when their turn comes, because they are large. `done` is called then."""

    step: int
    read: Callable[[], Completions]
    done: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Settings:
    """Settings of a run, or those that changed."""

    values: Mapping[str, Any]
    run: str = ""


@dataclass(frozen=True)
class Named:
    """What the tool calls the run."""

    name: str
    run: str = ""


@dataclass(frozen=True)
class End:
    """The run has ended."""

    state: str
    message: str = ""
    run: str = ""


Call = Row | Completions | Pictures | Settings | Named | End
