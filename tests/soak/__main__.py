"""A long trial of the lab: `make soak`. Runs, exports and imports are killed, disks fill, bad inputs are given.

    python -m tests.soak --minutes 30 --seed 7
    python -m tests.soak --seed 7 --again kills:12      one trial of it again

Everything happens in a scratch home. Each trial draws from the seed, its part and its number alone, so it can be
repeated by itself; where exactly a kill strikes depends on the machine too. The exit status is 1 if any trial failed.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psutil
from playwright.sync_api import sync_playwright

from labcore.runs.store.dialects import sqlite_url
from labcore.runs.store.store import Store
from labcore.workers.launcher import Launcher
from tests.app.seeding import seed
from tests.browser.chromium import find
from tests.browser.conftest import FLAGS, ROOT
from tests.runs.store import postgres
from tests.soak.full_disk import FullDisk
from tests.soak.hosts import of_lab
from tests.soak.inputs import PRELOAD, Inputs, processes
from tests.soak.kills import Kills
from tests.soak.load import Load
from tests.soak.postgres import Postgres
from tests.soak.raw_sockets import RawMessages
from tests.soak.report import Report
from tests.soak.writers import Writers

SHARES = {"kills": 0.45, "inputs": 0.25, "load": 0.05, "disks": 0.1, "writers": 0.08, "sockets": 0.05,
          "postgres": 0.02}  # of the time
LATE_SECONDS = 40  # after the time is up, the trial that still goes is cut off
KEPT = ROOT / "build" / "soak"
Trial = Callable[[random.Random], None]


class TimeUp(BaseException):
    """The trial that still goes is cut off."""


class Soak:
    """The parts over one scratch lab in `place`, to be used in a with statement; at its end nothing may be left."""

    def __init__(self, report: Report, place: Path):
        self.report, self.home = report, place / "home" / "of" / "lab"
        self._place, self._stack = place, ExitStack()

    def __enter__(self) -> Soak:
        processes.set_forkserver_preload(PRELOAD)
        warm = processes.Process(target=int)  # before the home is set: what has it later is of the lab
        warm.start()
        warm.join()
        browser = self._stack.enter_context(sync_playwright()).chromium.launch_persistent_context(
            self._place / "browser", executable_path=find(), args=FLAGS)
        self._stack.callback(browser.close)
        self.home.mkdir(parents=True)
        os.environ |= {"RL_LAB_HOME": str(self.home), "RL_LAB_MAX_RUNS": "4", "HF_HUB_OFFLINE": "1"}
        store = self._store = Store()
        launcher = Launcher(store)
        self._stack.callback(launcher.close)
        self.parts: dict[str, Trial] = {
            "kills": Kills(self.report, self.home, store, launcher, browser.pages[0]).trial,
            "inputs": Inputs(self.report, self.home, self._place / "inputs", KEPT).trial,
            "load": Load(self.report, store).trial,
            "disks": FullDisk(self.report, self._place / "disks").trial,
            "writers": Writers(self.report, self._place / "writers").trial,
            "sockets": self._stack.enter_context(RawMessages(self.report, self._shared())).trial}
        if postgres.MISSING:
            self.report.notes.append(f"Not tried: a store on PostgreSQL. {postgres.MISSING}.")
        else:
            self.parts["postgres"] = Postgres(self.report, self._stack.enter_context(postgres.server())).trial
        self.report.notes.append("Not tried: a real object store. The normal tests have one in memory.")
        return self

    def _shared(self) -> Path:
        """A lab with some runs, to be shared for reading."""
        (home := self._place / "shared").mkdir()
        store = Store(sqlite_url(home / "lab.db"))
        for state in ("finished", "interrupted", "failed"):
            seed(store, state)
        store.dispose()
        return home

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        _, left = psutil.wait_procs(of_lab(self.home), timeout=15)
        for process in left:
            self.report.fail("the end", f"a process is left: {process}", "python -m tests.soak --seed "
                             f"{self.report.seed}")
            process.kill()
        finished = {row.id for row in self._store.runs("finished")}
        for path in (*self.home.glob(".*"), *(path for name in finished for path in (self.home / name).rglob(".*"))):
            self.report.fail("the end", f"a temporary file is left: {path.relative_to(self.home)}",
                             f"python -m tests.soak --seed {self.report.seed}")
        self.report.notes.append(f"Processes of the lab left at the end: {len(left)}.")
        shutil.rmtree(self._place)

    def go_on(self, end: float) -> None:
        """Trials of all parts by their share of the time, until `end` on the monotonic clock."""
        spent, made = dict.fromkeys(self.parts, 0.0), dict.fromkeys(self.parts, 0)
        while fitting := [part for part in self.parts
                          if (now := time.monotonic()) + spent[part] / max(made[part], 1) < end]:
            part = min(fitting, key=lambda name: spent[name] / SHARES[name])
            made[part] += 1
            self.attempt(part, made[part])
            spent[part] += time.monotonic() - now

    def attempt(self, part: str, number: int) -> None:
        """One trial; a failure is noted, and the next one goes on."""
        name, begun = f"{part}:{number}", time.monotonic()
        again = f"python -m tests.soak --seed {self.report.seed} --again {name}"
        try:
            self.parts[part](random.Random(f"{self.report.seed} {name}"))
            result = "ok"
        except TimeUp:
            result = "cut off: the time was up"
            self.report.notes.append(f"{name} was cut off, as the time was up: it counts for nothing.")
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)
            own = next(frame for frame in reversed(place) if "soak" in frame.filename)
            result = f"{type(error).__name__}: {error}"
            self.report.fail(name, f"{result}\n\n(line {own.lineno} of {Path(own.filename).name}: `{own.line}`)", again)
        if part != "inputs" or result != "ok":
            print(f"{name:12} {time.monotonic() - begun:6.1f} s  {result}", flush=True)


def main() -> int:
    """Soak the lab and write the report. Returns 1 where a trial failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default: 30)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of all that is drawn at random")
    parser.add_argument("--again", metavar="PART:NUMBER", help="only this trial of the seed")
    parser.add_argument("--report", type=Path, default=KEPT / "report.md", metavar="FILE")
    options = parser.parse_args()
    print(f"soak of {options.minutes:g} minutes with seed {options.seed}", flush=True)
    begun, report = time.monotonic(), Report(options.seed)
    with Soak(report, Path(tempfile.mkdtemp(prefix="soak-"))) as soak:
        if options.again:
            part, number = options.again.split(":")
            soak.attempt(part, int(number))
        else:
            signal.signal(signal.SIGALRM, time_up)
            signal.setitimer(signal.ITIMER_REAL, 60 * options.minutes + LATE_SECONDS)
            soak.go_on(begun + 60 * options.minutes)
            signal.setitimer(signal.ITIMER_REAL, 0)
    text = report.markdown(time.monotonic() - begun)
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(text, "utf-8")
    print(f"\n{text}\nThe report is {options.report}.")
    return int(bool(report.failures))


def time_up(*_: object) -> None:
    raise TimeUp


if __name__ == "__main__":
    sys.exit(main())
