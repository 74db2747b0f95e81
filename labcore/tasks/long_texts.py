"""What is to be said before a run that learns from long texts of the user's file: which of them a built-in model, whose
tokens are characters, has no room for, and how many tokens each step computes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from labcore.catalog import choices, kinds
from labcore.catalog.knob import Value
from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.spec.run_spec import RunSpec
from labcore.tasks.task import Pair, Single, TextTask, make_task

MANY = 20_000  # tokens of a step: some ten seconds and half a gigabyte with the smallest model on one core
_SIZES = {"preference": ("pairs_per_step", 2), "reward_model": ("pairs_per_step", 2), "sft": ("sequences_per_step", 1)}


def caution(spec: RunSpec) -> str:
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
