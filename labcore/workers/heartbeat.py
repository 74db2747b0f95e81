"""How the store knows that a worker lives: a thread says so, however long a step or a base model takes."""

from __future__ import annotations

import sys
import threading

from labcore.errors import LabError
from labcore.store.store import Store

BEAT_SECONDS = 10.0  # far less than `labcore.store.process.STALE_SECONDS`


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
