"""The supervisor: a warm process of the lab that has each queued run started, and outlives none of its lab.

It imports torch and transformers once and then only waits; a forked child finds them in memory and begins at once. It
must stay single-threaded and never compute, or its children hang. A line on standard input means "look at the queue",
or asks for a job (see `labcore.runs.jobs`); the end of standard input means that the lab is gone: the workers' lifeline
is cut, they checkpoint and exit, and then it exits as well. Where runs go is the executor's affair; jobs stay here.
"""

from __future__ import annotations

import gc
import importlib
import math
import sys
import time
from collections import deque
from collections.abc import Sequence

from labcore.catalog.kinds import KINDS
from labcore.errors import LabError
from labcore.runs import jobs, places, versions
from labcore.runs.faults import no_process
from labcore.runs.store.store import Store
from labcore.workers.children import CAN_FORK, Children, Forking, Spawning
from labcore.workers.executors import choice
from labcore.workers.executors.executor import Ended, Executor
from labcore.workers.job_queue import JobQueue
from labcore.workers.judge import Judging
from labcore.workers.lifeline import GRACE_SECONDS

PRELOAD = ("torch", "torch._dynamo", "transformers", *(row.session.split(":")[0] for row in KINDS.values()),
           *(function.split(":")[0] for function in jobs.JOBS.values()))
END_SECONDS = GRACE_SECONDS + 2
LOOK_SECONDS = 60.0  # between two looks for lost runs; one costs a query
AGAIN_SECONDS = 5.0  # between two tries of what the store, the disk or the system refused


class Supervisor:
    """The queue of runs: starts them, and notes their ends. With a `sweep`, only its runs."""

    def __init__(self, store: Store, children: Children, executor: Executor, sweep: str | None = None):
        self.store, self.children, self.executor = store, children, executor
        self.started: dict[str, float | None] = {}  # run id -> when that run was last taken before
        self._ends: deque[tuple[Ended, float | None]] = deque()  # until the store has them
        self._looked = -math.inf
        self.sweep = sweep
        self.job_queue = JobQueue(children.start_job)
        self.judging = Judging(store)
        self.closing = False

    def serve(self) -> None:
        """Work until the lab is gone."""
        while True:
            seconds = LOOK_SECONDS
            try:
                self.reap()
                self.look()
                self.fill()
            except (LabError, OSError) as error:  # the disk is full, say: the workers that run must not fall with it
                print(error, file=sys.stderr, flush=True)
                seconds = AGAIN_SECONDS
            lines = self.children.wait(self.executor.watched(), seconds)
            if lines is None:
                break
            for line in lines:
                self.job_queue.hear(line)
        self.close()

    def close(self) -> None:
        """Give all workers the time to checkpoint; then end them."""
        self.closing = True
        self.children.cut_lifeline()
        self.executor.cut()
        self.judging.cut()
        deadline = time.monotonic() + END_SECONDS
        while self.busy and time.monotonic() < deadline:
            time.sleep(0.02)
            self._collect()
        self.executor.kill()
        for pid in self.job_queue.going:
            self.children.kill(pid)
        while self.busy:
            time.sleep(0.02)
            self._collect()
        try:
            self.reap()
        except LabError as error:  # the next lab finds that their processes are gone
            print(error, file=sys.stderr, flush=True)

    @property
    def busy(self) -> bool:
        """True if a worker of a run or of a job has not been seen to end."""
        return bool(self.started or self.job_queue.going)

    def fill(self) -> None:
        """Start the queued runs for which there is a place, and tell the others why they wait; then the jobs.

        Raises:
            OSError: no process is to be had now. That is no fault of the runs, which wait for it.
        """
        waiting: dict[str, str | int] = {**self.executor.waiting()}
        queued = self.store.queued(self.sweep)
        short: OSError | None = None
        for run_id, before in queued.items():
            if run_id in self.started:
                continue
            if len(self.started) < self.executor.limit and not short:
                short = self._start(run_id, before)
                if not short:
                    continue
            # The runs that hold the places come and go: whoever shows this asks for them, or all that wait would be
            # written anew each time.
            waiting[run_id] = no_process(short, AGAIN_SECONDS) if short else self.executor.limit
        if not short and (run_id := self._beside()) in queued:
            short = self._start(run_id, queued[run_id])
            if not short:
                del waiting[run_id]
        self.store.set_waiting(waiting)
        self.job_queue.fill()
        self.judging.fill()
        if short:
            raise short

    def _start(self, run_id: str, before: float | None) -> OSError | None:
        """Have a run started, or fail it where it cannot be; returns why no process is to be had, if none is."""
        try:
            self.executor.start(run_id)
            self.started[run_id] = before
        except OSError as error:
            return error
        except LabError as error:
            if isinstance(error.__cause__, OSError):
                return error.__cause__
            self.store.give_up(run_id, str(error), before)  # the fault is the run's own
        return None

    def _beside(self) -> str:
        """The oldest queued run that starts although all places are held: a short one that would wait for a sweep, a
        lesson or a study. Empty where there is none, or where such a run has that place already."""
        if self.sweep or len(self.started) != self.executor.limit:
            return ""
        if not any(run.sweep for run in self.store.runs_named([*self.started]).values()):
            return ""
        waiting = [run.id for run in self.store.runs("queued", own=True) if places.short(run)]
        return next((run_id for run_id in reversed(waiting) if run_id not in self.started), "")

    def look(self) -> None:
        """Interrupt the runs whose process is gone, on whatever machine it was: once in `LOOK_SECONDS`."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self.store.reconcile()
            self._looked = time.monotonic()

    def reap(self) -> None:
        """Note the workers that have ended; what a dead one still had is interrupted.

        Raises:
            LabError: the store cannot be written. What it does not have yet is noted the next time.
        """
        self._collect()
        while self._ends:
            self._note(*self._ends[0])
            self._ends.popleft()

    def _collect(self) -> None:
        for pid in list(self.job_queue.going):
            if (code := self.children.ended(pid)) is not None:
                self.job_queue.note(pid, code)
        for end in self.executor.ended():
            self._ends.append((end, self.started.pop(end.run_id, None)))

    def _note(self, end: Ended, before: float | None) -> None:
        # By now somebody may have queued it again: that one stays.
        taken = end.owner is not None and end.run_id in self.store.lost(*end.owner, end.why)
        if end.fault and not taken and not self.closing:  # it died before it took the run: not again and again
            self.store.give_up(end.run_id, end.fault, before)


def main(preload: Sequence[str] = PRELOAD, fork: bool = CAN_FORK) -> None:
    """Serve the store of `RL_LAB_STORE` until standard input ends: all of its queue, or the sweep that is the first
    argument of the process."""
    gc.disable()  # or a fifth of the loading is spent looking for garbage among modules
    for module in preload if fork else ():
        importlib.import_module(module)
    if table := getattr(sys.modules.get("transformers.conversion_mapping"), "get_checkpoint_conversion_mapping", None):
        table("llama")  # or each worker builds it again; other versions of transformers may not have it
    versions.here()  # the workers inherit what it found: the code as it was when these modules were loaded
    store = Store()
    children = (Forking if fork else Spawning)(store)
    supervisor = Supervisor(store, children, choice.chosen(store, children), next(iter(sys.argv[1:]), None))
    gc.freeze()  # what is warm stays shared with the forked workers
    gc.enable()
    supervisor.serve()


if __name__ == "__main__":
    try:
        main()
    except LabError as error:  # a setting is wrong, and the lab says so as well
        sys.exit(str(error))
