"""The launcher, through which the page starts runs. It owns the supervisor and starts another if it dies. Imports no
torch."""

from __future__ import annotations

import atexit
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from labcore.errors import LabError
from labcore.runs import jobs
from labcore.runs.files import storage
from labcore.runs.files.paths import SHARED
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.store import Store
from labcore.workers import process
from labcore.workers.executors import choice
from labcore.workers.watcher import Watching

CLOSE_SECONDS = 14.0  # a little more than the supervisor gives its workers
_QUICK_SECONDS = 10.0  # a supervisor that dies sooner than this, three times in a row, is not started again
_TRIES = 3


class Launcher:
    """One per lab. Its runs stop with it: they checkpoint, and can be resumed at the next start. One that is there for
    a `sweep` starts no other runs, which would stop with the sweep.

    Raises:
        LabError: `RL_LAB_MAX_RUNS` is no number, or the executor, the store or the object store cannot be used.
    """

    def __init__(self, store: Store, command: Sequence[str] = process.SUPERVISOR, sweep: str = ""):
        choice.check()  # a bad setting is refused here, not in the supervisor's log
        self.store = store
        self._publishing = storage.of_lab(store)
        self._command = (*command, sweep) if sweep else command
        self._lock = threading.Lock()
        self._closed = False
        self._quick_deaths = 0
        store.reconcile()
        with self._lock:
            self._spawn()
        self._publishing.open()
        self._watching = None if sweep else Watching(store)
        atexit.register(self.close)

    def start(self, spec: RunSpec, warm_up: bool = False) -> str:
        """Queue a run; it starts at once if a place is free. Returns its id. `warm_up` as in `Store.create`."""
        run_id = self.store.create(spec, warm_up=warm_up)
        self.wake()
        return run_id

    def resume(self, run_id: str, knobs: Mapping[str, Any] | None = None) -> None:
        """Resume an ended run from its newest checkpoint, with `knobs` changed there.

        Raises:
            LabError: it is going already, or is finished.
        """
        self.store.requeue(run_id, knobs)
        self.wake()

    def wake(self) -> None:
        """Have the supervisor look at the queue.

        Raises:
            LabError: the lab is closed, or the supervisor does not start.
        """
        self._say("wake")

    def compute(self, spec: jobs.Spec) -> str:
        """Have a job done unless its outcome is there; return its id, by which `jobs.outcome` tells.

        To be asked again until it is there: that costs next to nothing, and a job whose supervisor died is begun anew.

        Raises:
            LabError: as `wake`.
        """
        job = jobs.job_id(spec)
        if not jobs.ended(job):
            self._say(f"job {jobs.put(spec)}")
        return job

    def cancel(self, job: str) -> None:
        """Have a job stopped; its outcome then says so. Raises LabError as `wake`."""
        self._say(f"cancel {job}")

    def _say(self, line: str) -> None:
        with self._lock:
            if self._closed:
                raise LabError("The lab is closed: start it again.")
            if self._quick_deaths >= _TRIES:
                raise LabError(f"The process that starts runs does not start: see {process.log()}, fix the cause, "
                               "then start the lab again.")
            try:
                orders = _orders(self._process)
                orders.write(f"{line}\n".encode())
                orders.flush()
            except BrokenPipeError:  # it has just died; the watcher starts the next one, which reads the queue
                return

    def close(self) -> None:
        """Stop the supervisor and its workers, which checkpoint first. Does nothing the second time."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            supervisor = self._process
            _close_quietly(supervisor)
        atexit.unregister(self.close)
        if self._watching:
            self._watching.close()
        try:
            supervisor.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            supervisor.wait()
        self._publishing.close()
        self.store.reconcile()

    def _spawn(self) -> None:
        self._process = process.taken(self._command, self.store.url)
        threading.Thread(target=self._watch, args=(self._process, time.monotonic()), name="supervisor-watch",
                         daemon=True).start()

    def _watch(self, supervisor: subprocess.Popen[bytes], born: float) -> None:
        supervisor.wait()
        with self._lock:
            if self._closed:
                return
            _close_quietly(supervisor)
            quick = time.monotonic() - born < _QUICK_SECONDS
            self._quick_deaths = self._quick_deaths + 1 if quick else 0
            if self._quick_deaths < _TRIES:
                self._spawn()


class NoLauncher:
    """In the place of a launcher in a lab that is shared for reading: no process, and nothing starts.

    Raises:
        LabError: the object store cannot be used.
    """

    def __init__(self, store: Store):
        self.store = store
        storage.trim(store)  # it fetches what is looked at, and has no worker that would trim

    def start(self, spec: RunSpec, warm_up: bool = False) -> str:
        """Raises LabError."""
        raise LabError(SHARED)

    def resume(self, run_id: str, knobs: Mapping[str, Any] | None = None) -> None:
        """Raises LabError."""
        raise LabError(SHARED)

    def wake(self) -> None:
        """Raises LabError."""
        raise LabError(SHARED)

    def compute(self, spec: jobs.Spec) -> str:
        """The id of a job that is done. Raises LabError where it is not."""
        return jobs.put(spec)

    def cancel(self, job: str) -> None:
        """Raises LabError."""
        raise LabError(SHARED)

    def close(self) -> None:
        """There is nothing to close."""


def _orders(supervisor: subprocess.Popen[bytes]) -> IO[bytes]:
    """Its input."""
    assert supervisor.stdin is not None, "it is a pipe"
    return supervisor.stdin


def _close_quietly(supervisor: subprocess.Popen[bytes]) -> None:
    try:
        _orders(supervisor).close()
    except BrokenPipeError:
        return  # unread lines of a dead process are of no use to anybody
