"""What is deleted here for good is deleted in the store as well: at once, or when it can be reached.

A note in the home says what is to go until it is gone, so neither a store that is away nor a killed process leaves it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from labcore.files.artifacts import fetch, manifest, object_store, state, things
from labcore.files.artifacts.changes import notify
from labcore.files.artifacts.object_store import Away, ObjectStore


def deleted(path: Path) -> None:
    """The run or the thing at `path` is deleted for good.

    Raises:
        LabError: the setting cannot be used.
    """
    thing, unit = things.place(path), things.unit_with(path)
    store = object_store.opened()
    if not (store and thing and unit):
        return
    state.forget(thing)
    state.set_changed(unit)
    fetch.forget_answers()
    if not notify(unit):
        with suppress(Away):  # the note stays
            clear(store)


def clear(store: ObjectStore) -> list[str]:
    """Delete in the store what was deleted here; what that was. Raises LabError where the store is away."""
    if not state.to_forget():
        return []
    with FileLock(state.lock("forget")):  # what is made again under the same name waits for this
        gone = state.to_forget()
        for thing in gone:
            with FileLock(state.lock_of(things.unit_with(things.folder(thing)) or thing)):  # after who publishes it
                store.delete_folder(thing, first=manifest.NAME)
            state.forgotten(thing)
    return gone
