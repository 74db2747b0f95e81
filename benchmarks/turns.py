"""Contenders that take turns: the machinery of `grpo_step` and `ppo_step`.

Each contender lives in a process of its own that takes its steps when it is told to, so that while one side is timed
the other one waits, and a busy machine slows both alike. Ratios are made per round, between neighbours in time; their
median is the figure to quote. "cpu" is the same of processor time, which other programs on the machine disturb less
than the clock.

A contender is a function (folder of the weights, dtype, threads, turn) that trains as its library does and calls
`turn.step_done` after every optimizer step; the call reports the time and blocks until the next turn. Peak memory is
the process's, or on a CUDA device what torch's tensors take there.
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
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.workers.process import HUGE_PAGES

SIZES = {"0.1": MODELS["tiny"], "0.8": MODELS["small"], "4.9": MODELS["medium"]}  # millions of parameters
USUAL = ("0.8", "4.9")
WARM_UP = 3  # steps: first allocations, lazy imports


@dataclass(frozen=True)
class Times:
    """Seconds of each step of a turn, by the clock and of the processor, the peak memory so far, MB, how many tokens
    the turn sampled (0 where nobody counts), the seconds of the phases of each step, where they are measured, and where
    they are counted the operations of a step, how many a second of large matrix products has, and the seconds of the
    step's own products alone (see `roofline`)."""

    wall: list[float]
    cpu: list[float]
    peak: float
    tokens: int = 0
    phases: Mapping[str, Sequence[float]] = field(default_factory=dict)
    operations: float = 0.0
    peak_operations: float = 0.0
    products: float = 0.0


class Turn:
    """The contender's end of the pipe. A turn is the number of steps to take; 0 ends the process.

    With `counted`, a dtype, the last step of the first turn counts its operations: by then nothing is done for the
    first time.
    """

    def __init__(self, pipe: Connection, counted: str = ""):
        self.pipe, self.counted, self.counter = pipe, counted, None
        self._wait()

    def step_done(self, tokens: int = 0) -> None:
        """A step is done that sampled so many tokens."""
        on_gpu = _cuda()
        if on_gpu:
            on_gpu.synchronize()
        now, cpu = time.perf_counter(), time.process_time()
        self.wall.append(now - self.at[0])
        self.cpu.append(cpu - self.at[1])
        self.tokens += tokens
        if len(self.wall) == self.steps:
            unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS counts bytes, Linux KiB
            peak = (on_gpu.max_memory_allocated() / 2**20 if on_gpu
                    else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)
            self.pipe.send(Times(self.wall, self.cpu, peak, self.tokens, self.phases, *self._counted()))
            self._wait()
        else:
            self._count()
            self.at = now, cpu

    def phase_done(self, name: str, seconds: float) -> None:
        """A phase of a step took so long."""
        self.phases.setdefault(name, []).append(seconds)

    def ready(self) -> None:
        """All is loaded: the time until now is not that of the first step."""
        self._count()
        self.at = time.perf_counter(), time.process_time()

    def _count(self) -> None:
        if self.counted and len(self.wall) == self.steps - 1:
            from benchmarks.roofline import Counter

            self.counter = Counter()

    def _counted(self) -> tuple[float, float, float]:
        """(operations of a step, operations per second, seconds of its products alone); zeros if not counted."""
        if self.counter is None:
            return 0.0, 0.0, 0.0
        import torch

        from benchmarks.roofline import peak

        operations, of_second = self.counter.stop(), peak(torch.bfloat16 if self.counted == "bf16" else torch.float32)
        found = operations, of_second, self.counter.alone()
        self.counter, self.counted = None, ""
        return found

    def _wait(self) -> None:
        self.steps: int = self.pipe.recv()
        if not self.steps:
            raise SystemExit
        self.wall, self.cpu, self.tokens, self.phases = [], [], 0, dict[str, list[float]]()
        self.at = time.perf_counter(), time.process_time()


def _cuda() -> Any:
    """torch.cuda where this process has computed there."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


Contender = Callable[[Path, str, int, Turn], None]


def enter(contender: Contender, dtype: str, folder: Path, threads: int, pipe: Connection, counts: bool) -> None:
    """The child process of a contender."""
    set_threads(threads)
    contender(folder, dtype, threads, Turn(pipe, dtype if counts else ""))


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
    peak: float
    ratios: list[float]
    cpu_ratios: list[float]
    tokens_per_second: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)

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
            max(turn.peak for turn in turns),
            ratios=[median(base.wall) / median(turn.wall) for base, turn in pairs],
            cpu_ratios=[median(base.cpu) / median(turn.cpu) for base, turn in pairs],
            tokens_per_second=sum(turn.tokens for turn in turns) / sum(wall), phases=_phases(turns)))
    return report


def _phases(turns: Sequence[Times]) -> dict[str, float]:
    """The median seconds of each phase."""
    return {name: median(seconds for turn in turns for seconds in turn.phases.get(name, ()))
            for name in turns[0].phases}


def table(report: Sequence[Row]) -> str:
    """The report for the eye: milliseconds per step, MB, ratios, and tokens a second where they are counted."""
    counted = any(row.tokens_per_second for row in report)
    lines = [f"{'':10}{'ms/step [min..max]':>24}{'cpu ms':>8}{'peak MB':>9}"
             f"{'tokens/s' if counted else '':>{10 * counted}}   times faster than {report[0].name}"]
    for row in report:
        span = f"{1e3 * row.seconds:.0f} [{1e3 * row.fastest:.0f}..{1e3 * row.slowest:.0f}]"
        by_round = ", ".join(f"{ratio:.2f}" for ratio in row.ratios)
        lines.append(f"{row.name:10}{span:>24}{1e3 * row.cpu_seconds:>8.0f}{row.peak:>9.0f}"
                     f"{f'{row.tokens_per_second:,.0f}' if counted else '':>{10 * counted}}   "
                     f"{row.ratio:.2f} (cpu {row.cpu_ratio:.2f}) by round {by_round}")
    return "\n".join(lines)


def measure(save: Callable[[Path], None], sides: Mapping[str, Contender], names: Sequence[str], rounds: int, steps: int,
            threads: int, warm_up: int | None = None, first: dict[str, Times] | None = None, counts: bool = False,
            ) -> dict[str, list[Times]]:
    """Let the contenders take turns of `steps` steps, `rounds` times each, after `warm_up` steps that are not counted.

    `save` writes the folder that they all start from. The times of the warm-up are put into `first`; where it `counts`,
    with the operations of its steps.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        maker = _spawn().Process(target=save, args=(folder,))  # keeps torch out of this process
        maker.start()
        maker.join()
        if maker.exitcode:
            raise LabError("The weights could not be written: see the error above.")
        with _started(sides, names, folder, threads, counts) as pipes:
            for name in names:
                begun = _take_turn(name, pipes[name], WARM_UP if warm_up is None else warm_up)
                if first is not None:
                    first[name] = begun
            measured: dict[str, list[Times]] = {name: [] for name in names}
            for _ in range(rounds):
                for name in names:
                    measured[name].append(_take_turn(name, pipes[name], steps))
            return measured


@contextmanager
def _started(sides: Mapping[str, Contender], names: Sequence[str], folder: Path, threads: int, counts: bool):
    """A waiting process per contender and a pipe to each; they end with the context. The lab's process has the memory
    pages of its workers."""
    pipes, processes = {}, []
    for name in names:
        pipes[name], theirs = _spawn().Pipe()
        side, dtype = name.split("-")
        processes.append(_spawn().Process(target=enter, args=(sides[side], dtype, folder, threads, theirs,
                                                              counts), daemon=True))
        with patch.dict(os.environ, HUGE_PAGES if side == "lab" else {}):
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


def parser(program: str, title: str, sides: Mapping[str, Contender], default: Sequence[str]) -> argparse.ArgumentParser:
    """The command line of a benchmark between `sides`, such as "lab", each in a dtype: "lab-bf16"."""
    names = [f"{side}-{dtype}" for side in sides for dtype in ("fp32", "bf16")]
    made = argparse.ArgumentParser(prog=f"python -m benchmarks.{program}", description=title)
    made.add_argument("--sizes", nargs="+", choices=SIZES, help=f"millions of parameters ({' '.join(USUAL)})")
    made.add_argument("--contenders", nargs="+", choices=names, default=list(default),
                      help="who takes part; the ratios are to the first")
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--steps", type=int, default=5, help="of each contender in a round")
    made.add_argument("--warm-up", type=int, default=WARM_UP, help="steps of each contender that are not counted")
    made.add_argument("--threads", type=int, default=1, help="of torch, for each contender")
    made.add_argument("--roofline", action="store_true", help="say which share of a step matrix products need at least")
    return made


def contest(options: argparse.Namespace, heading: str, save: Callable[[Path], None],
            sides: Mapping[str, Contender]) -> list[Row]:
    """Measure and print one table."""
    print(f"{heading}, {options.rounds} rounds of {options.steps} steps, {options.threads} thread(s)", flush=True)
    first: dict[str, Times] = {}
    report = rows(measure(save, sides, options.contenders, options.rounds, options.steps, options.threads,
                          options.warm_up, first, options.roofline))
    print(table(report), flush=True)
    if options.roofline:
        print(*(bound(row, first[row.name]) for row in report), sep="\n", flush=True)
    return report


def bound(row: Row, counted: Times) -> str:
    """A line with two times and their shares of the step's processor time: the products at peak speed, and the step's
    own products alone."""
    least = counted.operations / counted.peak_operations
    return (f"{row.name:10}{counted.operations / 1e9:.2f} GFLOP a step at {counted.peak_operations / 1e9:.0f} GFLOP/s: "
            f"at least {1e3 * least:.0f} ms, {least / row.cpu_seconds:.0%} of the step; its own products alone "
            f"{1e3 * counted.products:.0f} ms, {counted.products / row.cpu_seconds:.0%}")


def main(program: str, title: str, batch: str, sides: Mapping[str, Contender], default: Sequence[str],
         check_peer: Callable[[], None], arguments: Sequence[str] | None) -> int:
    """A benchmark of the lab's own sizes. `check_peer` raises LabError where the peer, "trl", is not installed."""
    options = parser(program, title, sides, default).parse_args(arguments)
    return reported(lambda: by_size(options, batch, sides), options, check_peer)


def by_size(options: argparse.Namespace, batch: str, sides: Mapping[str, Contender],
            save: Callable[[str, Path], None] = save_weights) -> None:
    for size in options.sizes or USUAL:
        contest(options, f"{size} M parameters, {batch}", partial(save, size), sides)


def reported(do: Callable[[], None], options: argparse.Namespace, check_peer: Callable[[], None]) -> int:
    """The exit status of a benchmark, whose faults are said in a sentence."""
    try:
        if any(name.startswith("trl") for name in options.contenders):  # ours alone needs nothing
            check_peer()
        do()
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
