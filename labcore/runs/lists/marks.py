"""The owner's actions on runs and imported metrics: star, tag, group into projects, note, delete, restore."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from labcore.errors import LabError, quoted
from labcore.runs.files.paths import is_import, read_only
from labcore.runs.imports import imported
from labcore.runs.lists.entries import DAY
from labcore.runs.store.rows import APART
from labcore.runs.store.store import Store

TRASH_DAYS = 7
MOST_TAG = MOST_PROJECT = 40  # letters
MOST_NOTE = 4000


def star(store: Store, run_ids: Iterable[str], on: bool = True) -> None:
    """Star runs, or take their stars away. Like all functions here, raises LabError if a run does not exist."""
    for run_id in _there(run_ids):
        store.mark(run_id, star=on)


def tag(store: Store, run_ids: Iterable[str], add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
    """Give runs tags and take others away; the order in which a run got its tags stays."""
    fresh = [_tag(text) for text in add]
    for run_id in _there(run_ids):
        tags = dict.fromkeys([*store.marks_of(run_id).tags, *fresh])
        store.mark(run_id, tags=[text for text in tags if text not in remove])


def assign(store: Store, run_ids: Iterable[str], project: str) -> None:
    """Move runs into a project; an empty one takes them out of theirs."""
    name = project_name(project)
    for run_id in _there(run_ids):
        store.mark(run_id, project=name)


def project_name(text: str, what: str = "project") -> str:
    """The name of a project, or of a sweep, as it is kept. Raises LabError where it cannot be one."""
    name = " ".join(text.split())
    if len(name) > MOST_PROJECT or '"' in name or not name.isprintable():
        raise LabError(f"{quoted(name)} cannot be the name of a {what}: use up to {MOST_PROJECT} letters, without "
                       "quotes.")
    if what == "project" and name.casefold() in (each.casefold() for each in APART):
        raise LabError(f"The project {name} belongs to the lab, which puts the runs of its {name.lower()} there: "
                       "choose another name.")
    return name


def note(store: Store, run_id: str, text: str) -> None:
    """Replace a run's note; an empty one deletes it."""
    if len(text) > MOST_NOTE:
        raise LabError(f"The note has {len(text):,} letters, more than {MOST_NOTE:,}: shorten it.")
    [run_id] = _there([run_id])
    store.mark(run_id, note=text.strip())


def trash(store: Store, run_ids: Iterable[str]) -> None:
    """Put ended or queued runs into the trash, where they can be restored: all of them or none."""
    store.trash(_there(run_ids))


def restore(store: Store, run_ids: Iterable[str]) -> None:
    """Take runs out of the trash."""
    store.restore(_there(run_ids))


def delete(store: Store, run_ids: Iterable[str]) -> None:
    """Delete runs for good, in the trash or not."""
    for run_id in _there(run_ids):
        store.delete(run_id)


def purge(store: Store, days: float = TRASH_DAYS, run_ids: Sequence[str] | None = None) -> list[str]:
    """Delete for good the runs that have been in the trash for `days`, among `run_ids` or all. Returns the ids.

    A run that was restored since the trash was listed stays. A lab that is shared for reading keeps old runs, and
    refuses to delete named ones.
    """
    return [] if run_ids is None and read_only() else store.purge(time.time() - days * DAY, run_ids)


def _there(run_ids: Iterable[str]) -> list[str]:
    """The ids, where the files of all imported ones are there; of the others the store itself knows."""
    run_ids = list(run_ids)
    for run_id in run_ids:
        if is_import(run_id):
            imported.check_there(run_id)
    return run_ids


def _tag(text: str) -> str:
    text = " ".join(text.split())
    if not text or len(text) > MOST_TAG or set(text) & set('",'):
        raise LabError(f"{quoted(text)} cannot be a tag: use 1 to {MOST_TAG} letters, without commas and quotes.")
    return text
