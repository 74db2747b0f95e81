"""Show the progress of a long step, and let it be paused or stopped wherever it reports progress.

Short steps cost nothing extra, because the first check for requests is `FIRST_SECONDS` after a step has begun.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from labcore.catalog.amounts import left
from labcore.errors import LabError, NotOwner
from labcore.runs.spec import activity
from labcore.runs.spec.activity import Activity
from labcore.runs.store.store import Store
from labcore.workers.lifeline import Lifeline

# ---------------------------------------------------------------- stop watch
# A stop that is asked for within a long step does not wait for its end: a thread looks for it while the step runs.

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


# ---------------------------------------------------------------- long step

FIRST_SECONDS = 0.4  # of a step without a word
TELLING = 2  # parts of an activity that must be done before its pace tells when it ends

OnActivity = Callable[[str, int, str], object]  # run id, step, what it is doing


class RunMessage:
    """The present activity of a run, written to its message in the store; `on_activity` is called with it as well."""

    def __init__(self, store: Store, run_id: str, on_activity: OnActivity | None = None):
        self._store, self._run_id, self._on_activity = store, run_id, on_activity
        self._said = False

    def write(self, step: int, text: str) -> None:
        """Write the activity `text` of the step under way (0: none yet)."""
        self._store.set_message(self._run_id, text)
        self._said = True
        if self._on_activity:
            self._on_activity(self._run_id, step, text)

    def clear(self) -> None:
        """Empty the message: its activity is over."""
        if self._said:
            self._store.set_message(self._run_id, "")
            self._said = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within it every report is written at once, since there are few before the first step."""
        def heard(words: str, done: int, total: int) -> None:
            self.write(0, str(activity.now(words, done, total)))
        with activity.listening(heard):
            yield


class LongStep:
    """The steps of a run, while they are made. `look` is called, where the step reports, to do what is asked of it: it
    may wait, and it may raise."""

    def __init__(self, run_message: RunMessage, look: Callable[[Activity], object]):
        self._run_message, self._look = run_message, look
        self._step, self._begun, self._held = 0, 0.0, 0.0
        self._before: float | None = None  # seconds of the step before
        self._activity: tuple[str, float, int] = ("", 0.0, 0)  # what it is, since when, what was done then

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Within it a step, or a part of it, is computed."""
        if number != self._step:
            self._step, self._begun, self._held = number, time.perf_counter(), 0.0
        with activity.listening(activity.Throttled(self._hear, FIRST_SECONDS)):
            yield

    def done(self) -> None:
        """The step is whole."""
        self._before = time.perf_counter() - self._begun - self._held
        self._run_message.clear()

    def _hear(self, words: str, done: int, total: int) -> None:
        found = activity.now(words, done, total)
        begun = time.perf_counter()
        try:
            self._run_message.write(self._step, f"step {self._step:,}: {found}{self._left(found, begun)}")
            self._look(found)
        except NotOwner:  # another process has the run, or it was deleted: no step of it is worth finishing
            raise
        except LabError as error:  # the store is away, say: the run meets that at the end of its step
            print(error, file=sys.stderr, flush=True)
        self._held += time.perf_counter() - begun

    def _left(self, found: Activity, now: float) -> str:
        """The estimated time left in the step, from the step before; in the first step, the time left in its activity,
        unless that is part of another one."""
        now -= self._held
        if self._before is not None:
            seconds = self._before - (now - self._begun)
            return f", about {left(seconds)} left in this step" if seconds > 0 else ""
        if found.words != self._activity[0]:
            self._activity = found.words, now, found.done
        _, since, done = self._activity
        if found.within or found.done - done < TELLING:
            return ""
        return f", about {left((now - since) / (found.done - done) * (found.total - found.done))} left"
