"""Cautions before a run: right answers that its length limit cuts off, where a built-in model writes them (its tokens
are characters), and a verifier without a memory limit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from labcore.catalog import choices, kinds
from labcore.catalog.knob import Value
from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.runs.spec import cautions
from labcore.runs.spec.run_spec import RunSpec
from labcore.tasks.environment import EnvironmentTask
from labcore.tasks.file_statistics import FileStatistics, statistics_of
from labcore.tasks.task import Pair, Single, TextTask, make_task
from labcore.tasks.verifiers import SECONDS

# ---------------------------------------------------------------- long texts
# What is to be said before a run that learns from long texts of the user's file: which of them a built-in model, whose
# tokens are characters, has no room for, and how many tokens each step computes.

MANY = 20_000  # tokens of a step: some ten seconds and half a gigabyte with the smallest model on one core
_SIZES = {"preference": ("pairs_per_step", 2), "reward_model": ("pairs_per_step", 2), "sft": ("sequences_per_step", 1)}


def long_texts_caution(spec: RunSpec) -> str:
    """The sentences, empty where its texts are short, or not those of a file that can be read."""
    from_file = choices.PAIRS[str(spec.knobs["pairs"])].from_file if "pairs" in spec.knobs else True
    size, texts = _SIZES.get(spec.row.loop, ("", 0))
    if not spec.data or size not in spec.knobs or spec.model not in MODELS or not from_file:
        return ""
    own = tuple((knob.key, spec.knobs[knob.key]) for knob in spec.task_row.knobs)
    try:
        lengths = _lengths(spec.kind, spec.task, own, spec.data)
    except LabError:  # said where the file is checked
        return ""
    room, most = MODELS[spec.model].context, max(lengths, default=0)
    cut, tokens = sum(length > room for length in lengths), int(spec.knobs[size]) * texts * min(most, room)
    said = []
    if cut:
        said.append(f"{cut:,} of {len(lengths):,} texts are longer than the {room:,} tokens that the model "
                    f"{spec.model} has room for, the longest with {most:,}: it learns from their beginnings only.")
    if tokens > MANY:
        said.append(f"Each step computes up to {tokens:,} tokens, which needs much time and memory: lower {size}, or "
                    "shorten the texts.")
    return " ".join(said)


@lru_cache(maxsize=4)  # a page asks at every touch of a knob
def _lengths(kind: str, key: str, knobs: tuple[tuple[str, Value], ...], data: str) -> tuple[int, ...]:
    return tuple(_texts(make_task(kinds.task(key, kind), dict(knobs), data)))


def _texts(task: TextTask) -> Iterator[int]:
    """The tokens of each text with its prompt and its end."""
    for row in getattr(task, "rows", ()):
        answers = ((row.chosen, row.rejected) if isinstance(row, Pair)
                   else (row.completion if isinstance(row, Single) else row.answer,))
        yield from (len(row.prompt) + len(answer) + 1 for answer in answers)


# ---------------------------------------------------------------- cautions

ENOUGH = 0.95  # of the answers that a proposed length limit lets through
SAMPLED = 64  # answers of a task that makes its own


def caution(spec: RunSpec) -> str:
    """The cautions of a language model's run; what is in a file of the user's is said beside it (`of_file`)."""
    return " ".join(filter(None, (cautions.caution(spec), of_task(spec), of_verifier(spec))))


def of_verifier(spec: RunSpec) -> str:
    """A caution where nothing but its time bounds the math verifier on this system; else empty."""
    if spec.knobs.get("verifier") != "math" or sys.platform == "linux":
        return ""
    return (f"The math verifier has a limit of {SECONDS:g} s for a completion, but on this system no limit of memory, "
            "so a completion such as 9^{9^{9^9}} may fill the memory for that time.")


def of_task(spec: RunSpec) -> str:
    """A caution where right answers of a task without a file would be cut off; else empty."""
    row = spec.task_row
    if spec.model not in MODELS or row.data or row.pairs:  # a task with pairs has many right answers, of any length
        return ""
    return _of_task(spec.kind, spec.task, _own(spec), int(spec.knobs["max_new_tokens"]))


@lru_cache(maxsize=256)  # a page asks at every touch of a knob
def _of_task(kind: str, key: str, knobs: tuple[tuple[str, Value], ...], limit: int) -> str:
    task = make_task(kinds.task(key, kind), dict(knobs))
    if isinstance(task, EnvironmentTask):  # whose answers are episodes, which the limits of the task hold
        return ""
    problems = task.problems(SAMPLED, np.random.default_rng(0))
    cut = sum(not task.score(each, each.answer[:limit]).exact for each in problems)
    if cut <= (1 - ENOUGH) * SAMPLED:
        return ""
    wanted = max(len(each.answer) for each in problems) + 1
    return (f"The length limit of {limit:,} tokens cuts off {cut} of {SAMPLED} right answers: set `max_new_tokens` to "
            f"{wanted:,}.")


def of_file(spec: RunSpec) -> str:
    """A caution where answers of the user's file are longer than the length limit, and which limit to set; else empty.
    Raises LabError if the file cannot be used."""
    if spec.model not in MODELS or not spec.data:
        return ""
    seen = _looked(spec.kind, spec.task, _own(spec), spec.data)
    longer = cut(seen, spec) if seen else 0
    if not seen or not longer:
        return ""
    wanted = enough(seen)
    room = MODELS[spec.model].context - seen.longest
    return too_long(longer, seen, spec) + (f": set `max_new_tokens` to {wanted:,}." if wanted <= room else ".")


@lru_cache(maxsize=4)  # the runs of a sweep have one file
def _looked(kind: str, key: str, knobs: tuple[tuple[str, Value], ...], data: str) -> FileStatistics | None:
    return statistics_of(make_task(kinds.task(key, kind), dict(knobs), data))


def _own(spec: RunSpec) -> tuple[tuple[str, Value], ...]:
    return tuple((knob.key, spec.knobs[knob.key]) for knob in spec.task_row.knobs)


def cut(seen: FileStatistics, spec: RunSpec) -> int:
    """The number of answers longer than a built-in model may write; 0 if these are few or are not to be written."""
    longer = sum(length + 1 > int(spec.knobs["max_new_tokens"]) for length in seen.lengths)  # the end is a token too
    written = spec.model in MODELS and spec.knobs.get("verifier") in ("exact", "numeric", "math")
    return longer if written and longer > (1 - ENOUGH) * seen.lines else 0


def enough(seen: FileStatistics) -> int:
    """The length limit within which most answers of a file end, in tokens."""
    return sorted(seen.lengths)[int(ENOUGH * (seen.lines - 1))] + 1


def too_long(longer: int, seen: FileStatistics, spec: RunSpec) -> str:
    """The sentence of it, without its end."""
    return (f"{longer:,} of {seen.lines:,} answers are longer than the length limit of "
            f"{int(spec.knobs['max_new_tokens']):,} tokens, so the model cannot write them to their end")
