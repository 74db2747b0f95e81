"""What `LabCallback` costs a real run of TRL: `python -m benchmarks.watch_cost [--model DIR]`.

One run of TRL's GRPOTrainer on a processor. The callback is on in every second step, so that both kinds of steps meet
the same machine. A step has the processor time of the whole process, with the thread that writes, until all is
written; by the clock it ends when the next one begins. Compared are neighbouring steps. Target: 2 % of a step.

The trainer is that of `grpo_step`; with `--model`, the folder of a Hugging Face model, it is that of `real_step`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from benchmarks import real_step, turns
from benchmarks.grpo_step import Job, check_installed, trl
from labcore import machine
from labcore.errors import LabError
from labcore.watch.trl import LabCallback

TARGET = 0.02  # of the time of a step
WARM_UP = 4  # steps that are not counted


class Switched(LabCallback):
    """The callback, in every second step; and the times of the steps, by the clock and of the processor."""

    on = True

    def __init__(self, **given: Any) -> None:
        super().__init__("cost", **given)
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """End the step before, and be on in this one or not."""
        wall = time.perf_counter()
        assert self.run is not None
        self.run.flush()
        if state.global_step > WARM_UP:
            self.wall.append(wall - self._since[0])
            self.cpu.append(time.process_time() - self._since[1])
        on = state.global_step % 2 == 0
        if on and not self.on:
            self._rollouts.attach(self.trainer)
        elif self.on and not on:
            self._rollouts.detach()
        self.on, self._since = on, (time.perf_counter(), time.process_time())
        if on:
            super().on_step_begin(args, state, control, **given)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Send the completions of a step in which it is on."""
        if self.on:
            super().on_step_end(args, state, control, **given)

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Send the metrics of a step in which it is on."""
        if self.on:
            super().on_log(args, state, control, **given)


def told(name: str, seconds: list[float]) -> float:
    """Print what the callback adds to a step, by pairs of neighbours. Returns its share of a step."""
    pairs = list(zip(seconds[::2], seconds[1::2], strict=False))
    off, added = median(without for _, without in pairs), median(each - without for each, without in pairs)
    shares = sorted(each / without - 1 for each, without in pairs)
    print(f"{name:10} {1e3 * off:,.0f} ms per step without, {1e3 * added:+,.1f} ms with the callback: "
          f"{added / off:+.2%} (pairs from {shares[0]:+.1%} to {shares[-1]:+.1%})", flush=True)
    return added / off


def measure(options: argparse.Namespace) -> None:
    """Train, and print the cost."""
    if options.model and not Path(options.model).is_dir():
        raise LabError("Give --model DIR: the folder of a Hugging Face model.")
    turns.set_threads(options.threads)
    file = {"file": real_step.PROMPTS_FILE, "knobs": real_step.REWARD} if options.model else {}
    job = Job(*options.batch, **file)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        save = partial(real_step.save, options.model) if options.model else partial(turns.save_weights, options.size)
        save(folder)
        os.environ["RL_LAB_HOME"] = scratch
        print(f"{Path(options.model).name if options.model else f'{options.size} M parameters'} on "
              f"{machine.processor()}, {job}, {options.pairs} pairs of steps, {options.threads} thread(s)", flush=True)
        callback = Switched()
        trl(folder, "fp32", options.threads, SimpleNamespace(ready=lambda: None, step_done=lambda tokens: None), job,
            [callback], {"max_steps": WARM_UP + 2 * options.pairs + 1, "logging_strategy": "steps", "logging_steps": 1})
        told("clock", callback.wall)
        share = told("processor", callback.cpu)
    print(f"target {TARGET:.0%} of the processor time: {'ok' if share <= TARGET else 'MISSED'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", metavar="DIR", help="the folder of a Hugging Face model")
    parser.add_argument("--size", choices=turns.SIZES, default="4.9", help="millions of parameters, without --model")
    parser.add_argument("--batch", nargs=3, type=int, default=real_step.BATCH, metavar=("PROMPTS", "GROUP", "TOKENS"))
    parser.add_argument("--pairs", type=int, default=12, help="steps with the callback, and as many without")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.contenders = ["trl"]
    return turns.reported(partial(measure, options), options, check_installed)


if __name__ == "__main__":
    sys.exit(main())
