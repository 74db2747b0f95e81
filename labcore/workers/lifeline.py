"""The lifeline tells a worker to end: by a signal, or by the end of the pipe that its parent holds.

The pipe ends when the parent does, however it dies, so that no worker outlives its lab. The run loop looks at
`cut` after each step and has `GRACE_SECONDS` to checkpoint; then the process ends as it stands. A step that takes long
is not waited for: after `PATIENCE_SECONDS` it is left in its middle, by an exception.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from labcore.errors import LabError
from labcore.runs.store.store import Store

GRACE_SECONDS = 8.0
PATIENCE_SECONDS = 1.5
STOPPING = b"\nlabcore: stopping; a step that takes long is discarded. Ctrl-C again interrupts at once\n"


class Dropped(BaseException):
    """A step is left in its middle. No Exception, since nothing within a step may take it for a fault of its own."""


# What Python says of the handler that a signal had before.
Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None


def _never() -> bool:
    return False


class Lifeline:
    """A context in which SIGTERM, SIGINT and the end of the pipe `descriptor` set `cut` instead of killing.

    `too_late` is called when a supervised worker (one with a pipe) did not end in time; the process then exits.
    A second Ctrl-C in the foreground interrupts at once.
    """

    def __init__(self, descriptor: int | None = None, too_late: Callable[[], object] = lambda: None):
        self.cut = False
        self._descriptor = descriptor
        self._too_late = too_late
        self._timer: threading.Timer | None = None
        self._handlers: dict[int, Handler] = {}
        self._dropping = False  # whether the next signal is the dropper's
        self._droppable: Callable[[], bool] = _never  # whether the main thread is within a step that may be left
        self._over = threading.Event()
        self._dropper: threading.Thread | None = None

    def __enter__(self) -> Lifeline:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._handlers[number] = signal.signal(number, self._on_signal)
        if self._descriptor is not None:
            threading.Thread(target=self._watch, args=(self._descriptor,), name="lifeline", daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        if self._timer:
            self._timer.cancel()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @contextmanager
    def droppable(self, allowed: Callable[[], bool]) -> Iterator[None]:
        """Within it the main thread computes what may be left in its middle while it is `allowed`."""
        self._droppable = allowed
        try:
            yield
        finally:
            self._droppable = _never

    def drop_soon(self) -> None:
        """Have the step under way end by `Dropped` unless it ends by itself within `PATIENCE_SECONDS`."""
        if self._dropper is None:
            self._dropper = threading.Thread(target=self._drop, name="dropper", daemon=True)
            self._dropper.start()

    def _drop(self) -> None:
        while not self._over.wait(PATIENCE_SECONDS):
            if self._droppable() and signal.SIGTERM in self._handlers:
                self._dropping = True
                _thread.interrupt_main(signal.SIGTERM)  # its handler runs in the main thread, between two operations

    def _watch(self, descriptor: int) -> None:
        while os.read(descriptor, 64):
            pass  # only the end of the pipe means something
        if not self._over.is_set():  # else the process does something else by now, and is not to be ended
            self._cut()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        dropping, self._dropping = self._dropping, False
        if dropping:
            if self._droppable():
                self._droppable = _never
                raise Dropped
            return
        if self.cut and self._descriptor is None and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self._descriptor is None and number == signal.SIGINT:
            os.write(2, STOPPING)  # a print of the interrupted code may be under way
        self._cut()

    def _cut(self) -> None:
        self.cut = True
        self.drop_soon()
        if self._descriptor is not None and self._timer is None:
            self._timer = threading.Timer(GRACE_SECONDS, self._exit)
            self._timer.daemon = True
            self._timer.start()

    def _exit(self) -> None:
        if self._over.is_set():  # it was over while the pipe ended: the timer began too late to be cancelled
            return
        try:
            self._too_late()
        finally:
            os._exit(1)


# ---------------------------------------------------------------- heartbeat
# How the store knows that a worker lives: a thread says so, however long a step or a base model takes.

BEAT_SECONDS = 10.0  # far less than `labcore.runs.store.process.STALE_SECONDS`


class Heartbeat:
    """A context in which a run of this process beats. `lost`: it was found to be this process's no longer."""

    def __init__(self, store: Store, run_id: str):
        self.lost = False
        self._store, self._run_id = store, run_id
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """Raises NotOwner where the run is lost. Costs nothing where it is not."""
        if self.lost:
            self._store.check_owner(self._run_id)

    def _beat(self) -> None:
        while not (self.lost or self._over.wait(BEAT_SECONDS)):
            try:
                self.lost = not self._store.beat(self._run_id)
            except LabError as error:  # the store is away, say: the run meets that at its next step
                print(f"{self._run_id}: {error}", file=sys.stderr, flush=True)
