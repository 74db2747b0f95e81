"""Publishing: each worker publishes the files of its run; a lab's server and the command `publish` send the files that
the object store lacks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from labcore.errors import LabError, quoted
from labcore.runs.files import checkpoints
from labcore.runs.files.artifacts import cache, changes, deletion, fetch, object_store, units
from labcore.runs.files.artifacts.changes import changed
from labcore.runs.files.artifacts.publish import Publisher, Sent, publish, unpublished
from labcore.runs.files.paths import check_writable, home, run_folder
from labcore.runs.files.storage import Away, Damaged
from labcore.runs.store.rows import ACTIVE
from labcore.runs.store.store import Store
from labcore.runs.titles import with_ids

CUT_SECONDS = 3.0  # left for publishing when a lab ends, within the grace of its lifeline
LOOK_SECONDS = 1.0  # while a run waits for its files to be sent
UNPUBLISHED, PUBLISHED = "unpublished", "published"  # events
BACK = "All files of the run are in the object store."


class OfWorker(Publisher):
    """Publishes for a worker (`storage.of_worker`), and logs its messages as events of the run."""

    def __init__(self, store: Store):
        super().__init__(self._log)
        self._runs = store

    def begin(self, run_id: str, step: int) -> None:
        """Fetch the run's files. The run continues without files that are damaged in the store; a checkpoint is checked
        when it is fetched."""
        self.live.add(run_id)
        self.partial.add(run_id)
        try:
            fetch.bring_run(run_id)
        except Away:
            if step and not checkpoints.local(run_folder(run_id)):
                raise
        except Damaged as error:  # pictures or notes, without which the run learns the same
            print(error, file=sys.stderr, flush=True)
        else:
            self.partial.remove(run_id)

    def complete(self, run_id: str, cut: Callable[[], bool]) -> None:
        """Publish all files of the run. An event names files that cannot be published now. No fault in here keeps the
        worker from noting the end of the run."""
        self.live.discard(run_id)
        try:
            changed(run_folder(run_id))
            if not self._flushed(run_id, cut):
                self._report(run_id, "its end did not wait until all of them were sent")
            if not cut():
                cache.trim(lambda: active(self._runs))  # files beyond the limit can be deleted another time
        except (LabError, OSError) as error:
            print(f"{run_id}: {error}", file=sys.stderr, flush=True)

    def _done(self, unit: str) -> None:
        """Report a unit as published, unless it has changed since, because then it is sent once more."""
        if unit not in self._changed:
            super()._done(unit)

    def _flushed(self, run_id: str, cut: Callable[[], bool]) -> bool:
        """True if all of the run was sent before it was asked to stop, or the lab ended."""
        begun = looked = time.monotonic()

        def wait() -> bool:
            nonlocal looked
            now = time.monotonic()
            if now - looked > LOOK_SECONDS:
                looked = now
                try:
                    self._runs.set_message(run_id, "publishing its files")
                    if self._stopped(run_id):  # the object store may hang
                        return False
                except LabError as error:  # the store of runs has a fault, but the files can still be sent
                    print(f"{run_id}: {error}", file=sys.stderr, flush=True)
            return not cut() or now - begun < CUT_SECONDS

        return self.flush(wait)

    def _stopped(self, run_id: str) -> bool:
        asked = [control for control in self._runs.asked(run_id) if control.command == "stop"]
        for control in asked:
            self._runs.settle(control.id, self._runs.run(run_id).step)
        return bool(asked)

    def _log(self, unit: str, why: str) -> None:
        if not units.is_run(unit):
            print(f"{unit}: {why or 'published'}", file=sys.stderr, flush=True)
            return
        text = (f"Not all files of the run are in the object store ({why.rstrip('.')}): they are kept in {home()}, and "
                "published as soon as it can be reached, at the latest when a lab starts there.") if why else BACK
        with suppress(LabError):  # the run meets the same fault of the store and says so
            self._runs.log(unit, UNPUBLISHED if why else PUBLISHED, {"text": text}, self._runs.run(unit).step)


class OfLab(Publisher):
    """See `storage.of_lab`. It begins with all that this home has and the object store lacks, but for the runs that a
    process has or will have."""

    adds = True

    def __init__(self, store: Store):
        super().__init__(self._print)
        object_store.check()
        cache.limit()
        self._runs = store

    def open(self) -> None:
        super().open()
        going = active(self._runs)
        for unit in unpublished(self._store):
            if unit not in going:
                self.add(unit)
        for thing in changes.to_forget():
            self.add(thing)

    def _done(self, unit: str) -> None:
        """Say it of a run whose worker had to say that it is not published."""
        super()._done(unit)
        with suppress(LabError):  # the run is published even so
            events = self._runs.events_after(unit) if units.is_run(unit) else []
            said = [event for event in events if event.kind in (PUBLISHED, UNPUBLISHED)]
            if said and said[-1].kind == UNPUBLISHED:
                self._runs.log(unit, PUBLISHED, {"text": BACK}, said[-1].step)
            cache.trim(lambda: active(self._runs))

    def _print(self, unit: str, why: str) -> None:
        print(f"{unit}: {why or 'published'}", file=sys.stderr, flush=True)


def active(store: Store) -> set[str]:
    """The runs that a process has or will have."""
    return {row.id for row in store.runs(*ACTIVE)}


def by_hand(runs: Store, chosen: Sequence[str], again: bool) -> Iterator[str]:
    """See `storage.publish`."""
    check_writable()
    target = object_store.opened()
    going = active(runs)
    for run in chosen:
        if not units.is_run(run) or units.unit_with(units.folder(run)) != run or not units.folder(run).is_dir():
            raise LabError(f"This machine has no files of a run {quoted(run)}: publish it where it was made.")
        if run in going:
            raise LabError(f"The run {run} is queued or running: its worker publishes it.")
    deletion.clear(target)
    wanted = [unit for unit in chosen or unpublished(target) if unit not in going]
    for unit, named in zip(wanted, with_ids(runs, wanted), strict=True):
        publish(target, unit, add=True, sent=Sent(again=again))
        yield f"{named} is published."
    if not wanted:
        yield f"Everything on this machine is in {target.url}."


def trim(runs: Store) -> None:
    """See `storage.trim`. The object store is asked whether it can be used."""
    object_store.check()
    cache.trim(lambda: active(runs))
