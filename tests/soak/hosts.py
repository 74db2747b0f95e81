"""Where runs are started and killed: the command line, a lab (the page's launcher), and the page itself.

A host says how many `runs` it starts at once and which `victims` can be killed there.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil
from playwright.sync_api import Page as Tab

from tests.browser.conftest import ROOT, Server

Wish = Mapping[str, Any]  # the arguments of `labcore.runs.spec.run_spec.make`
SLOW = 60_000  # ms: a busy machine is no failure
SIGNALS = {"terminated": signal.SIGTERM, "Ctrl-C": signal.SIGINT}  # all else is killed


class Host(ABC):
    """One that starts runs: a process, and all that it starts."""

    runs: int
    victims: tuple[str, ...]
    parent: psutil.Process | None = None

    @abstractmethod
    def start(self, wishes: Iterable[Wish]) -> None:
        """Start a run of each wish, in whatever order."""

    def family(self) -> list[psutil.Process]:
        """The process and everything that it started."""
        return [self.parent, *self.parent.children(recursive=True)]

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(psutil.NoSuchProcess, AttributeError):  # it is over, or never began
            for process in self.family():
                process.kill()

    def end(self) -> None:
        """Ask it to end, where it lives."""
        with suppress(psutil.NoSuchProcess):
            self.parent.terminate()


class CommandLine(Host):
    """`python -m labcore run`: one process, which trains itself."""

    runs, victims = 1, ("worker", "terminated", "Ctrl-C")

    def start(self, wishes: Iterable[Wish]) -> None:
        for wish in wishes:
            self.parent = begun(sys.executable, "-m", "labcore", *arguments(wish))


class Lab(Host):
    """`python -m tests.soak.lab`: a launcher with its supervisor and workers, as a page's server holds them."""

    runs, victims = 2, ("worker", "supervisor", "parent", "all processes", "terminated")

    def start(self, wishes: Iterable[Wish]) -> None:
        self.parent = begun(sys.executable, "-m", "tests.soak.lab", *map(json.dumps, wishes))


class Page(Host):
    """The page on a server of its own, where Run is pressed in a browser."""

    runs, victims = 1, ("worker", "supervisor", "streamlit server", "all processes", "Ctrl-C")

    def __init__(self, home: Path, tab: Tab):
        self._home, self._tab = home, tab

    def start(self, wishes: Iterable[Wish]) -> None:
        self._server = Server(self._home)
        self.parent = psutil.Process(self._server.process.pid)
        for wish in wishes:
            self.open(wish["kind"], {"algorithm": wish["algorithm_key"], "task": wish["task_key"],
                                     "steps": wish["steps"], "seed": wish["seed"], **wish["knobs"]})
            self._tab.get_by_role("button", name=re.compile("^Run")).first.click(timeout=SLOW)

    def open(self, page: str, query: Mapping[str, Any]) -> int:
        """Open a link and wait until its script is through. Returns how many tracebacks it shows."""
        self._tab.goto(f"{self._server.url}/{page}?{urlencode(query, errors='replace')}")
        self._tab.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for(timeout=SLOW)
        return self._tab.locator("[data-testid=stException]").count()


def begun(*command: str) -> psutil.Popen:
    """A process whose input stays open, and that says nothing here."""
    return psutil.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL, start_new_session=True)


def arguments(wish: Wish) -> list[str]:
    """The words of `python -m labcore` that start the run."""
    knobs = [word for key, value in wish["knobs"].items() for word in ("--set", f"{key}={value}")]
    return ["run", "--kind", wish["kind"], "--algorithm", wish["algorithm_key"], "--task", wish["task_key"],
            "--steps", str(wish["steps"]), "--seed", str(wish["seed"]), *knobs, "--json"]


def of_lab(home: Path) -> list[psutil.Process]:
    """Every process that works in the lab at `home`, whoever its parent is now; not this one."""
    return [process for process in psutil.process_iter()
            if process.pid != os.getpid() and _home_of(process) == str(home)]


def _home_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("RL_LAB_HOME") if process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:  # it has ended, or is another user's
        return None


def struck_by(victim: str, host: Host, worker: int | None) -> list[psutil.Process]:
    """The processes that the word names. `worker` is the process that trains."""
    if victim == "worker":
        return [psutil.Process(worker)] if worker else []
    if victim == "supervisor":
        return [child for child in host.parent.children() if "labcore.workers.supervisor" in child.cmdline()]
    return host.family() if victim == "all processes" else [host.parent]


def kill(victim: str, host: Host, worker: int | None) -> None:
    """End what the word names, and wait until it is gone."""
    struck = struck_by(victim, host, worker)
    for process in struck:
        process.send_signal(SIGNALS.get(victim, signal.SIGKILL))
    psutil.wait_procs(struck, timeout=30)
