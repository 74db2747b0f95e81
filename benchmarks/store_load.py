"""Many workers on one store: whether it carries them, and how soon a page has what it reads meanwhile.

`python -m benchmarks.store_load --url postgresql+psycopg://user@host/db` lets 50 processes write 20 rows a second each
for 30 seconds, a run each, while another one reads as the page of a run does, twice a second for each of two runs. Then
it counts: no row may be lost or doubled. The runs stay in the store, so give it a database of its own. Without `--url`
the store is SQLite in a temporary folder.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

from labcore.catalog.metrics import METRICS
from labcore.errors import LabError
from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.dialects import shown, sqlite_url
from labcore.runs.store.store import Store
from labcore.workers.children import NICENESS

METRICS_OF_A_ROW = sorted(METRICS)[:20]


def write(url: str, run_id: str, rows: int, rate: float, start: Barrier, done: Queue) -> None:
    """Claim the run and append `rows` rows, `rate` a second; what is late is made up for. Tells what it cost."""
    os.nice(NICENESS)  # as a worker
    store, spent, fault = Store(url), [], ""
    store.claim(run_id)
    start.wait()
    begun = time.perf_counter() + os.getpid() % 50 / 50 / rate  # workers do not write in step
    try:
        for step in range(1, rows + 1):
            time.sleep(max(0.0, begun + step / rate - time.perf_counter()))
            at = time.perf_counter()
            store.append(run_id, Record(step, 512 * step, dict.fromkeys(METRICS_OF_A_ROW, step / 3)), at - begun)
            spent.append(time.perf_counter() - at)
    except LabError as error:
        fault = str(error)
    done.put((spent, time.perf_counter() - begun - rows / rate, fault))


def read(url: str, run_ids: Sequence[str], start: Barrier, ended: Event, done: Queue) -> None:
    """Read what the page of a run reads, each half second. Tells seconds of each read, and the rows of each run."""
    store, spent = Store(url), []
    rows: dict[str, list[int]] = {run_id: [] for run_id in run_ids}
    start.wait()
    while not ended.wait(0.5):
        for run_id, found in rows.items():
            at = time.perf_counter()
            store.run(run_id)
            found += [each.step for each in store.steps_after(run_id, found[-1] if found else 0)]
            store.events_after(run_id)
            store.controls(run_id)
            spent.append(time.perf_counter() - at)
    for run_id, found in rows.items():
        found += [each.step for each in store.steps_after(run_id, found[-1] if found else 0)]
    done.put((spent, rows))


def report(name: str, seconds: Sequence[float]) -> None:
    """One line of the table, in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100)
    print(f"{name:<28}" + "".join(f" {1000 * each:8.1f}" for each in (cuts[49], cuts[94], max(seconds)))
          + f" {len(seconds):8,}")


def measure(url: str, workers: int, rate: float, seconds: float) -> bool:
    """Print what was measured. Whether every row is there once."""
    store, rows = Store(url), round(rate * seconds)
    spec = make(algorithm_key="grpo", task_key="sort", steps=rows)
    ids = [store.create(spec) for _ in range(workers)]
    store.dispose()
    context = multiprocessing.get_context("fork")
    start, ended, written, seen = context.Barrier(workers + 1), context.Event(), context.Queue(), context.Queue()
    writers = [context.Process(target=write, args=(url, run_id, rows, rate, start, written)) for run_id in ids]
    reader = context.Process(target=read, args=(url, ids[:2], start, ended, seen))
    for process in (*writers, reader):
        process.start()
    costs, late, faults = zip(*(written.get() for _ in writers), strict=True)
    ended.set()
    reads, read_rows = seen.get()
    for process in (*writers, reader):
        process.join()
    there = {run_id: [each.step for each in store.steps_after(run_id)] for run_id in ids}
    whole = list(range(1, rows + 1))
    bad = [run_id for run_id in ids if there[run_id] != whole or read_rows.get(run_id, whole) != whole]
    print(f"{shown(url)}: {workers} workers x {rate:g} rows/s x {seconds:g} s; {os.cpu_count()} cores, "
          f"load {os.getloadavg()[0]:.1f}\n{'milliseconds':<28} {'p50':>8} {'p95':>8} {'max':>8} {'count':>8}")
    report("a page reads a run", reads)
    report("a worker commits a row", [each for cost in costs for each in cost])
    print(f"rows: {sum(map(len, there.values())):,} of {workers * rows:,}; runs with a lost or doubled row: "
          f"{len(bad)}; the last worker ended {max(late):.2f} s late")
    for fault in {*faults} - {""}:
        print(fault)
    return not bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--url", help="the store's database; SQLite in a temporary folder by default")
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--rate", type=float, default=20.0, help="rows a second of each worker")
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["RL_LAB_HOME"] = home
        raise SystemExit(not measure(options.url or sqlite_url(Path(home) / "lab.db"), options.workers, options.rate,
                                     options.seconds))


if __name__ == "__main__":
    main()
