"""The probabilities of the answers to a watched prompt over a run's steps, from its samples. Each file is read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import streamlit as st

from app.training import files

MOST = 60  # columns

Key = tuple[str, bool]  # an answer: its text, and whether it was cut at the length limit


class Sample(NamedTuple):
    """An answer that was sampled so many `times`, and how it was judged."""

    exact: bool | None
    reward: float | None
    times: int


@dataclass(frozen=True)
class Column:
    """The log-probs (nats) of the answers after the updates of `step` (0: before the first), and which are right.

    `sampled` is how the step's samples were judged; empty before the first step.
    """

    step: int
    logprobs: dict[Key, float]
    exact: dict[Key, bool | None]
    sampled: tuple[Sample, ...] = ()


def key_of(answer: dict[str, Any]) -> Key:
    """The key by which two answers are the same one."""
    return answer["text"], bool(answer.get("truncated"))


def thinned(steps: Sequence[int], shown: int) -> list[int]:
    """At most MOST of the steps, and the shown one and the newest: every one, every second, every fourth …

    So a file that was read stays in use while the run gets longer.

    >>> thinned(range(5, 1000, 5), 40)[:4], len(thinned(range(5, 1000, 5), 40))
    ([5, 25, 40, 45], 52)
    """
    stride = 1
    while len(steps) > MOST * stride:
        stride *= 2
    return sorted({*steps[::stride], shown, *steps[-1:]})


def history(run_id: str, steps: Sequence[int], place: int) -> list[Column]:
    """The columns of these steps' files for the watched prompt at `place`; files without it are left out."""
    columns: list[Column] = []
    for step in steps:
        path = files.path_of(run_id, "samples", step)
        try:
            found = _read(run_id, step, path.stat().st_mtime_ns)
        except FileNotFoundError:
            continue  # thinned or taken away since it was listed
        columns += found[place] if place < len(found) else []
    return columns


@st.cache_data(max_entries=4096, show_spinner=False)
def _read(run_id: str, step: int, written: int) -> list[list[Column]]:
    """The columns of each watched prompt in a file: after the step, and of the run's first step before it too."""
    samples = files.load(run_id, "samples", step) or {}
    times = [(0, "before")] * (step == 1) + [(step, "after")]
    return [[_column(group, at, f"logprob_{when}") for at, when in times] for group in samples.get("watched", [])]


def _column(group: dict[str, Any], step: int, field: str) -> Column:
    answers = {key_of(answer): answer for answer in group["answers"] if answer[field] is not None}
    return Column(step, {key: answer[field] for key, answer in answers.items()},
                  {key: answer["exact"] for key, answer in answers.items()},
                  tuple(Sample(answer["exact"], answer["reward"], answer["count"]) for answer in group["answers"]
                        if answer["count"] and step))
