"""All runs of the lab, with summaries that are made once and then only grow."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from labcore.errors import LabError, NoSuchRun
from labcore.runs import summary as digest
from labcore.runs.imports import imported
from labcore.runs.imports.imported import Imported
from labcore.runs.lists.entries import Entry, of_imported, of_run
from labcore.runs.store.rows import ACTIVE, RunRow
from labcore.runs.store.store import Store
from labcore.runs.summary import Summary, headline, headline_among

FOREVER = digest.FOREVER


class Shelf:
    """The list of all runs, shared by all readers of a process. The summaries of ended runs are kept in the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._summaries: dict[str, Summary] = {}

    def entries(self, seconds: float = FOREVER) -> list[Entry]:
        """All runs that are not deleted, newest first. Runs that cannot be summarised within `seconds` are summarised
        at a later call."""
        found = self._of(self.store.runs(), imported.listed(self.store), seconds)
        return sorted(found, key=lambda entry: -entry.created)

    def refreshed(self, entries: Iterable[Entry], seconds: float = FOREVER) -> list[Entry]:
        """`entries` brought up to date, with the runs added since. Only active runs and those that have just ended are
        read again."""
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
        """Have the disk space of these runs measured again."""
        there = [run_id for run_id in run_ids if run_id in self._summaries]
        known = {run_id: replace(self._summaries[run_id], counted=0.0) for run_id in there}
        self._summaries.update(known)
        self.store.keep_summaries({run_id: summary.to_json() for run_id, summary in known.items()})

    def _of(self, rows: list[RunRow], others: list[Imported], seconds: float) -> list[Entry]:
        until = time.monotonic() + seconds
        kept = self.store.summaries() if any(row.id not in self._summaries for row in rows) else {}
        fresh: dict[str, Summary] = {}
        for row in rows:
            summary = self._summaries.get(row.id) or Summary.read(kept.get(row.id), headline(row.spec))
            self._summaries[row.id] = summary
            if time.monotonic() < until and (current := digest.current(self.store, row, summary)) != summary:
                self._summaries[row.id] = current
                if row.state not in ACTIVE:
                    fresh[row.id] = current
        if fresh:
            with suppress(LabError):  # on a full disk the list must still open: it is where room is made
                self.store.keep_summaries({run_id: summary.to_json() for run_id, summary in fresh.items()})
        for other in others:
            if other.id not in self._summaries and time.monotonic() < until:
                self._summaries[other.id] = _of_import(other)
        return [*(of_run(row, self._summaries[row.id]) for row in rows),
                *(of_imported(other, self._summaries.get(other.id, Summary())) for other in others)]


def complete(entries: Iterable[Entry]) -> bool:
    """True if every entry has a summary that is as new as the entry."""
    return all(entry.summary.size is not None and entry.summary.step >= entry.step for entry in entries)


def _of_import(run: Imported) -> Summary:
    folder, kept = imported.place(run.id), Summary.read(run.summary)
    if kept.size is not None:
        return kept
    try:
        trace = imported.load(run.id)
    except LabError:  # its files are damaged, which its notes say
        return digest.sized(Summary(), folder)
    metric = headline_among(list(trace.metrics))
    steps = trace.axes["step"]
    summary = digest.sized(Summary(metric).extended(int(steps[-1]), trace.metrics[metric].tolist()), folder)
    with suppress(OSError):  # a full disk: the summary is made again the next time
        imported.keep_summary(run, summary.to_json())
    return summary
