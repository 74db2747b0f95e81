"""Contenders that take turns: the machinery of `grpo_step` and `ppo_step`.

Each contender lives in a process of its own that takes its steps when it is told to, so that while one side is timed
the other one waits, and a busy machine slows both alike. Ratios are made per round, between neighbours in time; their
median is the figure to quote. "cpu" is the same of processor time, which other programs on the machine disturb less
than the clock.

A contender is a function (folder of the weights, dtype, threads, turn) that trains as its library does and calls
`turn.step_done` after every optimizer step; the call reports the time and blocks until the next turn.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError

SIZES = {"0.1": MODELS["tiny"], "0.8": MODELS["small"], "4.9": MODELS["medium"]}  # millions of parameters
USUAL = ("0.8", "4.9")
WARM_UP = 3  # steps: first allocations, lazy imports


@dataclass(frozen=True)
class Times:
    """Seconds of each step of a turn, by the clock and of the processor, and the process's peak memory so far, MB."""

    wall: list[float]
    cpu: list[float]
    peak_rss: float


class Turn:
    """The contender's end of the pipe. A turn is the number of steps to take; 0 ends the process."""

    def __init__(self, pipe: Connection):
        self.pipe = pipe
        self._wait()

    def step_done(self) -> None:
        now, cpu = time.perf_counter(), time.process_time()
        self.wall.append(now - self.at[0])
        self.cpu.append(cpu - self.at[1])
        if len(self.wall) == self.steps:
            unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS counts bytes, Linux KiB
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
            self.pipe.send(Times(self.wall, self.cpu, peak))
            self._wait()
        else:
            self.at = now, cpu

    def _wait(self) -> None:
        self.steps: int = self.pipe.recv()
        if not self.steps:
            raise SystemExit
        self.wall, self.cpu = [], []
        self.at = time.perf_counter(), time.process_time()


Contender = Callable[[Path, str, int, Turn], None]


def enter(contender: Contender, dtype: str, folder: Path, threads: int, pipe: Connection) -> None:
    """The child process of a contender."""
    set_threads(threads)
    contender(folder, dtype, threads, Turn(pipe))


def set_threads(threads: int) -> None:
    """Before torch is imported, so that no pool of another size is ever made."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    import torch

    torch.set_num_threads(threads)


def save_weights(size: str, folder: Path) -> None:
    """Write the Hugging Face folder that every contender starts from."""
    from labcore.llm.nets.model import build, save
    from labcore.llm.nets.tokenizer import character_tokenizer

    tokenizer = character_tokenizer()
    save(build(SIZES[size], tokenizer, seed=0), tokenizer, folder)


@dataclass(frozen=True)
class Row:
    """A contender's line of the report: seconds, and how many times faster than the first, round by round."""

    name: str
    seconds: float
    fastest: float
    slowest: float
    cpu_seconds: float
    peak_rss: float
    ratios: list[float]
    cpu_ratios: list[float]

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def cpu_ratio(self) -> float:
        return median(self.cpu_ratios)


def rows(rounds: Mapping[str, Sequence[Times]]) -> list[Row]:
    """The report on every contender's rounds; the first contender is the one to be compared with."""
    baseline = next(iter(rounds.values()))
    report = []
    for name, turns in rounds.items():
        wall = [seconds for turn in turns for seconds in turn.wall]
        pairs = list(zip(baseline, turns, strict=True))
        report.append(Row(
            name, median(wall), min(wall), max(wall), median(seconds for turn in turns for seconds in turn.cpu),
            max(turn.peak_rss for turn in turns),
            ratios=[median(base.wall) / median(turn.wall) for base, turn in pairs],
            cpu_ratios=[median(base.cpu) / median(turn.cpu) for base, turn in pairs]))
    return report


def table(report: Sequence[Row]) -> str:
    """The report for the eye: milliseconds per step, MB, ratios."""
    lines = [f"{'':10}{'ms/step [min..max]':>24}{'cpu ms':>8}{'peak MB':>9}   times faster than {report[0].name}"]
    for row in report:
        span = f"{1e3 * row.seconds:.0f} [{1e3 * row.fastest:.0f}..{1e3 * row.slowest:.0f}]"
        by_round = ", ".join(f"{ratio:.2f}" for ratio in row.ratios)
        lines.append(f"{row.name:10}{span:>24}{1e3 * row.cpu_seconds:>8.0f}{row.peak_rss:>9.0f}   "
                     f"{row.ratio:.2f} (cpu {row.cpu_ratio:.2f}) by round {by_round}")
    return "\n".join(lines)


def measure(size: str, sides: Mapping[str, Contender], names: Sequence[str], rounds: int, steps: int,
            threads: int) -> dict[str, list[Times]]:
    """Let the contenders take turns of `steps` steps, `rounds` times each, after a warm-up that is not counted."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        maker = _spawn().Process(target=save_weights, args=(size, folder))  # keeps torch out of this process
        maker.start()
        maker.join()
        with _started(sides, names, folder, threads) as pipes:
            for name in names:
                _take_turn(name, pipes[name], WARM_UP)
            measured: dict[str, list[Times]] = {name: [] for name in names}
            for _ in range(rounds):
                for name in names:
                    measured[name].append(_take_turn(name, pipes[name], steps))
            return measured


@contextmanager
def _started(sides: Mapping[str, Contender], names: Sequence[str], folder: Path, threads: int):
    """A waiting process for each contender, and the pipes to them; ended on the way out."""
    pipes, processes = {}, []
    for name in names:
        pipes[name], theirs = _spawn().Pipe()
        side, dtype = name.split("-")
        processes.append(_spawn().Process(target=enter, args=(sides[side], dtype, folder, threads, theirs),
                                          daemon=True))
        processes[-1].start()
        theirs.close()  # so that the death of the child is seen as the end of the pipe
    try:
        yield pipes
    finally:
        for name, process in zip(names, processes, strict=True):
            if process.is_alive():
                pipes[name].send(0)
            process.join(timeout=10)
            process.terminate()


def _take_turn(name: str, pipe: Connection, steps: int) -> Times:
    try:
        pipe.send(steps)
        return pipe.recv()
    except (EOFError, ConnectionError) as error:
        raise LabError(f"The contender {name} ended before its step was done: see its error above.") from error


def _spawn() -> multiprocessing.context.SpawnContext:
    return multiprocessing.get_context("spawn")


def main(program: str, title: str, batch: str, sides: Mapping[str, Contender], default: Sequence[str],
         check_peer: Callable[[], None], arguments: Sequence[str] | None) -> int:
    """The command line of a benchmark between `sides`, such as "lab", each in a dtype: "lab-bf16".

    `check_peer` raises LabError where the peer, "trl", is not installed.
    """
    names = [f"{side}-{dtype}" for side in sides for dtype in ("fp32", "bf16")]
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{program}", description=title)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(USUAL), help="millions of parameters")
    parser.add_argument("--contenders", nargs="+", choices=names, default=list(default),
                        help="who takes part; the ratios are to the first")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="of each contender in a round")
    parser.add_argument("--threads", type=int, default=1, help="of torch, for each contender")
    options = parser.parse_args(arguments)
    try:
        if any(name.startswith("trl") for name in options.contenders):  # ours alone needs nothing
            check_peer()
        for size in options.sizes:
            print(f"{size} M parameters, {batch}, {options.rounds} rounds of {options.steps} steps, "
                  f"{options.threads} thread(s)", flush=True)
            measured = measure(size, sides, options.contenders, options.rounds, options.steps, options.threads)
            print(table(rows(measured)), flush=True)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
