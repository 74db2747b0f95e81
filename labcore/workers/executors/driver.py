"""The process that is connected with the Ray cluster: it reads orders from its input and writes their results to its
output.

An actor carries each run (`carrier`). All that happens is a call in one queue, so nothing here is done at once. The end
of the input means that the lab is gone.
"""

from __future__ import annotations

import json
import os
import platform
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from labcore.workers import process
from labcore.workers.executors import carrier
from labcore.workers.executors.ray import unreachable
from labcore.workers.executors.resources import Resources
from labcore.workers.lifeline import GRACE_SECONDS

COMMAND = ("-m", "labcore.workers.worker")
PULSE_SECONDS = 3.0  # between two looks at the cluster
AGAIN_SECONDS = 10.0  # between two tries to reach it
MOST_LOST = 3  # machines that may be lost under a run before it begins
SAID = 200  # characters of what Ray says that a sentence repeats
KILL_SECONDS = GRACE_SECONDS + 1  # a little less than the supervisor gives the driver
# Ray sends no reports of its use, and says little.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "error", "RAY_DEDUP_LOGS": "0",
          "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def connect(address: str) -> Any:
    """The module `ray`, connected with the cluster. Raises ConnectionError, in short words, where there is none."""
    os.environ.update(_QUIET)
    import ray

    try:
        if address.startswith("ray://"):  # Ray itself tries for half a minute
            at = urlsplit(address)
            socket.create_connection((at.hostname, at.port), 5).close()
        ray.init(address, log_to_driver=False, configure_logging=False)
    except (Exception, SystemExit) as error:
        raise ConnectionError(_in_short(error)) from error
    # Our own module goes to the cluster as code: a machine without the lab can say so. Ray pickles all that it carries;
    # the lab gives it words and numbers, and unpickles nothing itself.
    ray.cloudpickle.register_pickle_by_value(carrier)
    return ray


def _in_short(error: BaseException) -> str:
    """The text of an error, to stand within a sentence."""
    words = " ".join(str(getattr(error, "strerror", None) or error).split())
    return words[:SAID].rstrip(".") if isinstance(error, Exception) and words else type(error).__name__


@dataclass
class _Run:
    """A run on its way: its actor, what it asks for, and once it `began` its machine's name and node."""

    asks: Resources
    actor: Any
    began: bool = False
    host: str = ""
    node: str = ""
    waiting: str = ""  # why it waits, as the supervisor knows it
    lost: int = 0  # machines that were lost before it began there


class Driver:
    """Sees each run to its end. `send` takes what the supervisor is to know."""

    def __init__(self, ray: Any, send: Callable[..., None]):
        self._ray, self._send = ray, send
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._runs: dict[str, _Run] = {}
        self._closing = False

    def serve(self) -> None:
        """Work until the input has ended, and then until all workers have."""
        threading.Thread(target=self._read, daemon=True).start()
        while not (self._closing and not self._runs):
            try:
                self._calls.get(timeout=PULSE_SECONDS)()
            except queue.Empty:
                self._say_why_they_wait(self._runs)  # which also sees whether the cluster is still there

    def _read(self) -> None:
        for line in sys.stdin:
            self._calls.put(partial(self._order, json.loads(line)))
        self._calls.put(self._close)

    def _order(self, order: dict[str, Any]) -> None:
        self._start(order.pop("run"), Resources(**order))

    def _start(self, run_id: str, asks: Resources, lost: int = 0) -> None:
        gpu = asks.gpu == "must" or (asks.gpu == "may" and self._ray.cluster_resources().get("GPU", 0) >= 1)
        environment = {key: value for key, value in os.environ.items() if key.startswith("RL_LAB_")} | process.QUIET
        if not gpu:
            environment["CUDA_VISIBLE_DEVICES"] = ""  # what Ray has not given, the device auto must not find
        actor = self._ray.remote(carrier.Carrier).options(
            num_cpus=asks.cores, num_gpus=int(gpu), memory=asks.memory, max_restarts=0, max_concurrency=2,
        ).remote(run_id, COMMAND, str(process.ROOT), environment, platform.node())
        self._runs[run_id] = _Run(asks, actor, lost=lost)
        self._then(actor.start.remote(), self._began, run_id)
        self._say_why_they_wait([run_id])

    def _then(self, result: Any, call: Callable[[str, Future[Any]], None], run_id: str) -> None:
        result.future().add_done_callback(lambda done: self._calls.put(partial(call, run_id, done)))

    def _began(self, run_id: str, done: Future[Any]) -> None:
        run = self._runs[run_id]
        if error := done.exception():
            if self._was_lost(error) and run.lost < MOST_LOST and not self._closing:
                print(f"{run_id}, once more: {error}", file=sys.stderr, flush=True)
                self._ray.kill(run.actor)
                self._start(run_id, run.asks, run.lost + 1)
                return
            self._end(run_id, fault=f"The Ray cluster could not start the run ({_in_short(error)}): see "
                                    f"{process.log()}, then resume it.", error=error)
            return
        said = done.result()
        if "ended" in said:
            self._end(run_id, **said["ended"])
            return
        (_, run.host), run.node, run.began = said["began"], said["node"], True
        self._send(run=run_id, began=said["began"])
        self._then(run.actor.wait.remote(), self._ended, run_id)
        if self._closing:
            run.actor.cut.remote(KILL_SECONDS)

    def _was_lost(self, error: BaseException) -> bool:
        """True if the machine that was to begin a run is gone, or Ray's process there: no fault of the run's."""
        return isinstance(error, self._ray.exceptions.ActorDiedError) and not error.actor_init_failed

    def _ended(self, run_id: str, done: Future[Any]) -> None:
        run = self._runs[run_id]
        if not (error := done.exception()):
            self._end(run_id, code=done.result())
        elif self._is_there(run):
            # The worker sees the end of its lifeline, checkpoints, and says so itself: it is given the time.
            later = threading.Timer(GRACE_SECONDS, self._calls.put, [partial(self._gone, run_id, error)])
            later.daemon = True
            later.start()
        else:
            self._gone(run_id, error)

    def _gone(self, run_id: str, error: BaseException) -> None:
        """The run's process is, or its machine, which Ray may notice later."""
        run = self._runs[run_id]
        if self._is_there(run):
            self._end(run_id, why="Ray ended its process", error=error)
        else:
            self._end(run_id, why=f"its machine {run.host} is gone from the Ray cluster")

    def _is_there(self, run: _Run) -> bool:
        return any(node["NodeID"] == run.node and node["Alive"] for node in self._ray.nodes())

    def _end(self, run_id: str, error: BaseException | None = None, **how: Any) -> None:
        if error and not self._closing:
            print(f"{run_id}: {error}", file=sys.stderr, flush=True)
        self._ray.kill(self._runs.pop(run_id).actor)
        self._send(run=run_id, ended=how)

    def _say_why_they_wait(self, run_ids: Iterable[str]) -> None:
        """Of those that have not begun. Raises where the cluster is gone."""
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        for run_id in run_ids:
            run = self._runs[run_id]
            asks = run.asks.words
            why = (f"waiting for {asks} of the Ray cluster" if any(map(run.asks.fit, machines)) else
                   f"waiting for a machine with {asks}: no machine of the Ray cluster has that much")
            if not run.began and why != run.waiting:
                run.waiting = why
                self._send(run=run_id, waiting=why)

    def _close(self) -> None:
        """The lab is gone: runs that began checkpoint and end; those that wait stay in the lab's queue."""
        self._closing = True
        for run in self._runs.values():
            if run.began:
                run.actor.cut.remote(KILL_SECONDS)
            else:
                self._ray.kill(run.actor)


def _sender() -> Callable[..., None]:
    """A function that writes lines to the supervisor. Whatever Ray and others print goes where errors go."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(**said: Any) -> None:
        print(json.dumps(said), file=out, flush=True)

    return send


def main() -> None:
    """`python -m labcore.workers.executors.driver ADDRESS`; with `--check` before it, only see whether it is there."""
    *options, address = sys.argv[1:]
    if options:
        try:
            connect(address)
        except ConnectionError as error:
            print(unreachable(address, str(error)))
            sys.exit(1)
        return
    send = _sender()
    while True:
        try:
            ray = connect(address)
            break
        except ConnectionError as error:
            send(waiting=f"waiting for the Ray cluster ({address}), which does not answer ({error})")
            time.sleep(AGAIN_SECONDS)
    send(connected=True)
    Driver(ray, send).serve()


if __name__ == "__main__":
    main()
