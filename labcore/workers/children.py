"""The supervisor's children on this machine, one for each run or job, and its orders: it waits for both at once.

Forked from the warm supervisor they find torch in memory and begin at once. Where fork does not serve (macOS, Windows)
they are started cold.
"""

from __future__ import annotations

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
from contextlib import suppress
from pathlib import Path
from typing import IO

from labcore.errors import LabError
from labcore.runs import jobs
from labcore.runs.files.paths import log_file, made
from labcore.runs.store.store import Store
from labcore.workers.job_worker import work
from labcore.workers.worker import drive

# ---------------------------------------------------------------- priority
# A process that trains has a lower priority than the page that shows it; otherwise the first chart of a page waits for
# all runs. At first it keeps the usual priority, because somebody waits for its first step, and on a busy machine a
# process with a low priority hardly runs.

NICENESS = 10
FIRST_SECONDS = 1.0  # processor time of a process before its priority is lowered
AUTOGROUP, TASKS = Path("/proc/self/autogroup"), Path("/proc/self/task")
TRIES, PAUSE = 20, 0.1  # the kernel takes one change in a tenth of a second


def give_way_soon() -> None:
    """Lower the priority of this process as soon as it has used `FIRST_SECONDS` of processor time."""
    signal.signal(signal.SIGPROF, lambda *_: give_way())
    signal.siginterrupt(signal.SIGPROF, False)  # a library's system call goes on: not each of them tries again
    signal.setitimer(signal.ITIMER_PROF, FIRST_SECONDS)


def give_way() -> None:
    """Lower the priority of this process, which has a session of its own, by `NICENESS`.

    Linux first shares the cores between sessions (sched(7), "The autogroup feature"), and what is nice within one gets
    no less of them: so the session has to be made nice too. Where that cannot be done (another system, a container that
    forbids it), the process trains with the niceness alone.
    """
    os.nice(NICENESS)
    for task in TASKS.iterdir() if TASKS.exists() else ():  # on Linux os.nice changes only this thread
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(task.name), os.nice(0))
    for _ in range(TRIES):
        try:
            AUTOGROUP.write_text(str(NICENESS))
            return
        except BlockingIOError:
            time.sleep(PAUSE)
        except OSError:
            return


# ---------------------------------------------------------------- children

CAN_FORK = hasattr(os, "fork") and sys.platform != "darwin"  # Apple's frameworks do not survive a fork
ENDING = (signal.SIGTERM, signal.SIGINT)


class Children(ABC):
    """`Forking` and `Spawning` say how a child is started and awaited."""

    def __init__(self, store: Store):
        self.store = store

    @abstractmethod
    def wait(self, watched: Sequence[int], seconds: float) -> list[str] | None:
        """Block until there is something to do, also at one of the descriptors `watched`, or for so many seconds.

        Returns the lines that the launcher has said; None where the lab is gone.
        """

    @abstractmethod
    def start(self, run_id: str) -> int:
        """Start a worker for a run; return its pid."""

    @abstractmethod
    def start_job(self, job: str) -> int:
        """Start a worker that does a job; return its pid."""

    @abstractmethod
    def ended(self, pid: int) -> int | None:
        """The exit code of a child, negative where a signal ended it; None while it lives."""

    @abstractmethod
    def cut_lifeline(self) -> None:
        """Let the children know that the lab is gone."""

    def kill(self, pid: int) -> None:
        """End one that has not ended by itself."""
        os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))


class Forking(Children):
    """Children are forked from this warm process. Blocks in select, so an idle lab costs next to nothing."""

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

    def wait(self, watched: Sequence[int], seconds: float) -> list[str] | None:
        ready, _, _ = select.select([self._stdin, self._wake_reader, *watched], [], [], seconds)
        lines: list[bytes] = []
        if self._wake_reader in ready:
            os.read(self._wake_reader, 4096)
        if self._stdin in ready:
            if not (said := os.read(self._stdin, 4096)):
                return None
            *lines, self._heard = (self._heard + said).split(b"\n")
        return None if self._gone else [line.decode() for line in lines]

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
            give_way_soon()
            with _log(log_path) as log, open(os.devnull) as nothing:
                os.dup2(nothing.fileno(), self._stdin)
                os.dup2(log.fileno(), sys.stdout.fileno())
                os.dup2(log.fileno(), sys.stderr.fileno())
            for descriptor in (self._lifeline, self._wake_reader, self._wake_writer):
                os.close(descriptor)
            do()
            code = 0
        except LabError as error:
            print(error, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # never back into the supervisor's own code


class Spawning(Children):
    """Children are new processes whose lifeline is their standard input. Looks around while any of them lives."""

    TICK_SECONDS = 0.1
    COMMAND = (sys.executable, "-m", "labcore.workers.worker")
    JOB_COMMAND = (sys.executable, "-m", "labcore.workers.job_worker")

    def __init__(self, store: Store):
        super().__init__(store)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while line := sys.stdin.buffer.readline():
            self._lines.put(line)
        self._lines.put(b"")

    def wait(self, watched: Sequence[int], seconds: float) -> list[str] | None:
        try:
            line = self._lines.get(timeout=self.TICK_SECONDS if self._processes or watched else seconds)
        except queue.Empty:
            return []
        return [line.decode()] if line else None

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
            _close_input(self._processes.pop(pid))
        return code

    def cut_lifeline(self) -> None:
        for process in self._processes.values():
            _close_input(process)


def _close_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin
    process.stdin.close()


def _log(path: Path) -> IO[bytes]:
    made(path.parent)
    return path.open("ab")
