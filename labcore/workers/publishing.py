"""What a worker's run says of its artifacts: that they are not published, and that they are again."""

from __future__ import annotations

import sys
import time
from contextlib import suppress

from labcore.errors import LabError
from labcore.files.artifacts import things
from labcore.files.artifacts.changes import changed
from labcore.files.artifacts.publisher import Publisher
from labcore.files.paths import home, run_folder
from labcore.store.store import Store
from labcore.workers.lifeline import Lifeline

CUT_SECONDS = 3.0  # what the end of a lab leaves for publishing, within the grace of its lifeline
BEAT_SECONDS = 5.0
SAY_SECONDS = 1.0


class Publishing(Publisher):
    """The publisher of a worker: events of the run are what it says. Does nothing where there is no object store.

    Raises:
        LabError: `RL_LAB_ARTIFACTS` cannot be used.
    """

    def __init__(self, store: Store):
        super().__init__(self._log)
        self._runs = store

    def complete(self, run_id: str, lifeline: Lifeline) -> None:
        """Publish all that the run has before its end is said; what cannot be published now, an event says."""
        changed(run_folder(run_id))
        begun = beaten = time.monotonic()

        def wait() -> bool:
            nonlocal beaten
            now = time.monotonic()
            if now - beaten > BEAT_SECONDS:
                self._runs.beat(run_id)
                beaten = now
            if now - begun > SAY_SECONDS:
                self._runs.set_message(run_id, "publishing its files")
            return not lifeline.cut or now - begun < CUT_SECONDS

        if not self.flush(wait) and run_id not in self.said:
            self._log(run_id, "the lab ended before all of them were sent")

    def _log(self, unit: str, why: str) -> None:
        """An event of a run; of a base or an upload a line in the log."""
        if not things.is_run(unit):
            print(f"{unit}: {why or 'published again'}", file=sys.stderr, flush=True)
            return
        kind, text = ("unpublished", unpublished(why)) if why else ("published", PUBLISHED)
        with suppress(LabError):  # the run meets the same fault of the store and says so
            self._runs.log(unit, kind, {"text": text}, self._runs.run(unit).step)


PUBLISHED = "All files of the run are in the object store again."


def unpublished(why: str) -> str:
    """What an event says of a run's files that are not all published."""
    return f"Not all files of the run are in the object store ({why.rstrip('.')}): they are kept in {home()} and are " \
           "published as soon as it can be reached, at the latest when a lab starts there."
