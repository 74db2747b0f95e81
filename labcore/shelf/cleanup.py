"""Clean-up: which runs and files could go, by age, number or kind, and how much room that makes. Starred runs stay,
and so does every upload that any run names (see `unused_uploads`)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from labcore.errors import LabError, os_reason
from labcore.files.paths import home
from labcore.shelf import disk
from labcore.shelf.entries import IMPORTED, Entry
from labcore.shelf.fields import DAY
from labcore.shelf.marks import trash
from labcore.shelf.shelf import Shelf


@dataclass(frozen=True)
class Plan:
    """What a clean-up of runs would do, oldest first. `size` is the bytes that it frees.

    `files`: only files of theirs go, permanently.
    """

    ids: tuple[str, ...]
    size: int
    files: bool = False


def older_than(entries: Iterable[Entry], days: float) -> Plan:
    """Delete the ended runs without a star that ended more than `days` ago."""
    before = time.time() - days * DAY
    return _runs(entry for entry in _free(entries) if (entry.ended or entry.created) < before)


def beyond_newest(entries: Iterable[Entry], keep: int) -> Plan:
    """Delete the ended runs without a star but the newest `keep`."""
    return _runs(sorted(_free(entries), key=lambda entry: -entry.created)[keep:])


def spare_files(entries: Iterable[Entry]) -> Plan:
    """Delete the old checkpoints, samples and exports of the ended runs without a star: see `disk.delete_spare`."""
    sizes = {entry.id: disk.spare_size(entry.id) for entry in _oldest_first(_free(entries)) if entry.kind != IMPORTED}
    heavy = tuple(run_id for run_id, size in sizes.items() if size)
    return Plan(heavy, sum(sizes.values()), files=True)


def carry_out(shelf: Shelf, plan: Plan) -> int:
    """Do it: runs go into the trash, files for good. Returns the bytes of what went; an active run is left alone.

    Raises:
        LabError: a run was taken up again since the plan was made; then no run is deleted.
    """
    if not plan.files:
        trash(shelf.store, plan.ids)
        return plan.size
    ended = {entry.id for entry in shelf.entries(seconds=0) if not entry.active}
    try:
        return sum(disk.delete_spare(run_id) for run_id in plan.ids if run_id in ended)
    except OSError as error:
        raise LabError(f"Files of a run cannot be deleted ({os_reason(error)}: {error.filename or home()}): check the "
                       "folder's permissions, then clean up again.") from error
    finally:
        shelf.recount(plan.ids)


def _free(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if not entry.active and not entry.star]


def _oldest_first(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: entry.created)


def _runs(entries: Iterable[Entry]) -> Plan:
    chosen = _oldest_first(entries)
    return Plan(tuple(entry.id for entry in chosen), sum(entry.summary.size or 0 for entry in chosen))
