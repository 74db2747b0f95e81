"""A stop that is asked for within a long step does not wait for its end: a thread looks for it while the step runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from labcore.errors import LabError
from labcore.store.store import Store
from labcore.workers.lifeline import Lifeline

LOOK_SECONDS = 1.0  # a step that ends sooner asks the store nothing


class StopWatch:
    """A context in which steps of a run are watched."""

    def __init__(self, store: Store, run_id: str, lifeline: Lifeline):
        self._store, self._run_id, self._lifeline = store, run_id, lifeline
        self._running, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stop watch", daemon=True)

    def __enter__(self) -> StopWatch:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Within it a step is computed."""
        self._running.set()
        try:
            yield
        finally:
            self._running.clear()

    def _watch(self) -> None:
        waited = False  # whether the same step was running a look before
        while not self._over.wait(LOOK_SECONDS):
            if waited and self._running.is_set() and self._asked():
                self._lifeline.drop_soon()
                return
            waited = self._running.is_set()

    def _asked(self) -> bool:
        try:
            return any(control.command == "stop" for control in self._store.asked(self._run_id))
        except LabError as error:  # the store is away, say: the run meets that at its next step
            print(f"{self._run_id}: {error}", file=sys.stderr, flush=True)
            return False
