"""The queue of a supervisor's jobs: waiting jobs, and the processes of running ones.

The newest question goes first: whoever moves a slider wants the last answer, not all of them in turn. A job that
is asked for again while it waits or goes is the same job. Downloads have places of their own: they may take minutes,
in which the processor is free.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from labcore.errors import LabError
from labcore.runs import jobs
from labcore.runs.faults import not_started

AT_ONCE = 2  # jobs that compute, and as many that download


class JobQueue:
    """`start(job)` starts a worker for a job and returns its pid."""

    def __init__(self, start: Callable[[str], int]):
        self._start = start
        self.waiting: list[str] = []
        self.going: dict[int, str] = {}  # pid -> job
        self._stopped: set[int] = set()

    def hear(self, line: str) -> None:
        """Take what the launcher says: "job ID" asks for a job, "cancel ID" takes that back; the rest is for others."""
        what, _, job = line.strip().partition(" ")
        if what == "job" and job not in (*self.waiting, *self.going.values()) and not jobs.ended(job):
            self.waiting.append(job)
            jobs.unsay(job)  # what a process said that died with its lab
        elif what == "cancel":
            self._cancel(job)

    def fill(self) -> None:
        """Start what waits, as far as there are places."""
        for job in reversed([*self.waiting]):
            if sum(jobs.fetches(other) == jobs.fetches(job) for other in self.going.values()) >= AT_ONCE:
                continue
            self.waiting.remove(job)
            try:
                self.going[self._start(job)] = job
            except (LabError, OSError) as error:
                self._fail(job, not_started(error))

    def note(self, pid: int, code: int) -> None:
        """The worker `pid` has ended with `code`, negative where a signal ended it."""
        job = self.going.pop(pid)
        if pid in self._stopped:
            self._stopped.remove(pid)
            self._fail(job, "This was stopped before it was done: try again.")
        elif not jobs.ended(job):
            why = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            memory = ", as the system does when memory runs out" if code == -9 else ""
            self._fail(job, f"The process that computed this {why}{memory}: try again, or ask for less.")

    def _cancel(self, job: str) -> None:
        if job in self.waiting:
            self.waiting.remove(job)
            self._fail(job, "This was stopped before it had begun: try again.")
        for pid, going in self.going.items():
            if going == job:
                self._stopped.add(pid)
                os.kill(pid, signal.SIGTERM)

    def _fail(self, job: str, sentence: str) -> None:
        if jobs.ended(job):
            return
        try:
            jobs.fail(job, sentence)
        except OSError as error:  # the disk is full, say: the runs must continue
            print(f"job {job}: {sentence} ({error})", file=sys.stderr, flush=True)
