"""One optimizer step of GRPO, ours beside TRL's: `python -m benchmarks.grpo_step`.

Measured: the wall time from one optimizer step to the next, all that happens in between included, of a run as a user
has it: sampling, decoding, rewards, reference log-probs, forward, backward, clip, AdamW, and the metrics, samples and
surrogate lines that the lab logs on its way. Both sides start from the same Hugging Face folder (random weights),
read the same kind of prompt ("47+85=", six tokens), sample 32 prompts × 8 completions of at most 8 tokens and reward
them by the same function, with β = 0.04. Gradient checkpointing, TRL's default, is off: that is the faster TRL.

Each side lives in a process of its own; they take turns, so that a busy machine slows both alike. Ratios are made
per round, between neighbours in time; their median is the figure to quote. "cpu" is the same of processor time, which
other programs on the machine disturb less than the clock.

Left out: start-up, the worker's store and checkpoints, learning (both sides learn nothing from random weights),
prompts of unequal length, and more than one machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

from benchmarks.contenders import GROUP_SIZE, NEW_TOKENS, PEERS, PROMPTS, SIZES, Times, enter, save_weights
from labcore.errors import LabError

CONTENDERS = ("trl-fp32", "lab-fp32", "lab-bf16", "trl-bf16")
WARM_UP = 3  # steps: first allocations, lazy imports


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


def measure(size: str, names: Sequence[str], rounds: int, steps: int, threads: int) -> dict[str, list[Times]]:
    """Let the contenders take turns of `steps` steps, `rounds` times each, after a warm-up that is not counted."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        maker = _spawn().Process(target=save_weights, args=(size, folder))  # keeps torch out of this process
        maker.start()
        maker.join()
        with _started(names, folder, threads) as pipes:
            for name in names:
                _take_turn(name, pipes[name], WARM_UP)
            measured: dict[str, list[Times]] = {name: [] for name in names}
            for _ in range(rounds):
                for name in names:
                    measured[name].append(_take_turn(name, pipes[name], steps))
            return measured


@contextmanager
def _started(names: Sequence[str], folder: Path, threads: int):
    """A waiting process for each contender, and the pipes to them; ended on the way out."""
    pipes, processes = {}, []
    for name in names:
        pipes[name], theirs = _spawn().Pipe()
        processes.append(_spawn().Process(target=enter, args=(name, folder, threads, theirs), daemon=True))
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


def check_installed(names: Sequence[str]) -> None:
    """Raise LabError where a contender's packages are missing."""
    missing = [peer for peer in PEERS if find_spec(peer) is None]
    if missing and any(name.startswith("trl") for name in names):
        raise LabError(f"The benchmark needs {', '.join(missing)}, which the lab itself does without: "
                       "pip install -r requirements-bench.txt.")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grpo_step", description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES), help="millions of parameters")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS[:3]),
                        help="who takes part; the ratios are to the first")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="of each contender in a round")
    parser.add_argument("--threads", type=int, default=1, help="of torch, for each contender")
    options = parser.parse_args(arguments)
    try:
        check_installed(options.contenders)
        for size in options.sizes:
            print(f"{size} M parameters, {PROMPTS} prompts × {GROUP_SIZE} completions of {NEW_TOKENS} tokens, "
                  f"{options.rounds} rounds of {options.steps} steps, {options.threads} thread(s)", flush=True)
            measured = measure(size, options.contenders, options.rounds, options.steps, options.threads)
            print(table(rows(measured)), flush=True)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
