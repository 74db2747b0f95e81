"""What an owner does with runs, their own and imported ones: star, tag, note, delete, restore, delete for good."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from labcore.compare import imported
from labcore.errors import LabError
from labcore.shelf.fields import DAY
from labcore.store.store import Store

TRASH_DAYS = 7
MOST_TAG, MOST_NOTE = 40, 4000  # letters


def star(store: Store, run_ids: Iterable[str], on: bool = True) -> None:
    """Star runs, or take their stars away. Raises LabError where one is not there, as all of these do."""
    for run_id in run_ids:
        _of(store, run_id).mark(run_id, star=on)


def tag(store: Store, run_ids: Iterable[str], add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
    """Give runs tags and take others away; the order in which a run got its tags stays."""
    fresh = [_tag(text) for text in add]
    for run_id in run_ids:
        of = _of(store, run_id)
        before = imported.about(run_id).tags if of is imported else store.run(run_id).tags
        of.mark(run_id, tags=[text for text in dict.fromkeys([*before, *fresh]) if text not in remove])


def note(store: Store, run_id: str, text: str) -> None:
    """Write a run's note anew; an empty one deletes it."""
    if len(text) > MOST_NOTE:
        raise LabError(f"The note has {len(text):,} letters, more than {MOST_NOTE:,}: shorten it.")
    _of(store, run_id).mark(run_id, note=text.strip())


def trash(store: Store, run_ids: Iterable[str]) -> None:
    """Put ended or queued runs into the trash, where they can be restored: all of them or none."""
    run_ids = list(run_ids)
    others = [run_id for run_id in run_ids if imported.known(run_id)]
    store.trash([run_id for run_id in run_ids if run_id not in others])
    for run_id in others:
        imported.trash(run_id)


def restore(store: Store, run_ids: Iterable[str]) -> None:
    """Take runs out of the trash."""
    run_ids = list(run_ids)
    others = [run.id for run in imported.trashed() if run.id in run_ids]
    store.restore([run_id for run_id in run_ids if run_id not in others])
    for run_id in others:
        imported.restore(run_id)


def delete(store: Store, run_ids: Iterable[str]) -> None:
    """Delete runs for good, in the trash or not."""
    others = {run.id for run in (*imported.listed(), *imported.trashed())}
    for run_id in run_ids:
        if run_id in others:
            imported.forget(run_id)
        else:
            store.delete(run_id)


def purge(store: Store, days: float = TRASH_DAYS, run_ids: Sequence[str] | None = None) -> list[str]:
    """Delete for good what has been in the trash for `days`, of `run_ids` or of all; return the ids.

    Whoever lists the trash may do so long before: a run that was restored meanwhile stays.
    """
    before = time.time() - days * DAY
    old = run_ids if run_ids is not None else [
        run.id for run in (*store.trashed(), *imported.trashed()) if run.deleted <= before]
    own = store.purge(old, before) if old else []
    return own + [run_id for run_id in old if imported.purge(run_id, before)]


def _of(store: Store, run_id: str):
    """Where the run is marked: among the imported ones or in the store."""
    return imported if imported.known(run_id) else store


def _tag(text: str) -> str:
    text = " ".join(text.split())
    if not text or len(text) > MOST_TAG or set(text) & set('",'):
        raise LabError(f"{text[:60]!r} cannot be a tag: use 1 to {MOST_TAG} letters, without commas and quotes.")
    return text
