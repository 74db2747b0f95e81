"""A sweep of 1,000 runs: queued, worked through, stopped early, and looked at.

`python -m benchmarks.sweep_at_size --simulated` queues 1,000 runs of GRPO (3 knobs, 10 seeds) and has a stand-in worker
go through the queue: it writes the rows of as many runs at a time as there are places, each at the rate of its setting,
by a clock of its own that only counts. So hours of a cluster pass in minutes, and every time gives the same rows. Then
it opens the Sweep view in a Chromium: seconds from the address to the picture, of the server's processor and of the
page's.

`--real` queues 1,000 short maze runs and has the lab do them, with early stopping where Optuna is installed; half-way
its supervisor is killed, and what that interrupted is resumed.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import app.lab
from benchmarks.compare_page import metrics
from benchmarks.full_store import in_browser, opened_lab, queries_of_page, report
from labcore.runs import halving, summary, sweep
from labcore.runs.halving import Halving
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from labcore.workers.judge import Judge
from labcore.workers.launcher import Launcher
from tests.app.conftest import FakeLauncher

AXES = {"learning_rate": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2], "beta": [0.0, 0.02, 0.05, 0.1, 0.2],
        "group_size": [4, 8, 16, 32]}
SEEDS = 10
LOOK_SECONDS = 5.0  # of the stand-in's clock, between two looks of the judge
MAZES = {"alpha": [0.02, 0.05, 0.1, 0.3, 0.5, 0.9], "gamma": [0.8, 0.9, 0.95, 0.99, 1.0]}
MAZE_STEPS, MAZE_PACE = 60, 40.0  # a run takes a second and a half, nearly all of it waiting
# The ranking and the three pictures of the view are there, those in sight with what is drawn in them.
DRAWN = """() => {
  const plots = [...document.querySelectorAll('.rl-figure-chart')];
  return document.querySelectorAll('.rl-results tbody tr').length > 0 && plots.length >= 3 && plots.every((plot) =>
    plot.getBoundingClientRect().top > innerHeight
    || plot.querySelector('.scatterlayer path, .heatmaplayer image, .heatmaplayer path') !== null);
}"""


# ---- the stand-in -------------------------------------------------------------------------------------------------

@dataclass
class _Going:
    """A run that the stand-in has: its rows, and how many of them it has written."""

    run_id: str
    rows: list[dict[str, float]]
    seconds: float  # of a step
    step: int = 0


class StandIn:
    """Does the runs of a sweep, so many at a time, without a model and without a clock: rows come at given rates."""

    def __init__(self, store: Store, sweep_id: str, places: int, judge: Judge | None = None):
        self._store, self._places, self._judge = store, places, judge
        self._runs = {row.id: row.spec for row in store.sweep_runs(sweep_id)}
        self._waiting = [run_id for run_id in store.queued() if run_id in self._runs]
        self._due: list[tuple[float, int, _Going]] = []  # (when, order, run)
        self.clock, self._begun, self._looked = 0.0, 0, 0.0

    def work(self, until: Callable[[], bool] = lambda: False) -> None:
        """Go on until all is done, or `until` says so."""
        while not until():
            while self._waiting and len(self._due) < self._places:
                self._take(self._waiting.pop(0))
            if not self._due:
                return
            self.clock, _, going = heapq.heappop(self._due)
            if self._judge and self.clock - self._looked >= LOOK_SECONDS:
                self._judge.look()
                self._looked = self.clock
            self._row(going)

    def _take(self, run_id: str) -> None:
        if not self._store.claim(run_id):  # stopped while it waited
            return
        self._store.set_state(run_id, "running", log=("started", {}))
        spec = self._runs[run_id]
        self._put(_Going(run_id, rows_of(spec), seconds_of(spec)))

    def _put(self, going: _Going) -> None:
        self._begun += 1
        heapq.heappush(self._due, (self.clock + going.seconds, self._begun, going))

    def _row(self, going: _Going) -> None:
        going.step += 1
        self._store.append(going.run_id, Record(going.step, 512 * going.step, going.rows[going.step - 1]),
                           going.seconds * going.step)
        stop = next((each for each in self._store.asked(going.run_id) if each.command == "stop"), None)
        if stop:
            self._store.settle(stop.id, going.step)
            self._end(going.run_id, "stopped", stop.payload.get("why", "The run was stopped."))
        elif going.step == len(going.rows):
            self._end(going.run_id, "finished", f"all {going.step} steps done")
        else:
            self._put(going)

    def _end(self, run_id: str, state: str, why: str) -> None:
        self._store.set_state(run_id, state, why, log=(state, {"text": why}))
        summary.keep(self._store, run_id)


def seconds_of(spec: RunSpec) -> float:
    """The rate of a setting: a step of a larger group takes longer."""
    return 0.5 + 0.1 * float(spec.knobs["group_size"])


def rows_of(spec: RunSpec) -> list[dict[str, float]]:
    """What a run logs: the best learning rate and a small β win, a larger group is a little better, seeds differ."""
    knobs = {key: float(spec.knobs[key]) for key in AXES}
    apart = abs(np.log10(knobs["learning_rate"] / 1e-3))
    best = (0.95 - 0.3 * apart) * (1 - 1.2 * abs(knobs["beta"] - 0.05)) * (0.9 + 0.02 * np.log2(knobs["group_size"]))
    numbers = random.Random(f"{spec.seed} {knobs}")
    best += numbers.gauss(0, 0.04)
    rows = metrics(spec.steps, spec.seed)
    for step, row in enumerate(rows, start=1):
        row["reward"] = float(best * (1 - np.exp(-6 * step / spec.steps)) + numbers.gauss(0, 0.02))
    return rows


def simulated(store: Store, runs: int, rows: int, places: int, early: bool) -> str:
    """Queue a sweep and have the stand-in do it. Returns its id."""
    spec = make(algorithm_key="grpo", task_key="sort", steps=rows)
    settings = runs // SEEDS
    axes = AXES if settings == 100 else {"beta": [0.2 * place / settings for place in range(settings)]}
    how = halving.usual(spec) if early else None
    begun = time.perf_counter()
    sweep_id = sweep.queue(store, sweep.grid(spec, axes, range(SEEDS)), early=how)
    print(f"{runs:,} runs queued in {time.perf_counter() - begun:.2f} s", flush=True)
    begun = time.perf_counter()
    stand_in = StandIn(store, sweep_id, places, Judge(store, sweep_id, how) if how else None)
    stand_in.work()
    found = store.sweep_runs(sweep_id)
    made = sum(row.step for row in found)
    print(f"{made:,} rows of {runs * rows:,} written in {time.perf_counter() - begun:.0f} s; by the stand-in's clock "
          f"{stand_in.clock / 3600:.1f} h on {places} places; {sum(row.early for row in found):,} runs stopped early",
          flush=True)
    return sweep_id


def shown(home: Path, sweep_id: str, times: int) -> None:
    """Print how soon the Sweep view is there."""
    app.lab.Launcher = FakeLauncher  # what is counted here starts no process
    address = f"compare?sweep={sweep_id}&view=sweep"
    asked = queries_of_page(address)
    print(f"{'seconds':<24}" + "".join(f" {name:>8}" for name in (
        "first", "lab", "browser", "again", "lab", "browser", "queries")) + f" {'load':>6}", flush=True)
    with opened_lab(home) as (browser, lab):
        report("Sweep view", in_browser(browser, lab, address, DRAWN, times), asked)


# ---- the real one -------------------------------------------------------------------------------------------------

def real(store: Store, runs: int, places: int) -> None:
    """Have the lab do a sweep of mazes, kill its supervisor half-way, resume, and look whether anything was lost."""
    os.environ["RL_LAB_MAX_RUNS"] = str(places)
    spec = make(kind="maze", algorithm_key="q_learning", task_key="cliff", steps=MAZE_STEPS, knobs={"pace": MAZE_PACE})
    specs = sweep.grid(spec, MAZES, range(-(-runs // 30)))[:runs]
    how = None if halving.lacks_optuna() else Halving("episode_return", 10, 3)
    begun = time.perf_counter()
    sweep_id = sweep.queue(store, specs, early=how)
    rule = how.words() if how else "No early stopping."
    print(f"{runs:,} runs queued in {time.perf_counter() - begun:.2f} s. {rule}", flush=True)
    lab = Launcher(store)
    try:
        _until(store, sweep_id, lambda tally: _ended(tally) >= runs // 2, "half of them")
        decided = store.decisions(sweep_id)[1]
        os.kill(lab._process.pid, signal.SIGKILL)
        _until(store, sweep_id, lambda tally: "interrupted" in tally, "supervisor killed")
        _until(store, sweep_id, lambda tally: _ended(tally) == runs, "the queue is empty")
        print(f"resumed: {len(sweep.resume(store, sweep_id))}", flush=True)
        lab.wake()
        _until(store, sweep_id, lambda tally: _ended(tally) == runs, "all of them")
    finally:
        lab.close()
    print(f"{time.perf_counter() - begun:.0f} s in all, {places} places, {os.cpu_count()} cores")
    _check(store, sweep_id, decided)


def _ended(tally: dict[str, int]) -> int:
    return sum(tally.get(state, 0) for state in ("finished", "stopped", "interrupted", "failed", "diverged"))


def _until(store: Store, sweep_id: str, reached: Callable[[dict[str, int]], bool], said: str) -> None:
    while not reached(tally := store.tally(sweep_id)):
        time.sleep(0.2)
    print(f"{said}: {', '.join(f'{many:,} {state}' for state, many in tally.items())}", flush=True)


def _check(store: Store, sweep_id: str, decided: list) -> None:
    """Fail where a row was lost, a decision was changed, or a run ended otherwise than by its end or early stopping."""
    rows = store.sweep_runs(sweep_id)
    for row in rows:
        steps = store.columns([row.id], [])[row.id][0]
        assert list(steps) == list(range(1, row.step + 1)), row.id
        assert row.early or (row.state, row.step) == ("finished", row.spec.steps), row.id
    after = store.decisions(sweep_id)[1]
    assert after[:len(decided)] == decided
    assert len({(each.run_id, each.step) for each in after}) == len(after)
    print(f"nothing lost: {sum(row.step for row in rows):,} rows, {len(after):,} decisions, "
          f"{sum(row.early for row in rows):,} runs stopped early")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--simulated", action="store_true", help="runs of GRPO by the stand-in, then the view")
    what.add_argument("--real", action="store_true", help="runs of mazes by the lab, its supervisor killed half-way")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=200, help="of a simulated run")
    parser.add_argument("--places", type=int, default=16, help="runs at a time")
    parser.add_argument("--early", action="store_true", help="stop simulated runs early; needs Optuna")
    parser.add_argument("--times", type=int, default=4, help="how often the view is opened after the first time")
    parser.add_argument("--home", type=Path, help="a folder to fill, or one that was filled so before")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = (options.home or Path(temporary)).resolve()
        os.environ["RL_LAB_HOME"] = str(home)
        store = Store()
        if options.real:
            real(store, options.runs, options.places)
            return
        there = sweep.sweeps(store)
        found = there[0].id if there else simulated(store, options.runs, options.rows, options.places, options.early)
        shown(home, found, options.times)


if __name__ == "__main__":
    main()
