"""The process of one job: it does its job and ends, or ends with its lab."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

from labcore.runs import jobs
from labcore.runs.spec import activity


def work(job: str, lifeline: int) -> None:
    """Do `job`. The end of the pipe `lifeline` ends this process: nobody is left to see the result."""
    threading.Thread(target=_watch, args=(lifeline,), name="lifeline", daemon=True).start()

    def heard(words: str, done: int, total: int) -> None:
        with suppress(OSError):  # the disk is full, say: the job itself will say so
            jobs.say(job, str(activity.now(words, done, total)))
    with activity.listening(activity.Throttled(heard, 0.0)):
        jobs.perform(job)


def _watch(lifeline: int) -> None:
    while os.read(lifeline, 64):
        pass  # only the end of the pipe means something
    os._exit(1)


if __name__ == "__main__":  # python -m labcore.workers.job_worker JOB: the lifeline is standard input
    work(sys.argv[1], sys.stdin.fileno())
