"""Notifications that a file or folder of the lab changed and has to be published."""

from __future__ import annotations

from collections.abc import Callable, Container
from pathlib import Path
from urllib.parse import quote, unquote
from zlib import crc32

from labcore.runs.files import atomic
from labcore.runs.files.artifacts import units
from labcore.runs.files.artifacts.units import can_be
from labcore.runs.files.paths import home

# ---------------------------------------------------------------- state
# What a home knows of the object store, in files: which units it has published, and what is to be deleted there.
#
# A unit that is not marked as published is published when there is time, at the latest when the lab starts. So nothing
# is lost where a process is killed, or the store was away; and runs of before there was a store are published too.

FOLDER = ".artifacts"
_LOCKS = 64


def is_published(unit: str, store_id: str) -> bool:
    """True if all of a unit was in that store when it last changed here."""
    try:
        return _published(unit).read_text(encoding="utf-8") == store_id
    except FileNotFoundError:
        return False


def set_published(unit: str, store_id: str) -> None:
    """Note that all of a unit is in that store."""
    atomic.write_text(_published(unit), store_id)


def set_changed(unit: str) -> None:
    """Note that a unit here is different from the one in the store, or is about to be."""
    _published(unit).unlink(missing_ok=True)


def to_forget() -> list[str]:
    """The things and runs that are to be deleted in the store."""
    folder = _folder("forgotten")
    found = sorted(unquote(path.name) for path in folder.glob("[!.]*")) if folder.is_dir() else []
    return [thing for thing in found if can_be(thing)]  # anybody may have put a file there


def forget(thing: str) -> None:
    """Note that a thing, or a run with all it has, is to be deleted in the store."""
    atomic.write_bytes(_folder("forgotten") / _name(thing), b"")


def forgotten(thing: str) -> None:
    """Note that a thing has been deleted in the store."""
    (_folder("forgotten") / _name(thing)).unlink(missing_ok=True)


def lock_of(thing: str) -> str:
    """The path of the lock file of a thing or a unit, which it shares with some others."""
    return lock(f"thing-{crc32(thing.encode()) % _LOCKS}")


def lock(name: str) -> str:
    """The path of a lock file."""
    folder = _folder("locks")
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder / f"{_name(name)}.lock")


def _published(unit: str) -> Path:
    return _folder("published") / _name(unit)


def _folder(name: str) -> Path:
    return home() / FOLDER / name


def _name(text: str) -> str:
    return quote(text, safe="")


# ---------------------------------------------------------------- changes

Listener = Callable[[str, Container[int]], object]
_listeners: list[Listener] = []


def subscribe(listener: Listener) -> None:
    """Have `listener(unit, marked)` called at each change, from now on, in this process."""
    _listeners.append(listener)


def unsubscribe(listener: Listener) -> None:
    """Stop calling `listener`."""
    _listeners.remove(listener)


def changed(path: Path, marked: Container[int] = ()) -> None:
    """Report that the file or folder at `path` has changed, or is about to. `marked`: see `checkpoints.prune`."""
    if unit := units.unit_with(path):
        set_changed(unit)
        notify(unit, marked)


def notify(unit: str, marked: Container[int] = ()) -> bool:
    """Report a change of a unit. Returns whether any listener in this process received it."""
    for listener in _listeners:
        listener(unit, marked)
    return bool(_listeners)
