"""Runs on the machines of a Ray cluster, which queues them by what they need.

Only another process, the driver, imports Ray: it brings threads, which must not be in a process that forks. This side
tells the driver which runs to start, and hears when they began and ended: a JSON object a line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from labcore.errors import LabError, quoted
from labcore.runs.files.paths import made, max_runs, run_folder
from labcore.runs.store.dialects import store_url
from labcore.runs.store.store import Store
from labcore.workers import process
from labcore.workers.executors.executor import Ended
from labcore.workers.executors.resources import needed

DRIVER = (sys.executable, "-m", "labcore.workers.executors.driver")
AUTO = "auto"
AT_ONCE = 256  # runs that Ray is given at once, unless RL_LAB_MAX_RUNS says otherwise: it queues them itself
CONNECT_SECONDS = 20.0  # a cluster that is there is found in two
QUICK_SECONDS = 10.0  # a driver that dies sooner than this is not given the same runs again


class OnRay:
    """The `Executor` of the cluster. Starts its driver anew where that died. Raises LabError as `cluster`."""

    def __init__(self, store: Store):
        self.limit = max_runs(AT_ONCE)
        self._store, self._address = store, cluster()
        self._owners: dict[str, tuple[int, str] | None] = {}  # of each run that was started; None until it began
        self._ended: deque[Ended] = deque()
        self._waiting: dict[str, str] = {}
        self._driver: _Driver | None = _Driver(self._address)

    def start(self, run_id: str) -> None:
        spec = self._store.run(run_id).spec
        made(run_folder(run_id))  # by which its machine sees that it has the lab's folder
        self._driver = self._driver or _Driver(self._address)
        self._owners[run_id] = None
        self._driver.order({"run": run_id, **asdict(needed(spec))})

    def ended(self) -> Iterator[Ended]:
        self._listen()
        while self._ended:
            yield self._ended.popleft()

    def waiting(self) -> dict[str, str]:
        news, self._waiting = self._waiting, {}
        return news

    def watched(self) -> list[int]:
        return [self._driver.said] if self._driver else []

    def cut(self) -> None:
        if self._driver and self._driver.connected:
            self._driver.cut()
        else:
            self.kill()

    def kill(self) -> None:
        if self._driver:
            self._driver.process.kill()

    def _listen(self) -> None:
        for said in self._driver.heard() if self._driver else ():
            self._take(said)
        if self._driver and self._driver.gone:
            self._lose(self._driver)

    def _take(self, said: dict[str, Any]) -> None:
        """Take the driver's message on a `run`: that it is `waiting`, `began` or `ended`."""
        run_id = str(said.get("run", ""))
        if "waiting" in said:  # without a run: all of them
            self._waiting |= dict.fromkeys([run_id] if run_id else self._owners, said["waiting"])
        elif "began" in said:
            pid, host = said["began"]
            self._owners[run_id] = pid, host
            self._waiting[run_id] = f"starting on {host}"
        elif "ended" in said:
            self._ended.append(_end(run_id, self._owners.pop(run_id), **said["ended"]))

    def _lose(self, driver: _Driver) -> None:
        """Runs that had begun are lost with their driver; those that waited in Ray's queue are started again.

        Unless it did not come far: what is wrong then would be wrong again.
        """
        code = driver.end()
        fault = "" if driver.came_far else (f"The process that speaks with Ray ended with code {code}: see "
                                            f"{process.log()}, mend the cause, then resume the run.")
        self._ended.extend(Ended(run_id, owner, "the connection to the Ray cluster was lost", fault)
                           for run_id, owner in self._owners.items())
        self._owners, self._driver = {}, None


def _end(run_id: str, owner: tuple[int, str] | None, code: int | None = None, why: str = "", fault: str = "") -> Ended:
    return Ended(run_id, owner, why, fault) if owner is None or code is None else Ended.with_code(run_id, owner, code)


class _Driver:
    """The driver as a process: what it says can be `heard` when the descriptor `said` is ready."""

    def __init__(self, address: str):
        self.process = subprocess.Popen([*DRIVER, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin and self.process.stdout
        self._orders, self._output = self.process.stdin, self.process.stdout
        self.said = self._output.fileno()
        os.set_blocking(self.said, False)
        self._born, self._rest = time.monotonic(), b""
        self.connected = self.gone = False

    @property
    def came_far(self) -> bool:
        return self.connected and time.monotonic() - self._born > QUICK_SECONDS

    def order(self, order: dict[str, Any]) -> None:
        try:
            self._orders.write(json.dumps(order).encode() + b"\n")
            self._orders.flush()
        except BrokenPipeError:  # it has just died, as the end of its output will say
            return

    def heard(self) -> Iterator[dict[str, Any]]:
        """The messages since the last call; `gone` is set where that was the last."""
        while not self.gone:
            try:
                said = os.read(self.said, 65536)
            except BlockingIOError:
                return
            self.gone = not said
            *lines, self._rest = (self._rest + said).split(b"\n")
            for line in map(json.loads, lines):
                self.connected |= "connected" in line
                yield line

    def cut(self) -> None:
        """Have it give the workers their time, then end."""
        with suppress(BrokenPipeError):  # orders that it never read
            self._orders.close()

    def end(self) -> int:
        """Its exit code, once it is gone."""
        self.cut()
        self._output.close()
        return self.process.wait()


def cluster() -> str:
    """`RL_LAB_RAY`, or auto: the cluster that this machine is part of. Raises LabError where it is no such address."""
    word = os.environ.get("RL_LAB_RAY", "").strip() or AUTO
    if word != AUTO and not _is_address(word):
        raise LabError(f"RL_LAB_RAY is {quoted(word)}: set it to {AUTO}, or to ray://host:port of a Ray cluster.")
    return word


def _is_address(word: str) -> bool:
    try:
        address = urlsplit(word)
        return address.scheme == "ray" and bool(address.hostname and address.port)
    except ValueError:  # the port is no number
        return False


def check() -> None:
    """Raise LabError where Ray is not installed, or the cluster is not to be reached."""
    address = cluster()
    if find_spec("ray") is None:
        raise LabError("RL_LAB_EXECUTOR is ray, which is not installed: run pip install -r requirements-cluster.txt, "
                       "or leave RL_LAB_EXECUTOR unset.")
    try:
        tried = subprocess.run([*DRIVER, "--check", address], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                               timeout=CONNECT_SECONDS, env=process.environment(store_url()), check=False)
    except subprocess.TimeoutExpired:
        raise LabError(unreachable(address, f"no answer in {CONNECT_SECONDS:.0f} s")) from None
    if tried.returncode:
        said = tried.stdout.splitlines() or [unreachable(address, f"code {tried.returncode}")]
        raise LabError(said[-1])


def unreachable(address: str, why: str) -> str:
    """The sentence for a cluster that does not answer."""
    if address == AUTO:
        return (f"No Ray cluster can be reached from this machine ({why}): start one with ray start --head, or set "
                "RL_LAB_RAY to ray://host:port of one that runs.")
    return (f"The Ray cluster {address} cannot be reached ({why}): check that it runs and that RL_LAB_RAY names it, "
            "then start the lab again.")
