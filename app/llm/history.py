"""The answers to a prompt over the steps of a run, read from its samples: for watched prompts, and for prompts that
several batches contain. Each file is read once, and only the beginning of one that does not have the prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import streamlit as st

from app.llm.step_groups import WATCHED, Group, Key, key_of, of_batch
from app.training import files
from labcore.runs.files.step_files import prompt_hash, prompts_of

MOST = 60  # columns
LONG = 40  # characters: an answer is long if it has more, or several lines
KEPT = 2048  # files, those of some thirty long runs, whose columns nobody changes


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
    logprobs: Mapping[Key, float]
    exact: Mapping[Key, bool | None]
    sampled: tuple[Sample, ...] = ()


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


def over(run_id: str, steps: Sequence[int], groups: Mapping[str, Group], chosen: str) -> list[Column]:
    """Return one column per step for one of a step's `groups`; files without its prompt are skipped. A prompt that only
    one batch contains has no columns."""
    if chosen in WATCHED:
        place = WATCHED.index(chosen)
        return [column for step in steps if place < len(found := _watched(run_id, step, _written(run_id, step)))
                for column in found[place]]
    prompt = prompt_hash(groups[chosen])
    having = [step for step in steps if prompt in _prompts(run_id, step, _written(run_id, step))]
    if len(having) < 2:
        return []
    batches = [_batch(run_id, step, _written(run_id, step)) for step in having]
    columns = [batch[prompt] for batch in batches if prompt in batch]
    return columns if len(columns) > 1 else []


def recurring(run_id: str, steps: Sequence[int], groups: Mapping[str, Group]) -> set[str]:
    """Return the names of those prompts of a step that batches of other steps contain; empty if prompts are watched."""
    if WATCHED[0] in groups:
        return set()
    held = Counter(prompt for step in steps for prompt in _prompts(run_id, step, _written(run_id, step)))
    return {name for name, group in groups.items() if held[prompt_hash(group)] > 1}


def _written(run_id: str, step: int) -> int:
    """Return the time at which a file was written; 0 if it was deleted since it was listed."""
    return files.written(run_id, "samples", step)


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def _prompts(run_id: str, step: int, written: int) -> frozenset[str]:
    """The hashes of the prompts of a file's batch, from its beginning; files of earlier versions are read whole."""
    found = prompts_of(files.path_of(run_id, "samples", step))
    return frozenset(_batch(run_id, step, written) if found is None else found)


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def _batch(run_id: str, step: int, written: int) -> Mapping[str, Column]:
    """The columns of the prompts of a file's batch. Long answers are only counted, because no two are equal."""
    samples = files.load(run_id, "samples", step) or {}
    return {prompt_hash(group): _column(of_batch(group), step, "logprob_after", LONG)
            for group in samples.get("groups", [])}


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def _watched(run_id: str, step: int, written: int) -> Sequence[Sequence[Column]]:
    """The columns of each watched prompt in a file: after the step, and of the run's first step before it too."""
    samples = files.load(run_id, "samples", step) or {}
    times = [(0, "before")] * (step == 1) + [(step, "after")]
    return [[_column(group, at, f"logprob_{when}") for at, when in times] for group in samples.get("watched", [])]


def _column(group: Group, step: int, field: str, longest: float = inf) -> Column:
    answers = {key_of(answer): answer for answer in group["answers"]
               if answer[field] is not None and len(answer["text"]) <= longest}
    return Column(step, {key: answer[field] for key, answer in answers.items()},
                  {key: answer["exact"] for key, answer in answers.items()},
                  tuple(Sample(answer["exact"], answer["reward"], answer["count"]) for answer in group["answers"]
                        if answer["count"] and step))
