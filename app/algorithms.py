"""What a run can learn by: the named algorithms, and beside them the user's mixes.

In a list of keys a mix is its name behind `MIX`; `MIX` alone is a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.kinds import Kind
from labcore.catalog.mix import row as mixed
from labcore.catalog.task import Task
from labcore.errors import LabError
from labcore.runs import mixes
from labcore.runs.mixes import Mix

MIX = "mix:"


def key_of(algorithm: str, mix: str) -> str:
    """The key of what is chosen: the row's own, or that of a mix.

    >>> key_of("grpo", ""), key_of("grpo", "my own")
    ('grpo', 'mix:my own')
    """
    return f"{MIX}{mix}" if mix else algorithm


def keys(kind: Kind, begun: Iterable[Mix] = (), task: Task | None = None) -> list[str]:
    """The keys of a kind's algorithms and of the mixes, those that are saved and those only `begun`; of a `task` those
    that can learn it."""
    named = [key for key, row in kind.algorithms.items() if task is None or row.learns(task)]
    there = [mix for mix in (*saved()[0], *begun)
             if mix.algorithm in named and mixed.can_be_mixed(kind.algorithms[mix.algorithm])]
    return [*named, *dict.fromkeys(f"{MIX}{mix.name}" for mix in there)]


def words(kind: Kind) -> Callable[[str], str]:
    """How a key is called in a list."""
    def called(key: str) -> str:
        if key == MIX:
            return "Mix your own …"
        return f"Your mixes: {key.removeprefix(MIX)}" if key.startswith(MIX) else kind.algorithms[key].label
    return called


def saved() -> tuple[list[Mix], list[str]]:
    """The saved mixes, and what is wrong with their file, in sentences."""
    try:
        return mixes.saved()
    except LabError as error:
        return [], [str(error)]


def saved_as(name: str) -> Mix | None:
    """The saved mix of that name; None where there is none."""
    return next((mix for mix in saved()[0] if mix.name.casefold() == name.casefold()), None)


def free_name(row: Algorithm) -> str:
    """A name for a new mix that began from a row, which no saved one has."""
    taken = {mix.name.casefold() for mix in saved()[0]}
    first = f"{row.label[:mixed.LONGEST - 8]} mix"
    names = (first, *(f"{first} {number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name.casefold() not in taken)
