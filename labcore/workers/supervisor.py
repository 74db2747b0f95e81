"""The supervisor: a warm process of the lab that starts one worker per queued run, and outlives none of its lab.

It imports torch and transformers once and then only waits; a forked worker finds them in memory and begins at
once. It must stay single-threaded and never compute, or its children hang. A line on standard input means "look
at the queue", or asks for a job (see `labcore.jobs`); the end of standard input means that the lab is gone: the
workers' lifeline is cut, they checkpoint and exit, and then it exits as well. Where fork does not serve (macOS,
Windows) workers are started cold.
"""

from __future__ import annotations

import gc
import importlib
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from labcore.catalog.kinds import KINDS
from labcore.errors import LabError
from labcore.files.paths import log_file, made, max_runs
from labcore.jobs import jobs
from labcore.jobs.desk import Desk
from labcore.jobs.worker import work
from labcore.runs import versions
from labcore.runs.faults import not_started
from labcore.store.store import Store
from labcore.workers.lifeline import GRACE_SECONDS
from labcore.workers.worker import drive

PRELOAD = ("torch", "torch._dynamo", "transformers", *(row.session.split(":")[0] for row in KINDS.values()),
           *(function.split(":")[0] for function in jobs.JOBS.values()))
CAN_FORK = hasattr(os, "fork") and sys.platform != "darwin"  # Apple's frameworks do not survive a fork
ENDING = (signal.SIGTERM, signal.SIGINT)
END_SECONDS = GRACE_SECONDS + 2
YIELDING = 5  # niceness of a worker: what trains gives way to the page that shows it, or its first chart waits


class Supervisor(ABC):
    """The queue and the workers; `Forking` and `Spawning` say how a worker is started and awaited."""

    def __init__(self, store: Store):
        self.store = store
        self.limit = max_runs()
        self.workers: dict[int, str] = {}  # pid -> run id
        self.before: dict[int, float | None] = {}  # pid -> when its run was last taken by then
        self.desk = Desk(self.start_job)
        self.closing = False

    def serve(self) -> None:
        """Work until the lab is gone."""
        self.store.reconcile()
        while True:
            try:
                self.reap()
                self.fill()
            except (LabError, OSError) as error:  # the disk is full, say: the workers that run must not fall with it
                print(error, file=sys.stderr, flush=True)
            if not self.wait():
                break
        self.closing = True
        self.cut_lifeline()
        deadline = time.monotonic() + END_SECONDS
        while self.pids and time.monotonic() < deadline:
            time.sleep(0.02)
            self.reap()
        for pid in self.pids:
            os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        while self.pids:
            time.sleep(0.02)
            self.reap()

    @property
    def pids(self) -> list[int]:
        """The workers that have not been seen to end, of runs and of jobs."""
        return [*self.workers, *self.desk.going]

    def fill(self) -> None:
        """Start the queued runs for which there is a place, and tell the others why they wait; then the jobs."""
        for run_id, before in self.store.queued().items():
            if run_id in self.workers.values():
                continue
            if len(self.workers) < self.limit:
                try:
                    pid = self.start(run_id)
                    self.workers[pid], self.before[pid] = run_id, before
                except (LabError, OSError) as error:
                    self.store.give_up(run_id, not_started(error), before)
            else:
                self.store.set_message(run_id, f"waiting for a free place: {len(self.workers)} of {self.limit} runs "
                                               "are going or paused (RL_LAB_MAX_RUNS)")
        self.desk.fill()

    def reap(self) -> None:
        """Note the workers that have ended; what a dead one still had is interrupted."""
        for pid in self.pids:
            code = self.ended(pid)
            if code is None:
                continue
            if pid in self.desk.going:
                self.desk.note(pid, code)
                continue
            run_id, before = self.workers.pop(pid), self.before.pop(pid, None)
            why = f"its process was killed by signal {-code}" if code < 0 else f"its process ended with code {code}"
            if code == -9:
                why += ", as the system does when memory runs out"
            taken = run_id in self.store.lost(pid, why)  # by now somebody may have queued it again: that one stays
            if code and not taken and not self.closing:  # it died before it took the run: not again and again
                self.store.give_up(run_id, f"The worker did not start ({why}): the details are in {log_file(run_id)}",
                                   before)

    @abstractmethod
    def wait(self) -> bool:
        """Block until there is something to do. False where the lab is gone."""

    @abstractmethod
    def start(self, run_id: str) -> int:
        """Start a worker; return its pid."""

    @abstractmethod
    def start_job(self, job: str) -> int:
        """Start a worker that does a job; return its pid."""

    @abstractmethod
    def ended(self, pid: int) -> int | None:
        """The exit code of a worker, negative where a signal ended it; None while it lives."""

    @abstractmethod
    def cut_lifeline(self) -> None:
        """Let the workers know that the lab is gone."""


class Forking(Supervisor):
    """Workers are forked from this warm process. Blocks in select, so an idle lab costs nothing."""

    def __init__(self, store: Store):
        super().__init__(store)
        self._stdin = sys.stdin.fileno()
        self._worker_end, self._lifeline = os.pipe()  # all workers read it; only this process could write
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        self._gone = False
        self._heard = b""  # the beginning of a line whose end has not come yet
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only the wake-up matters
        for number in ENDING:
            signal.signal(number, self._on_term)

    def _on_term(self, *_: object) -> None:
        self._gone = True

    def wait(self) -> bool:
        ready, _, _ = select.select([self._stdin, self._wake_reader], [], [])
        if self._wake_reader in ready:
            os.read(self._wake_reader, 4096)
        if self._stdin in ready:
            if not (said := os.read(self._stdin, 4096)):
                return False
            *lines, self._heard = (self._heard + said).split(b"\n")
            for line in lines:
                self.desk.hear(line.decode())
        return not self._gone

    def start(self, run_id: str) -> int:
        def train() -> None:
            if self.store.claim(run_id):  # else another lab on this store was faster
                drive(self.store, run_id, lifeline_fd=self._worker_end)
        return self._fork(log_file(run_id), train)

    def start_job(self, job: str) -> int:
        return self._fork(jobs.log_file(job), lambda: work(job, self._worker_end))

    def _fork(self, log: Path, do: Callable[[], None]) -> int:
        self.store.dispose()
        # A signal that is sent to the child before it is itself must wait, or this process's handler swallows it there.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            pid = os.fork()
            if pid == 0:
                self._become_worker(log, do, before)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid

    def ended(self, pid: int) -> int | None:
        done, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if done else None

    def cut_lifeline(self) -> None:
        os.close(self._lifeline)

    def _become_worker(self, log_path: Path, do: Callable[[], None], mask: set[int]) -> None:
        """In the child: a session of its own, nothing of the parent's but the lifeline, then its work.

        `mask` are the signals that it is to block from when the parent's handlers are gone.
        """
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, *ENDING):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.setsid()
            os.nice(YIELDING)
            with _log(log_path) as log, open(os.devnull) as nothing:
                os.dup2(nothing.fileno(), self._stdin)
                os.dup2(log.fileno(), sys.stdout.fileno())
                os.dup2(log.fileno(), sys.stderr.fileno())
            for descriptor in (self._lifeline, self._wake_reader, self._wake_writer):
                os.close(descriptor)
            do()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # never back into the supervisor's own code


class Spawning(Supervisor):
    """Workers are new processes whose lifeline is their standard input. Looks around while any of them lives."""

    TICK_SECONDS = 0.1
    COMMAND = (sys.executable, "-m", "labcore.workers.worker")
    JOB_COMMAND = (sys.executable, "-m", "labcore.jobs.worker")

    def __init__(self, store: Store):
        super().__init__(store)
        self._processes: dict[int, subprocess.Popen] = {}
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while line := sys.stdin.buffer.readline():
            self._lines.put(line)
        self._lines.put(b"")

    def wait(self) -> bool:
        try:
            line = self._lines.get(timeout=self.TICK_SECONDS if self.pids else None)
        except queue.Empty:
            return True
        self.desk.hear(line.decode())
        return bool(line)

    def start(self, run_id: str) -> int:
        return self._spawn([*self.COMMAND, run_id], log_file(run_id))

    def start_job(self, job: str) -> int:
        return self._spawn([*self.JOB_COMMAND, job], jobs.log_file(job))

    def _spawn(self, command: Sequence[str], log_path: Path) -> int:
        with _log(log_path) as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log,
                                       start_new_session=True)
        self._processes[process.pid] = process
        return process.pid

    def ended(self, pid: int) -> int | None:
        code = self._processes[pid].poll()
        if code is not None:
            self._processes.pop(pid).stdin.close()
        return code

    def cut_lifeline(self) -> None:
        for process in self._processes.values():
            process.stdin.close()


def _log(path: Path) -> IO[bytes]:
    made(path.parent)
    return path.open("ab")


def main(preload: Sequence[str] = PRELOAD, fork: bool = CAN_FORK) -> None:
    """Serve the store of `RL_LAB_STORE` until standard input ends."""
    gc.disable()  # or a fifth of the loading is spent looking for garbage among modules
    for module in preload if fork else ():
        importlib.import_module(module)
    versions.here()  # the workers inherit what it found: the code as it was when these modules were loaded
    supervisor = (Forking if fork else Spawning)(Store())
    gc.freeze()  # what is warm stays shared with the forked workers
    gc.enable()
    supervisor.serve()


if __name__ == "__main__":
    main()
