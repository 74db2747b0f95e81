"""All runs that are there, with digests that are made once and then only grow."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from labcore.compare import imported
from labcore.compare.imported import Imported
from labcore.errors import LabError, NoSuchRun
from labcore.files import sizes
from labcore.files.paths import run_folder
from labcore.shelf.digest import Digest, headline, headline_among
from labcore.shelf.entries import Entry, of_imported, of_run
from labcore.store.rows import ACTIVE, RunRow
from labcore.store.store import Store

SIZE_SECONDS = 10.0  # how long the size of a run that is going counts
FOREVER = float("inf")


class Shelf:
    """One for all readers of a process. The digests of ended runs are kept in the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._digests: dict[str, Digest] = {}

    def entries(self, seconds: float = FOREVER) -> list[Entry]:
        """All runs that are not deleted, newest first. What cannot be digested in `seconds` is so at a later call."""
        found = self._of(self.store.runs(), imported.listed(self.store), seconds)
        return sorted(found, key=lambda entry: -entry.created)

    def refreshed(self, entries: Iterable[Entry], seconds: float = FOREVER) -> list[Entry]:
        """`entries` as they are now, where only those that go, or went, are read again; and those that were added."""
        before = {entry.id: entry for entry in entries}
        rows = {row.id: row for row in self.store.runs(*ACTIVE)}
        for entry in before.values():
            if entry.active and entry.id not in rows:
                with suppress(NoSuchRun):  # deleted
                    rows[entry.id] = self.store.run(entry.id)
        unread = [entry for entry in before.values() if not entry.active and entry.id not in rows]
        found = [*self._of(list(rows.values()), [], seconds), *unread]
        return sorted(found, key=lambda entry: -entry.created)

    def trashed(self, seconds: float = FOREVER) -> list[Entry]:
        """All deleted runs that can be restored, the last deleted first."""
        found = self._of(self.store.trashed(), imported.trashed(self.store), seconds)
        return sorted(found, key=lambda entry: -(entry.deleted or 0.0))

    def recount(self, run_ids: Iterable[str]) -> None:
        """Have the files of these runs counted anew."""
        known = {run_id: replace(self._digests[run_id], counted=0.0) for run_id in run_ids if run_id in self._digests}
        self._digests.update(known)
        self.store.keep_digests({run_id: digest.to_json() for run_id, digest in known.items()})

    def _of(self, rows: list[RunRow], others: list[Imported], seconds: float) -> list[Entry]:
        until = time.monotonic() + seconds
        kept = self.store.digests() if any(row.id not in self._digests for row in rows) else {}
        fresh: dict[str, Digest] = {}
        for row in rows:
            digest = self._digests.get(row.id) or Digest.read(kept.get(row.id), headline(row.spec))
            self._digests[row.id] = digest
            if time.monotonic() < until and (current := self._current(row, digest)) != digest:
                self._digests[row.id] = current
                if row.state not in ACTIVE:
                    fresh[row.id] = current
        if fresh:
            with suppress(LabError):  # on a full disk the list must still open: it is where room is made
                self.store.keep_digests({run_id: digest.to_json() for run_id, digest in fresh.items()})
        for told in others:
            if told.id not in self._digests and time.monotonic() < until:
                self._digests[told.id] = _of_import(told)
        return [*(of_run(row, self._digests[row.id]) for row in rows),
                *(of_imported(told, self._digests.get(told.id, Digest())) for told in others)]

    def _current(self, row: RunRow, digest: Digest) -> Digest:
        """The digest brought up to the run as it is."""
        if digest.step < row.step:
            steps, *_, values = self.store.columns([row.id], [digest.metric], digest.step)[row.id]
            digest = digest.extended(steps[-1] if steps else row.step, values)
        good_until = digest.counted + SIZE_SECONDS if row.state in ACTIVE else FOREVER
        changed = max(row.ended or 0.0, _exported(row.id))
        if digest.size is None or digest.counted < changed or time.time() > good_until:
            digest = _sized(digest, run_folder(row.id))
        return digest


def complete(entries: Iterable[Entry]) -> bool:
    """Whether the digests of all entries are there, and as new as the entries."""
    return all(entry.digest.size is not None and entry.digest.step >= entry.step for entry in entries)


def _of_import(told: Imported) -> Digest:
    folder = imported.place(told.id)
    try:
        trace = imported.load(told.id)
    except LabError:  # its files are damaged, which its notes say
        return _sized(Digest(), folder)
    metric = headline_among(list(trace.metrics))
    steps = trace.axes["step"]
    return _sized(Digest(metric).extended(int(steps[-1]), trace.metrics[metric].tolist()), folder)


def _exported(run_id: str) -> float:
    """When the run was last exported into its own folder, which may be after its end; 0 if it never was."""
    with suppress(FileNotFoundError):
        return (run_folder(run_id) / "export").stat().st_mtime
    return 0.0


def _sized(digest: Digest, folder: Path) -> Digest:
    begun = time.time()  # what comes while the files are counted is counted the next time
    return replace(digest, size=sizes.size(folder), counted=begun)
