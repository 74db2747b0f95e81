"""From the start of a process to the first optimizer step: `python -m benchmarks.startup`.

    cold   a new Python process, as `python -m labcore run` begins one
    warm   a fork of a process that has imported what the lab's supervisor imports, as the page's workers are

Seconds on the clock since the process was started, medians of `--times`: until torch is imported, until the session
with its networks is built, and until the first step of GRPO is made. On a GPU the building takes in what CUDA takes to
begin. Left out: the store, the first checkpoint, and the SFT stage that a run on the lab's own tasks begins with.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from statistics import median

from labcore.errors import LabError
from labcore.workers.process import QUIET, ROOT

STAGES = ("torch imported", "model built", "first step")
Seconds = list[float]  # of each stage, since the process was started


def first_step(model: str, device: str, task: str, started: float) -> Seconds:
    """Take a run to its first step in this process, which was started at that time of the monotonic clock."""
    import torch  # noqa: F401 (its import is timed)

    seconds = [time.monotonic() - started]
    from labcore.llm.session import LlmSession
    from labcore.runs.spec.run_spec import make

    session = LlmSession.start(make(algorithm_key="grpo", task_key=task, model=model, device=device, steps=1,
                                    knobs={"updates_per_batch": 1}))
    seconds.append(time.monotonic() - started)
    for _ in session.run():
        pass
    return [*seconds, time.monotonic() - started]


def cold(model: str, device: str, task: str) -> Seconds:
    """In a new Python process."""
    code = ("import json, sys; from benchmarks.startup import first_step; "
            "print(json.dumps(first_step(*sys.argv[1:4], float(sys.argv[4]))))")
    ran = subprocess.run([sys.executable, "-c", code, model, device, task, str(time.monotonic())], cwd=ROOT,
                         env={**os.environ, **QUIET}, stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        raise LabError("The process ended before its first step: see its error above.")
    seconds: Seconds = json.loads(ran.stdout)
    return seconds


def warm(model: str, device: str, task: str) -> Seconds:
    """In a fork of the process that `forks` keeps."""
    ours, theirs = forks().Pipe()
    process = forks().Process(target=_send, args=(model, device, task, time.monotonic(), theirs))
    process.start()
    theirs.close()
    try:
        seconds: Seconds = ours.recv()
    except EOFError as error:
        raise LabError("The fork ended before its first step: see its error above.") from error
    finally:
        process.join()
    return seconds


def forks() -> multiprocessing.context.ForkServerContext:
    """Processes that begin with what the supervisor preloads."""
    from labcore.workers.supervisor import PRELOAD

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    return context


def _nothing() -> None:
    """What the first fork does, so that the preloading is over when the next one is timed."""


def _send(model: str, device: str, task: str, started: float, pipe: Connection) -> None:
    pipe.send(first_step(model, device, task, started))


def medians(measure: Callable[[], Seconds], times: int) -> Seconds:
    """Of each stage."""
    return [median(column) for column in zip(*(measure() for _ in range(times)), strict=True)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="tiny", help="tiny, small, medium, or a Hugging Face folder")
    parser.add_argument("--task", default="sort", choices=("sort", "add"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda", "mps"))
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args(arguments)
    os.environ.update(QUIET)  # the fork server inherits it
    asked = options.model, options.device, options.task
    print(f"{options.model}, {options.device}, medians of {options.times}, seconds since the process was started\n"
          f"{'':6}" + "".join(f"{stage:>16}" for stage in STAGES))
    try:
        for measure in (cold, warm):
            if measure is warm:
                loading = forks().Process(target=_nothing)
                loading.start()
                loading.join()
            found = medians(lambda measure=measure: measure(*asked), options.times)
            print(f"{measure.__name__:6}" + "".join(f"{seconds:>16.2f}" for seconds in found), flush=True)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
