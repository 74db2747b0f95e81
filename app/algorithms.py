"""List the algorithms that a run can use: the named ones and the user's mixes.

In a list of keys a mix is `MIX` followed by its name; `MIX` alone is a new mix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from labcore.catalog import kinds
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.kinds import Kind
from labcore.catalog.knob import Knob, Value
from labcore.catalog.llm.pretrained import SCRATCH
from labcore.catalog.mix import row as mixed
from labcore.catalog.task import Task
from labcore.errors import LabError
from labcore.runs import mixes
from labcore.runs.mixes import Mix
from labcore.runs.spec.run_spec import knobs_of

MIX = "mix:"
SEPARATOR = "|"  # in no name of a task or a mix


def key_of(algorithm: str, mix: str) -> str:
    """The key of a choice: that of the row or that of the mix.

    >>> key_of("grpo", ""), key_of("grpo", "my own")
    ('grpo', 'mix:my own')
    """
    return f"{MIX}{mix}" if mix else algorithm


def keys(kind: Kind, begun: Iterable[Mix] = (), task: Task | None = None) -> list[str]:
    """The keys of a kind's algorithms and mixes, whether the mixes are saved or only `begun`. With a `task`, only the
    algorithms and mixes that can learn it."""
    named = [key for key, row in kind.algorithms.items() if task is None or row.learns(task)]
    there = [mix for mix in (*saved()[0], *begun)
             if mix.algorithm in named and mixed.can_be_mixed(kind.algorithms[mix.algorithm])]
    return [*named, *dict.fromkeys(f"{MIX}{mix.name}" for mix in there)]


def words(kind: Kind) -> Callable[[str], str]:
    """Return a function from a key to its label in a list."""
    def label(key: str) -> str:
        if key == MIX:
            return "Mix your own …"
        return f"Your mixes: {key.removeprefix(MIX)}" if key.startswith(MIX) else kind.algorithms[key].label
    return label


def saved() -> tuple[list[Mix], list[str]]:
    """The saved mixes, and sentences on the faults of their file."""
    try:
        return mixes.saved()
    except LabError as error:
        return [], [str(error)]


def saved_as(name: str) -> Mix | None:
    """The saved mix of that name; None where there is none."""
    return next((mix for mix in saved()[0] if mix.name.casefold() == name.casefold()), None)


def free_name(row: Algorithm) -> str:
    """A name for a new mix that began from a row; no saved mix has it."""
    taken = {mix.name.casefold() for mix in saved()[0]}
    first = f"{row.label[:mixed.LONGEST - 8]} mix"
    names = (first, *(f"{first} {number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name.casefold() not in taken)


# ---- the knobs that a draft keeps ---------------------------------------------------------------------------------


def place(algorithm: str, mix: str, task: str) -> str:
    """The key under which a draft keeps the knobs of an algorithm on a task.

    >>> place("grpo", "", "sort"), place("grpo", "my own", "sort")
    ('grpo:sort', 'grpo:sort|my own')
    """
    return f"{algorithm}:{task}{SEPARATOR if mix else ''}{mix}"


def _named(place: str) -> tuple[str, str, str]:
    """The algorithm, the task and the mix of a place."""
    begun, _, mix = place.partition(SEPARATOR)
    algorithm, _, task = begun.partition(":")
    return algorithm, task, mix


def begun(kept: Mapping[str, dict[str, Value]]) -> dict[str, Mix]:
    """The mixes whose knobs are kept at the places of a draft, by name."""
    places = [(*_named(place), knobs) for place, knobs in kept.items()]
    return {mix: Mix(mix, algorithm, knobs) for algorithm, _, mix, knobs in places if mix}


def knobs_at(place: str, kind: Kind, weights: str = SCRATCH) -> tuple[Knob, ...]:
    """The knobs that a draft keeps at `place`; `weights` as for `knobs_of`. Raises LabError if there is no such
    algorithm or task."""
    return _knobs_at(place, kind.key, weights)


@lru_cache(maxsize=256)  # called about fifty times while a page is drawn
def _knobs_at(place: str, kind: str, weights: str) -> tuple[Knob, ...]:
    algorithm, task, mix = _named(place)
    return knobs_of(declared(algorithm, mix, kinds.kind(kind)), kinds.task(task, kind), weights)


def declared(algorithm: str, mix: str, kind: Kind) -> Algorithm:
    """The row that declares the knobs: for a mix, the row with all knobs of its loop."""
    return mixed.with_every_knob(algorithm) if mix else kinds.algorithm(algorithm, kind.key)
