"""Runs killed in mid-step in every way that a lab can end, resumed, and held against a twin that nothing disturbed."""

import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
from playwright.sync_api import Page as Tab

from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.store.rows import ENDED, GOING
from labcore.runs.store.store import Step, Store
from labcore.workers.launcher import Launcher
from tests.browser.conftest import ROOT
from tests.soak import links
from tests.soak.hosts import CommandLine, Host, Lab, Page, Wish, kill
from tests.soak.report import Report
from tests.workers.tools import learnt
from tests.workers.tools import until as until_within

AGAIN = 0.35  # the share of resumed runs that are killed once more
# Of some seconds each; mazes at a pace, as they would be over before they are killed.
WISHES: tuple[Wish, ...] = (
    {"kind": "maze", "algorithm_key": "q_learning", "task_key": "corridors", "steps": 300, "knobs": {"pace": 60.0}},
    {"kind": "maze", "algorithm_key": "sarsa_lambda", "task_key": "slippery", "steps": 300, "knobs": {"pace": 60.0}},
    {"kind": "cartpole", "algorithm_key": "ppo", "task_key": "CartPole-v1", "steps": 30, "knobs": {}},
    {"kind": "cartpole", "algorithm_key": "dqn", "task_key": "CartPole-v1", "steps": 80, "knobs": {}},
    {"kind": "llm", "algorithm_key": "grpo", "task_key": "sort", "steps": 60, "knobs": {"prompts_per_step": 4}},
    {"kind": "llm", "algorithm_key": "ppo", "task_key": "sort", "steps": 30, "knobs": {"prompts_per_step": 4}},
    {"kind": "llm", "algorithm_key": "rloo", "task_key": "add", "steps": 60, "knobs": {"prompts_per_step": 4}},
    {"kind": "exact", "algorithm_key": "rloo", "task_key": "sorted", "steps": 25, "knobs": {}},
)


def until(condition):
    """Wait for a condition; its value. As two labs share the machine it may take its time."""
    return until_within(condition, seconds=240, every=0.05)


class Kills:
    """Trials on one lab at `home`. `launcher` makes the twins and resumes; `tab` is the browser's."""

    def __init__(self, report: Report, home: Path, store: Store, launcher: Launcher, tab: Tab):
        self._report, self._home, self._store, self._launcher, self._tab = report, home, store, launcher, tab

    def trial(self, chance: random.Random) -> None:
        """Start runs somewhere, kill something there, resume them and compare.

        Raises:
            AssertionError: a row is lost, a process is left, or a metric differs.
        """
        host = chance.choice((CommandLine, Lab, Lab, Page))
        host = host(self._home, self._tab) if host is Page else host()
        wishes = [{**chance.choice(WISHES), "seed": chance.randrange(10**9)} for _ in range(host.runs)]
        victim = chance.choice(host.victims)
        with host:
            runs = self._started(host, wishes)
            twins = {run_id: self._launcher.start(self._store.run(run_id).spec) for run_id in runs}
            if isinstance(host, Page):
                links.follow(host, chance, self._report)
            struck = chance.choice(runs)
            self._wait_for_step(struck, chance.uniform(0.05, 0.9), chance.uniform(0, 0.3))
            members = host.family()
            disturbed = [run_id for run_id in runs if self._store.run(run_id).state in GOING]
            kill(victim, host, self._store.run(struck).pid if struck in disturbed else None)
            self._report.count("Kills", f"{victim} of {type(host).__name__}" if struck in disturbed
                               else "too late: the run was over")
            if victim in ("worker", "supervisor"):
                self._over(struck)
            host.end()
            _, left = psutil.wait_procs(members, timeout=30)
            assert not left, f"processes are left after the kill: {left}"
        self._store.reconcile()
        for run_id in runs:
            self._resume(run_id, chance)
            self._compare(run_id, twins[run_id], run_id in disturbed)

    def _started(self, host: Host, wishes: list[Wish]) -> list[str]:
        host.start(wishes)
        seeds = {wish["seed"] for wish in wishes}
        return until(lambda: found if len(found := [row.id for row in self._store.runs()
                                                    if row.spec.seed in seeds]) == len(seeds) else None)

    def _wait_for_step(self, run_id: str, share: float, seconds: float) -> None:
        """Until that share of its steps is done, or it is over; then some seconds more, into the middle of a step."""
        aim = max(1, int(share * self._store.run(run_id).spec.steps))
        until(lambda: (row := self._store.run(run_id)).step >= aim or row.state in ENDED)
        time.sleep(seconds)

    def _resume(self, run_id: str, chance: random.Random) -> None:
        """Take the run to its end; on the way it may be killed once more. No row that was there changes."""
        for aim in [chance.uniform(0.5, 0.95)] * (chance.random() < AGAIN) + [1.0]:
            before = self._rows(run_id)
            if self._store.run(run_id).state == "finished":
                return
            self._wake(run_id, chance)
            if aim < 1:
                self._wait_for_step(run_id, aim, 0)
                row = self._store.run(run_id)
                if row.state in GOING:
                    psutil.Process(row.pid).kill()
                    self._report.count("Kills", "worker, resumed")
                self._over(run_id)
            else:
                row = self._over(run_id)
                assert row.state == "finished", f"the resumed run is {row.state}: {row.message}"
            assert self._rows(run_id)[:len(before)] == before, "a row changed after the resume"

    def _over(self, run_id: str):
        def ended():
            self._store.reconcile()
            return row if (row := self._store.run(run_id)).state in ENDED else None
        return until(ended)

    def _wake(self, run_id: str, chance: random.Random) -> None:
        """Resume by the launcher, or by the command line. What still waits in the killed lab's queue, another takes."""
        if self._store.run(run_id).state not in ENDED:
            self._launcher.wake()
        elif chance.random() < 0.6:
            self._launcher.resume(run_id)
        else:
            subprocess.Popen([sys.executable, "-m", "labcore", "resume", run_id, "--json"], cwd=ROOT,
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until(lambda: self._store.run(run_id).state not in ENDED or self._store.run(run_id).state == "finished")

    def _rows(self, run_id: str) -> list[Step]:
        return self._store.steps_after(run_id)

    def _compare(self, run_id: str, twin: str, disturbed: bool) -> None:
        """Every step of the run is there once and is its twin's, bit for bit."""
        assert self._over(twin).state == "finished", self._store.run(twin).message
        spec: RunSpec = self._store.run(run_id).spec
        assert [row.step for row in self._rows(run_id)] == list(range(1, spec.steps + 1)), f"{run_id} has other steps"
        assert learnt(self._store, run_id) == learnt(self._store, twin), f"{run_id} differs from its twin {twin}"
        if disturbed:
            self._report.count("Runs resumed, bit for bit as their twins", f"{spec.kind}: {spec.algorithm}")
