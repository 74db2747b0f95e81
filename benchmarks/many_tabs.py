"""Many tabs on a few live runs, all on one machine: when each has its first curve, and what the server's memory does.

`python -m benchmarks.many_tabs` starts four runs (GRPO, PPO, Q-learning in a maze, PPO on CartPole) in a lab of its
own, opens twelve tabs in a Chromium one after the other, and keeps them open for three minutes. It says after how many
seconds each tab had a curve, how much memory the server had before, with and after the tabs, how many cores the server,
the workers and the browser used while all were open, and whether every row of the runs is in the store.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil
from playwright.sync_api import BrowserContext, Page, sync_playwright

from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.store.dialects import sqlite_url
from labcore.runs.store.store import Store
from tests.browser.chromium import find
from tests.browser.conftest import FLAGS, Server

LIVE = (make(algorithm_key="grpo", task_key="sort", steps=100_000),
        make(algorithm_key="ppo", task_key="sort", steps=100_000),
        make(kind="maze", algorithm_key="q_learning", task_key="cliff", steps=20_000),
        make(kind="cartpole", algorithm_key="ppo", task_key="CartPole-v1", steps=5_000))
DRAWN = """() => [...document.querySelectorAll('.rl-live-chart .scatterlayer path.js-line')].some(
  line => (line.getAttribute('d') || '').includes('L'))"""
WAIT_MS = 120_000


def begin(store: Store, server: Server, specs: Sequence[RunSpec]) -> list[str]:
    """Start the runs, and wait until each has made a few steps."""
    ids = [store.create(spec) for spec in specs]
    [supervisor] = psutil.Process(server.process.pid).children()
    supervisor.send_signal(signal.SIGCHLD)  # it looks for queued runs when a worker has ended
    while any(store.run(run_id).step < 3 for run_id in ids):
        time.sleep(0.2)
    return ids


def opened(browser: BrowserContext, address: str) -> tuple[Page, float]:
    """A tab, and the seconds until it had a curve."""
    page, begun = browser.new_page(), time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_function(DRAWN, timeout=WAIT_MS, polling=100)
    return page, time.perf_counter() - begun


def used(server: psutil.Process) -> Counter[str]:
    """Seconds of processor so far of the server, of all below it, and of the browser."""
    found: Counter[str] = Counter(server=sum(server.cpu_times()[:2]))
    for name, processes in (("workers", server.children(recursive=True)),
                            ("browser", psutil.Process().children(recursive=True))):
        for process in processes:
            if process.pid != server.pid and (name == "workers" or "chrom" in process.name()):
                found[name] += sum(process.cpu_times()[:2])
    return found


def missing(store: Store, run_id: str) -> int:
    """How many rows of a run are not in the store, or there twice."""
    rows = [row.step for row in store.steps_after(run_id)]
    return len(set(range(1, rows[-1] + 1)) ^ set(rows)) + len(rows) - len(set(rows))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tabs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=180, help="how long all are open")
    parser.add_argument("--after", type=float, default=180, help="how long the server is watched once all are closed")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as profile:
        server = Server(Path(home), max_runs=len(LIVE))
        store = Store(sqlite_url(Path(home) / "lab.db"))
        ids = begin(store, server, LIVE)
        process = psutil.Process(server.process.pid)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch_persistent_context(
                profile, executable_path=find(), args=FLAGS, viewport={"width": 1280, "height": 720})
            alone = process.memory_info().rss
            for place in range(given.tabs):
                kind, run_id = LIVE[place % len(LIVE)].kind, ids[place % len(LIVE)]
                page, seconds = opened(browser, f"{server.url}/{kind}?run={run_id}")
                print(f"tab {place + 1:2}, {kind:9} {seconds:6.1f} s to its first curve", flush=True)
            memory, before, begun = process.memory_info().rss, used(process), time.perf_counter()
            page.wait_for_timeout(1000 * given.seconds)
            passed, after = time.perf_counter() - begun, used(process)
            print(f"memory of the server: {alone / 1e6:.0f} MB without a tab, {memory / 1e6:.0f} MB with all, "
                  f"{given.seconds:.0f} s later {process.memory_info().rss / 1e6:.0f} MB", flush=True)
            print("cores used: " + ", ".join(f"{name} {(after[name] - before[name]) / passed:.2f}" for name in after))
            browser.close()
            time.sleep(given.after)
            print(f"memory of the server {given.after:.0f} s after the tabs closed: "
                  f"{process.memory_info().rss / 1e6:.0f} MB", flush=True)
        server.stop()
        print("rows missing or doubled: " + ", ".join(f"{run_id} {missing(store, run_id)}" for run_id in ids))
        store.dispose()
    return 0


if __name__ == "__main__":
    sys.exit(main())
