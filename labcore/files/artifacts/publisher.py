"""The thread that publishes beside what a process does: beside a training, or beside the pages of a lab.

It waits in a worker and in a lab's server, never in the supervisor, which forks. Its queue are the names of units that
changed, each once; what is to be sent lies on the disk. While the store is away it tries again and again, and what it
could not publish when its process ends is published by the lab's next start.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Container
from types import TracebackType
from typing import Self

from labcore.errors import LabError
from labcore.files.artifacts import changes, deletion, object_store, publish, state, things
from labcore.files.artifacts.object_store import ObjectStore
from labcore.files.paths import home

RETRY_SECONDS = 5.0
REST_SECONDS = 2.0  # between two looks at a unit: many small files are published together

Say = Callable[[str, str], object]  # a unit, and why it is not published; "" once it is


class Publisher:
    """A context in which what changes is published. Of `partial` runs, of which other machines have files that are not
    here, it only adds what the store lacks; where it `adds`, of all of them.

    Raises:
        LabError: `RL_LAB_ARTIFACTS` cannot be used.
    """

    adds = False

    def __init__(self, say: Say):
        self._say = say
        self.partial: set[str] = set()
        self.live: set[str] = set()  # runs that this process writes into: they are not marked as published
        self._sent: dict[str, publish.Sent] = {}
        self._store = object_store.opened()
        self._changed: set[str] = set()
        self._marked: dict[str, Container[int]] = {}
        self.said: set[str] = set()  # the units of which was said last that they are not published
        self._going = threading.Condition()
        self._hurried = self._closed = self._busy = False
        self._tries = 0  # that failed, since the last one that did not
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def open(self) -> None:
        """Begin."""
        if self._store:
            changes.hear(self.add)
            self._thread = threading.Thread(target=self._work, name="publisher", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Publish no more; what is under way is cut off with the process."""
        if self._thread:
            changes.unhear(self.add)
            with self._going:
                self._closed = True
                self._going.notify_all()

    def add(self, unit: str, marked: Container[int] = ()) -> None:
        """Publish a unit by and by."""
        with self._going:
            self._changed.add(unit)
            if marked:
                self._marked[unit] = marked
            self._going.notify_all()

    def flush(self, wait: Callable[[], bool] = lambda: True) -> bool:
        """Publish all at once. Waits until it is done, a try has failed, or `wait()` says no; whether it is done.

        `wait` is asked a few times in a second.
        """
        if not self._store:
            return True
        with self._going:
            failed = self._tries
            self._hurried = True
            self._going.notify_all()
            try:
                while (self._changed or self._busy) and self._tries <= failed and wait():
                    self._going.wait(0.2)
            finally:
                self._hurried = False
            return not self._changed and not self._busy

    def _work(self) -> None:
        assert self._store
        while True:
            with self._going:
                while not self._changed and not self._closed:
                    self._going.wait()
                if self._closed:
                    return
                queue, self._changed, self._busy = sorted(self._changed), set(), True
            try:
                failed = self._publish(self._store, queue)
            except Exception:  # the lab's own fault: it must not keep a run from ending
                traceback.print_exc()
                failed = set(queue)
            with self._going:
                self._changed |= failed
                self._tries = self._tries + 1 if failed else 0
                self._busy = False
                self._going.notify_all()
                self._rest(RETRY_SECONDS if failed else REST_SECONDS)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._hurried and not self._closed and (left := until - time.monotonic()) > 0:
            self._going.wait(left)

    def _publish(self, store: ObjectStore, queue: list[str]) -> set[str]:
        """Publish these units; returns those that could not be."""
        failed = set()
        for unit in queue:
            try:
                if deletion.clear(store):
                    self._sent.clear()
                if things.folder(unit).is_dir():
                    self._send(store, unit)
            except (LabError, OSError) as error:
                self._sent.pop(unit, None)
                failed.add(unit)
                self._report(unit, str(error))
            else:
                self._done(unit)
        return failed

    def _send(self, store: ObjectStore, unit: str) -> None:
        add = self.adds or unit in self.partial
        sent = None if add else self._sent.setdefault(unit, publish.Sent())
        publish.publish(store, unit, self._marked.get(unit, ()), add=add, mark=unit not in self.live, sent=sent)

    def _done(self, unit: str) -> None:
        self._report(unit, "")

    def _report(self, unit: str, why: str) -> None:
        """Say it once when a unit cannot be published, and once when it can be again."""
        if bool(why) == (unit in self.said):
            return
        (self.said.add if why else self.said.discard)(unit)
        self._say(unit, why)


def unpublished(store: ObjectStore) -> list[str]:
    """The units of this home that are not all in the store."""
    root = home()
    store_id = store.begin()
    folders = [*root.glob("[!.]*"), *root.glob("base/[!.]*"), *root.glob("uploads/[!.]*")]
    units = {unit for path in folders if path.is_dir() and (unit := things.unit_with(path))}
    return sorted(unit for unit in units if not state.is_published(unit, store_id))
