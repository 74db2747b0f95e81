"""Two trainers send many rows a second while a page of one of them is open in a slow browser: is anything lost?

    python -m benchmarks.watched_live [--seconds 600] [--rate 50] [--slowed 10] [--kill lab|trainer]

One trainer writes into the lab's folder, the other one sends over HTTP; both log 22 metrics `rate` times a second and
completions once a second. The page is that of the first run, in a Chromium whose processor is `slowed`. With `--kill
lab` the lab is killed in the middle (`kill -9`) and started again; with `--kill trainer` the first trainer is killed.
It prints how many rows were sent and stored, which notes the runs have, the memory of the server and of the reading
process, and the long tasks of the page: times in which it answers no click.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from playwright.sync_api import Page, sync_playwright

from labcore.catalog.kinds import WATCH
from labcore.runs.store.dialects import sqlite_url
from labcore.runs.store.store import Store
from labcore.watch import Watch
from tests.browser.chromium import find
from tests.browser.conftest import FLAGS, Server

TOKEN = "benchmark-of-two-trainers"
NEAR, FAR, STOP = "near", "far", "stop"
TASKS = """() => {
  [window.tasks, window.drawn] = [[], []];
  document.addEventListener("rl-row", () => drawn.push(performance.now()));
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => tasks.push(entry.duration)))
    .observe({ entryTypes: ["longtask"] });
}"""
SETTLES = 15.0  # seconds until all that was sent is read
BLOCKED = 1000.0  # ms: a click that waits longer feels lost


def train(name: str, url: str, home: str, rate: float, until: Path) -> None:
    """Be a trainer, until a file exists. Every step that was sent is printed."""
    rng = random.Random(name)
    where = {"url": url, "token": TOKEN} if name == FAR else {}
    run, step, begun = Watch(name, home=home, tool="benchmark", **where), 0, time.monotonic()
    while not until.exists():
        step += 1
        run.log(step, {f"m/{place}": rng.random() for place in range(20)} | {"reward": rng.random(), "loss": 1 / step})
        if step % int(rate) == 0:
            run.rollouts(step, prompts=["p"] * 8 + ["q"] * 8, completions=["hello world " * 20] * 16, group=8,
                         rewards={"a": [rng.random() for _ in range(16)]}, tokens=[["hello "] * 40] * 16,
                         logprobs=[[-1.0] * 40] * 16, old_logprobs=[[-1.1] * 40] * 16)
        print(step, flush=True)
        time.sleep(max(0.0, begun + step / rate - time.monotonic()))
    run.finish()


@contextmanager
def trainers(options: argparse.Namespace, url: str, home: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Both trainers as processes; each writes the steps that it sent into a file."""
    made = {}
    for name in (NEAR, FAR):
        with (home / f"{name}.log").open("wb") as file:
            made[name] = subprocess.Popen(
                (sys.executable, "-m", __spec__.name, "--trainer", name, "--url", url, "--rate", f"{options.rate:g}",
                 "--until", str(home / STOP), "--home", str(home if name == NEAR else home / "elsewhere")), stdout=file)
    try:
        yield made
    finally:
        for process in made.values():
            process.kill()
            process.wait()


def first_run(store: Store) -> str:
    """Wait for the run of the first trainer."""
    while True:
        for row in store.runs(kind=WATCH.key):
            if row.spec.task == NEAR and row.step:
                return row.id
        time.sleep(0.2)


def stored(store: Store, home: Path) -> int:
    """Print what became of the rows. Returns how many are lost."""
    lost = 0
    for row in store.runs(kind=WATCH.key):
        sent = int((home / f"{row.spec.task}.log").read_text().split()[-1])
        there = [each.step for each in store.steps_after(row.id)]
        whole = there == [*range(1, len(there) + 1)]
        notes = [each.payload["text"] for each in store.events_after(row.id) if each.payload.get("text")]
        print(f"{row.spec.task}, {row.state}: {sent:,} rows sent, {len(there):,} stored" + ", WITH GAPS" * (not whole),
              *notes, sep="\n    ", flush=True)
        lost += sent - len(there)
    return lost


def memory(server: psutil.Process) -> str:
    """The memory of the server and of the watcher, MB."""
    read = []
    for each in server.children(recursive=True):
        with suppress(psutil.Error):  # one that has just ended
            read += [each] if "watcher" in " ".join(each.cmdline()) else []
    return ", ".join(f"{name} {process.memory_info().rss / 1e6:.0f} MB, {sum(process.cpu_times()[:2]):.0f} s of the "
                     "processor" for name, process in (("server", server), *(("reader", each) for each in read)))


def opened(page: Page, url: str, slowed: float) -> None:
    """Open the page, slow the browser once it is drawn, and count its long tasks from then on."""
    page.goto(url, wait_until="commit")
    page.wait_for_function("() => document.querySelector('.rl-live-chart path.js-line')", timeout=240_000)
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slowed})
    page.evaluate(TASKS)


def told(page: Page, seconds: float) -> str:
    """Say how often the page was blocked."""
    tasks = sorted(page.evaluate("tasks"))
    long = [each for each in tasks if each > BLOCKED]
    drawn = page.evaluate("drawn.slice(-6)")
    every = (drawn[-1] - drawn[0]) / max(1, len(drawn) - 1) / 1000 if drawn else 0.0
    return (f"page, drawn every {every:.1f} s by now: {len(tasks)} tasks of more than 50 ms in {seconds:.0f} s, "
            f"{sum(tasks) / seconds / 10:.0f} % of the time, the median {tasks[len(tasks) // 2] if tasks else 0:.0f} "
            f"ms, the longest {tasks[-1] if tasks else 0:.0f} ms, {len(long)} of more than {BLOCKED:.0f} ms")


def watched(options: argparse.Namespace, home: Path) -> int:
    """Run everything in `home`. Returns the exit status."""
    lab, store = Server(home, RL_LAB_WATCH_TOKEN=TOKEN), Store(sqlite_url(home / "lab.db"))
    try:
        with trainers(options, lab.url, home) as running, sync_playwright() as playwright:
            browser = playwright.chromium.launch_persistent_context(
                home / "profile", executable_path=find(), args=FLAGS, viewport={"width": 1280, "height": 900})
            page = browser.new_page()
            opened(page, f"{lab.url}/watch?run={first_run(store)}", options.slowed)
            page.wait_for_timeout(500 * options.seconds)
            print(memory(psutil.Process(lab.process.pid)), told(page, options.seconds / 2), sep="\n", flush=True)
            if options.kill == "trainer":
                running[NEAR].kill()
            elif options.kill == "lab":
                lab.process.kill()
                lab.process.wait()
                lab = Server(home, port=lab.port, RL_LAB_WATCH_TOKEN=TOKEN)
            page.wait_for_timeout(500 * options.seconds)
            (home / STOP).touch()
            for process in running.values():
                process.wait()
            page.wait_for_timeout(1000 * (SETTLES + 30.0 * (options.kill is not None)))
            print(memory(psutil.Process(lab.process.pid)), told(page, options.seconds + SETTLES), sep="\n", flush=True)
            if options.picture:
                page.screenshot(path=options.picture)
            browser.close()
        lost, bound = stored(store, home), options.rate * (options.kill == "trainer")
    finally:
        lab.stop()
        store.dispose()
    print(f"{lost} rows are lost: {'ok' if lost <= bound else 'MISSED'}")
    return int(lost > bound)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="from the opening of the page")
    parser.add_argument("--rate", type=float, default=50.0, help="rows a second")
    parser.add_argument("--slowed", type=float, default=10.0, help="how many times slower the browser is")
    parser.add_argument("--kill", choices=("lab", "trainer"))
    parser.add_argument("--picture", help="a file for a screenshot of the page at the end")
    for name in ("--trainer", "--url", "--home", "--until"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.trainer:
        train(options.trainer, options.url, options.home, options.rate, Path(options.until))
        return 0
    os.environ.pop("RL_LAB_HOME", None)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        return watched(options, Path(home))


if __name__ == "__main__":
    sys.exit(main())
