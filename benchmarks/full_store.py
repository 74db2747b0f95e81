"""A lab with a year of runs in it: how soon its list and its pages are there, and how often they ask the store.

`python -m benchmarks.full_store` fills a folder of its own (or a `--home` that is kept for the next time) with 500 runs
of 200 rows each, as workers leave them, and one run of 20,000 steps of a maze, made by the lab itself. Then it measures
the command `runs`, and in a Chromium that has seen the lab before the pages Runs, Compare with 40 runs and Maze with
the long run: seconds from the address to what is in sight being drawn, and of the server's processor. "first" is the
first time in the life of a server, "again" the median of the later ones. Queries are counted in this process, by
AppTest.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import streamlit as st
from playwright.sync_api import BrowserContext, CDPSession, Page, sync_playwright
from streamlit.testing.v1 import AppTest

import app.lab
from benchmarks.compare_page import DRAWN, metrics
from labcore.cli.main import main as command_line
from labcore.runs import summary
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import Event, RunRow, Step
from labcore.runs.store.store import Store
from tests.app.conftest import ROOT, FakeLauncher
from tests.browser.chromium import find
from tests.browser.conftest import FLAGS, Server
from tests.queries import counted

COMPARED, SEEDS = 40, 5
ALGORITHMS = ("grpo", "rloo", "reinforce", "ppo")
HOUR = 3600.0
FILES = 20  # pictures of a run, and as many files of checkpoints
# Whether the table's canvas has ink where its first rows are.
TABLE = """() => {
  const canvas = document.querySelector("[data-testid=stDataFrame] canvas");
  if (!canvas?.width) return false;
  const dots = canvas.getContext("2d").getImageData(200, 40, 300, 120).data;
  return dots.filter((value, i) => i % 4 === 0 && value < 120).length > 200;
}"""
MAZE = """() => document.querySelector('.rl-maze-board canvas') !== null
  && [...document.querySelectorAll('.rl-live-chart .scatterlayer path.js-line')].some(
    line => (line.getAttribute('d') || '').includes('L'))"""
HELP = "() => document.querySelector('h3') !== null"


# ---- the store ----------------------------------------------------------------------------------------------------

def fill(store: Store, runs: int, rows: int) -> list[str]:
    """Add `runs` ended runs of `rows` rows each with their files. The first ones are settings of `SEEDS` seeds each.

    Returns their ids.
    """
    numbers, now = random.Random(0), time.time()
    return [_language_model(store, place, rows, now) if place < COMPARED or place % 5 else
            _maze(store, place, rows, now, numbers) for place in range(runs)]


def _language_model(store: Store, place: int, rows: int, now: float) -> str:
    setting, seed = divmod(place, SEEDS)
    spec = make(algorithm_key=ALGORITHMS[setting % 4], task_key="sort", steps=rows, seed=seed,
                knobs={"learning_rate": 1e-3 / (1 + setting // 4 % 5)})
    return _add(store, place, now, spec, [Step(step, 512 * step, 0, 0.05 * step, each)
                                          for step, each in enumerate(metrics(rows, seed), start=1)])


def _maze(store: Store, place: int, rows: int, now: float, numbers: random.Random) -> str:
    spec = make(kind="maze", algorithm_key="q_learning", task_key="cliff", steps=rows, seed=place % SEEDS)
    return _add(store, place, now, spec, [Step(step, 0, 40 * step, 0.003 * step, {
        "episode_return": -13 - 100 * math.exp(-5 * step / rows) + numbers.gauss(0, 5), "value_error": 5 / step,
        "updates": 40.0 * step}) for step in range(1, rows + 1)])


def _add(store: Store, place: int, now: float, spec, rows: list[Step]) -> str:
    run_id, created = f"{spec.algorithm}-{spec.task}-{place:05d}", now - HOUR * (place + 1)
    row = RunRow(run_id, spec, "finished", "", created=created, started=created, ended=created + rows[-1].seconds,
                 pid=None, host=None, heartbeat=None, step=rows[-1].step, seconds=rows[-1].seconds, base=None)
    for name in [f"samples/step-{step:06d}.json" for step in range(FILES)] + [
            f"checkpoints/step-{step:06d}/{file}" for step in range(0, 2 * FILES, 4)
            for file in ("state.json", "session.safetensors")]:
        path = run_folder(run_id) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    store.add(row, rows, [Event(0, row.step, "finished", {"text": f"all {row.step} steps done"}, row.ended or now)])
    summary.keep(store, run_id)
    return run_id


def long_run(steps: int) -> None:
    """Train in a maze, in a process of its own, for so many steps."""
    subprocess.run([sys.executable, "-m", "labcore", "run", "--kind=maze", "--algorithm=q_learning", "--task=cliff",
                    f"--steps={steps}", "--json"], check=True, capture_output=True)


# ---- what is measured ---------------------------------------------------------------------------------------------

@dataclass
class Taken:
    """Seconds of one measurement: on the wall, of the lab's processor, and of the page's."""

    wall: float
    cpu: float
    browser: float = 0.0


def command(times: int) -> list[Taken]:
    """`python -m labcore runs`, in processes of their own."""
    return [_measured(lambda: subprocess.run([sys.executable, "-m", "labcore", "runs"], check=True,
                                             capture_output=True), _children) for _ in range(times + 1)]


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _measured(do: Callable[[], object], lab: Callable[[], float], browser: Callable[[], float] = lambda: 0.0) -> Taken:
    """`lab` says how long the lab has used a processor so far, `browser` how long the page has, once it is drawn."""
    busy, begun = lab(), time.perf_counter()
    do()
    return Taken(time.perf_counter() - begun, lab() - busy, browser())


def in_browser(browser: BrowserContext, lab: Server, address: str, drawn: str, times: int) -> list[Taken]:
    """A page in a new tab until it is drawn, the first time and `times` more."""
    server = psutil.Process(lab.process.pid)

    def opened() -> None:
        page.goto(f"{lab.url}/{address}", wait_until="commit")
        page.wait_for_function(drawn, polling="raf", timeout=120_000)

    def scripts() -> float:
        measures = session.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in measures if each["name"] == "TaskDuration")

    found = []
    for _ in range(times + 1):
        page: Page = browser.new_page()
        session: CDPSession = browser.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})  # of its main thread, not of the clock
        found.append(_measured(opened, lambda: sum(server.cpu_times()[:2]), scripts))
        page.wait_for_timeout(500)  # what comes below the picture is not waited for
        page.close()
    return found


def queries_of_page(address: str) -> int:
    """How often a page asks the store, its list read for the first time."""
    name, _, query = address.partition("?")
    st.cache_resource.clear()
    test = AppTest.from_file(str(ROOT / "app" / "navigation.py"), default_timeout=300)
    test.switch_page(f"../pages/{name}.py")
    for part in filter(None, query.split("&")):
        key, _, value = part.partition("=")
        test.query_params[key] = value
    with counted() as found:
        test.run()
    assert not test.exception, test.exception
    return len(found)


def queries_of_command() -> int:
    with counted() as found, contextlib.redirect_stdout(io.StringIO()):
        command_line(["runs"])
    return len(found)


@contextmanager
def opened_lab(home: Path) -> Iterator[tuple[BrowserContext, Server]]:
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        lab = Server(home)
        browser = playwright.chromium.launch_persistent_context(
            profile, executable_path=find(), args=FLAGS, viewport={"width": 1280, "height": 720})
        try:
            yield browser, lab
        finally:
            browser.close()
            lab.stop()


def report(name: str, found: list[Taken], queries: int | None) -> None:
    """One line of the table."""
    first, again = found[0], found[1:]
    usual = Taken(*(statistics.median(getattr(each, key) for each in again) for key in ("wall", "cpu", "browser")))
    print(f"{name:<24}" + "".join(f" {each.wall:8.2f} {each.cpu:8.2f} {each.browser:8.2f}" for each in (first, usual))
          + f" {'' if queries is None else queries:>8} {os.getloadavg()[0]:6.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--long", type=int, default=20_000, help="steps of the long run")
    parser.add_argument("--times", type=int, default=4, help="how often each is measured after the first time")
    parser.add_argument("--home", type=Path, help="a folder to fill, or one that was filled so before")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = (options.home or Path(temporary)).resolve()
        os.environ["RL_LAB_HOME"] = str(home)
        if not (home / "lab.db").exists():
            begun = time.perf_counter()
            fill(Store(), options.runs, options.rows)
            long_run(options.long)
            print(f"filled in {time.perf_counter() - begun:.0f} s")
        measure(home, options.times)


def measure(home: Path, times: int) -> None:
    """Print what was measured."""
    app.lab.Launcher = FakeLauncher  # what is counted here starts no process
    store = Store()
    rows = store.runs()
    longest = max(rows, key=lambda row: row.step)
    compared = [row.id for row in rows if row is not longest and row.spec.kind == "llm"][:COMPARED]
    print(f"{len(rows):,} runs, {sum(row.step for row in rows):,} rows; {os.cpu_count()} cores\n"
          f"{'seconds':<24} {'first':>8} {'lab':>8} {'browser':>8} {'again':>8} {'lab':>8} {'browser':>8} "
          f"{'queries':>8} {'load':>6}", flush=True)
    pages = {"Page Runs": ("runs", TABLE),
             f"Page Compare, {len(compared)} runs": (f"compare?runs={','.join(compared)}",
                                                     f"() => ({DRAWN})(7, {-(-len(compared) // SEEDS)})"),
             f"Page Maze, {longest.step:,} steps": (f"maze?run={longest.id}", MAZE)}
    asked = {"Command runs": queries_of_command(), **{name: queries_of_page(page[0]) for name, page in pages.items()}}
    report("Command runs", command(times), asked["Command runs"])
    with opened_lab(home) as (browser, lab):
        report("A page of text (Help)", in_browser(browser, lab, "help", HELP, times), None)
        for name, (address, drawn) in pages.items():
            report(name, in_browser(browser, lab, address, drawn, times), asked[name])


if __name__ == "__main__":
    main()
