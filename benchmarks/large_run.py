"""A run of 100,000 steps with 200 metrics and its completions: how long it takes to open, and how much memory and disk.

    python -m benchmarks.large_run [--steps 100000] [--metrics 200] [--completions 1000000] [--home DIR]

The run is written into a store directly, as a worker or a watcher would have left it. Everything is then read in a new
process each, as the page reads it. Targets: the data of the page in 3 s of the processor, 500 MB of memory more than an
empty process, and no more disk for completions than RL_LAB_ROLLOUTS_GB.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from labcore.runs.files import sizes, step_files
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.store import thinned
from labcore.runs.store.schema import runs
from labcore.runs.store.schema import steps as steps_table
from labcore.runs.store.store import Store
from labcore.workers.pictures import Pictures

SECONDS, MEGABYTES = 3.0, 500.0  # targets: of opening a page, and of memory
GROUP, LENGTH, PER_STEP = 8, 500, 64  # completions of a prompt, tokens of a completion, completions of a step
EVERY = 50  # steps between two evaluations, whose metrics other rows lack
NAMED = ("reward", "reward_std", "exact_match", "loss", "kl", "entropy", "clip_frac/region", "grad_norm")


def write_rows(store: Store, run_id: str, count: int, metrics: int) -> None:
    """Rows of noisy curves, with `metrics` numbers each and an evaluation now and then."""
    rng = random.Random(0)
    names = [*NAMED, *(f"own/layer.{index}/norm" for index in range(metrics - len(NAMED)))][:metrics]
    with store._writing() as connection:
        for start in range(1, count + 1, 5000):
            connection.execute(steps_table.insert(), [
                {"run_id": run_id, "step": step, "tokens": 4000 * step, "env_steps": 0, "seconds": 0.1 * step,
                 "metrics": json.dumps({name: math.tanh(step / count) + rng.gauss(0, 0.1) for name in names} | (
                     {"held_out/accuracy": step / count} if step % EVERY == 1 else {}))}
                for step in range(start, min(start + 5000, count + 1))])
        connection.execute(runs.update().where(runs.c.id == run_id), {
            "state": "finished", "step": count, "seconds": 0.1 * count, "ended": time.time()})


def write_completions(run_id: str, count: int, steps: int) -> set[str]:
    """Completions of LENGTH tokens with their numbers, PER_STEP for a step and over all steps of the run, written as a
    worker writes them. Returns the sentences that a worker would log."""
    rng, pictures, said = np.random.default_rng(1), Pictures(run_folder(run_id) / "samples"), set()
    words, batches = np.array([f" w{number}" for number in range(30_000)]), count // PER_STEP

    def completion(tokens: list[str], numbers: list[list[float]]) -> dict[str, Any]:
        logprobs, old_logprobs, entropy = numbers
        return {"text": "".join(tokens), "reward": rng.random(), "exact": bool(rng.random() < 0.5),
                "advantage": rng.normal(), "truncated": False, "tokens": tokens, "logprobs": logprobs,
                "old_logprobs": old_logprobs, "entropy": entropy}

    for batch in range(1, batches + 1):
        step, shape = batch * steps // batches, (PER_STEP, 3, LENGTH)
        made = list(map(completion, words[rng.integers(0, len(words), (PER_STEP, LENGTH))].tolist(),
                        (-np.abs(rng.normal(size=shape))).round(5).tolist()))
        said.add(pictures.write(step, {"step": step, "groups": [
            {"prompt": f"question {step}.{first}", "answer": "1", "completions": made[first:first + GROUP]}
            for first in range(0, PER_STEP, GROUP)]}))
    return said - {""}


def opened(run_id: str) -> dict[str, float]:
    """What the page reads of a run when it is opened, in this process: seconds, and MB that it takes at the most."""
    from app.training.chart_data import payload
    from app.training.feed import Feed
    store = Store(reads=True)
    before, begun, used = _megabytes(), time.perf_counter(), time.process_time()
    run = store.run(run_id)
    feed = Feed(run.spec)
    feed.take(thinned.read(store, run), store.events_after(run_id))
    found = payload({run_id: feed}, full=True, x="step", smooth=0.6, ended=True)
    text = json.dumps(found)
    return {"seconds": time.perf_counter() - begun, "cpu": time.process_time() - used,
            "megabytes": _megabytes() - before, "rows": len(feed.steps), "sent": len(text) / 1e6}


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_new_process(run_id: str) -> dict[str, float]:
    """`opened` in a process of its own."""
    said = subprocess.run([sys.executable, "-m", "benchmarks.large_run", "--open", run_id], capture_output=True,
                          text=True, check=True).stdout
    found: dict[str, float] = json.loads(said.splitlines()[-1])
    return found


def main() -> int:
    """Write the run, open it twice, and say whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--metrics", type=int, default=200)
    parser.add_argument("--completions", type=int, default=1_000_000)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--open", dest="run_id", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_id:
        print(json.dumps(opened(options.run_id)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        home = options.home or Path(folder)
        os.environ["RL_LAB_HOME"] = str(home)
        return _measured(options, home)


def _measured(options: argparse.Namespace, home: Path) -> int:
    store = Store()
    run_id = store.create(make(algorithm_key="grpo", task_key="sort", steps=options.steps))
    write_rows(store, run_id, options.steps, options.metrics)
    print(f"{options.steps:,} steps × {options.metrics} metrics: {sizes.size(home) / 1e6:,.0f} MB in the store")
    begun, samples = time.process_time(), run_folder(run_id) / "samples"
    said = write_completions(run_id, options.completions, options.steps)
    print(f"{options.completions:,} completions of {LENGTH} tokens: {sizes.size(samples) / 1e6:,.0f} MB on the disk in "
          f"{len(step_files.found(samples)):,} files, in {time.process_time() - begun:.0f} s of the processor, with "
          f"{_megabytes():,.0f} MB of memory", *said, sep="\n")
    met = True
    for name in ("as a worker leaves it", "without its file of thinned rows"):
        if name.startswith("without"):
            thinned.forget(run_id)
        else:
            thinned.keep(store, run_id)
        found = in_new_process(run_id)
        fits = found["cpu"] <= SECONDS and found["megabytes"] <= MEGABYTES
        met = met and (fits or name.startswith("without"))
        print(f"opened {name}: {found['seconds']:.2f} s, of the processor {found['cpu']:.2f} s (target {SECONDS:g}), "
              f"{found['megabytes']:,.0f} MB more "
              f"(target {MEGABYTES:g}), {found['rows']:.0f} rows, {found['sent']:.1f} MB sent: "
              f"{'ok' if fits else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
