"""Delete in the object store what was deleted here for good: at once, or when the store can be reached.

A note in the home names each thing until it is deleted, so that nothing is left behind if the store is away or a
process is killed.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from labcore.runs.files.artifacts import changes, fetch, manifest, object_store, units
from labcore.runs.files.artifacts.changes import notify
from labcore.runs.files.artifacts.object_store import ObjectStore
from labcore.runs.files.storage import Away


def deleted(path: Path) -> None:
    """Note that the run or the thing at `path` has been deleted for good, and delete its published files. Raises
    LabError if the setting of the object store cannot be used."""
    thing, unit = units.place(path), units.unit_with(path)
    store = object_store.opened()
    if not (thing and unit):
        return
    changes.forget(thing)
    changes.set_changed(unit)
    fetch.forget_answers()
    if not notify(unit):
        with suppress(Away):  # the note stays
            clear(store)


def clear(store: ObjectStore) -> list[str]:
    """Delete in the store everything that was deleted here. Returns the deleted things. Raises LabError if the store is
    away."""
    if not changes.to_forget():
        return []
    with FileLock(changes.lock("forget")):  # a thing that is made again under the same name waits for this
        gone = changes.to_forget()
        for thing in gone:
            with FileLock(changes.lock_of(units.unit_with(units.folder(thing)) or thing)):  # after its publisher
                store.delete_folder(thing, first=manifest.NAME)
            changes.forgotten(thing)
    return gone
