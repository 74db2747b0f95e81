"""`python -m benchmarks.reports`: what it costs that a step reports what it is doing, with the smallest model.

Steps with the worker's listener and without one take turns, in one session, by the thread's processor time; what a
single report costs is measured by itself. The difference of the medians is within their spread, some percent.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from statistics import median

import torch

from labcore.llm.session import LlmSession
from labcore.runs.spec import activity
from labcore.runs.spec.run_spec import make
from labcore.workers.long_step import FIRST_SECONDS

CALLS = 100_000


def seconds(steps: int) -> tuple[list[float], list[float], int]:
    """Seconds of the steps with a listener, and of those without one, and how many reports a step makes."""
    session = LlmSession.start(make(algorithm_key="grpo", task_key="sort", steps=2 * steps + 2, knobs={"sft_steps": 0}))
    whole = (record for record in session.run() if record is not None)
    count = 0

    def counting(*_: object) -> None:
        nonlocal count
        count += 1
    with activity.listening(counting):
        next(whole)
    found: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * steps):
        found[number % 2 == 0].append(_timed(whole, number % 2 == 0))
    return found[True], found[False], count


def _timed(whole: Iterator[object], heard: bool) -> float:
    begun = time.thread_time()
    with activity.listening(activity.Throttled(lambda *_: None, FIRST_SECONDS) if heard else None):
        next(whole)
    return time.thread_time() - begun


def of_report() -> float:
    """Seconds of one report that nobody reads."""
    with activity.listening(activity.Throttled(lambda *_: None, 60.0)):
        begun = time.thread_time()
        for done in range(CALLS):
            activity.report("{} of {}", done, CALLS)
        return (time.thread_time() - begun) / CALLS


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100, help="of each kind (default 100)")
    torch.set_num_threads(1)
    heard, silent, count = seconds(parser.parse_args().steps)
    one = of_report()
    print(f"a step with a listener {1e3 * median(heard):.2f} ms, without {1e3 * median(silent):.2f} ms (medians); "
          f"{count:,} reports of {1e6 * one:.2f} µs are {100 * count * one / median(silent):.2f} % of a step")


if __name__ == "__main__":
    main()
