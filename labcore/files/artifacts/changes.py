"""The word that something of the lab's folder was written: it is to be published.

Costs a file name where there is no object store: nothing else happens then.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from pathlib import Path

from labcore.files.artifacts import state, things
from labcore.files.artifacts.object_store import chosen

Hearer = Callable[[str, Container[int]], object]
_hearers: list[Hearer] = []


def hear(hearer: Hearer) -> None:
    """Have `hearer(unit, marked)` called at each change, from now on, in this process."""
    _hearers.append(hearer)


def unhear(hearer: Hearer) -> None:
    """Call it no longer."""
    _hearers.remove(hearer)


def changed(path: Path, marked: Container[int] = ()) -> None:
    """The file or folder at `path` is about to be another one, or is. `marked`: see `checkpoints.prune`."""
    unit = things.unit_with(path) if chosen() else None
    if unit:
        state.set_changed(unit)
        notify(unit, marked)


def notify(unit: str, marked: Container[int] = ()) -> bool:
    """Say it of a unit; whether anybody hears it in this process."""
    for hearer in _hearers:
        hearer(unit, marked)
    return bool(_hearers)
