"""A sweep of language-model runs on a cluster of two machines, one of which is lost, and the same on one machine.

`python -m benchmarks.cluster_sweep` makes all of it on this machine: PostgreSQL, an object store (a server of moto), a
Ray cluster of two nodes with a home each, and a lab with a third home. It queues 24 runs (GRPO on sort, four values of
β, six seeds), kills a node in the middle, resumes what that interrupted once a new node has joined, and waits for the
end. Then it trains the same specs in one lab without any of these, and compares all that the steps measured of the
training, bit for bit. It needs Debian's `postgresql`, requirements-cluster.txt and requirements-cluster-dev.txt. The
exit status is 1 if a run differs or a row is missing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.artifacts import bucket
from labcore.catalog.metrics import METRICS
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.store.rows import ENDED
from labcore.runs.store.store import Store
from labcore.runs.sweep import grid, queue, resume, sweep
from labcore.workers.launcher import Launcher
from tests.runs.store import postgres

ROOT = Path(__file__).resolve().parents[1]
BETAS = (0.0, 0.02, 0.04, 0.1)
EVERY = 0.25  # seconds between two looks


def specs(steps: int, seeds: int) -> list[RunSpec]:
    return grid(make(algorithm_key="grpo", task_key="sort", steps=steps, threads=1), {"beta": BETAS}, range(seeds))


class Nodes:
    """A Ray cluster whose head takes no run, and whose nodes have a home each, below `homes`."""

    def __init__(self, homes: Path):
        from ray.cluster_utils import Cluster

        self._homes = homes
        self._cluster = Cluster(initialize_head=True, head_node_args={
            "num_cpus": 0, "include_dashboard": False,
            "_system_config": {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300,
                               "health_check_failure_threshold": 3}})
        self.address: str = self._cluster.address
        self._nodes: dict[str, Any] = {}

    def add(self, name: str) -> None:
        lab = os.environ["RL_LAB_HOME"]
        os.environ["RL_LAB_HOME"] = str(self._homes / name)  # a node has the environment that it is started in
        self._nodes[name] = self._cluster.add_node(num_cpus=1)
        os.environ["RL_LAB_HOME"] = lab

    def lose(self, name: str) -> None:
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()


def wait(done: Callable[[], bool], limit: float = 1800) -> None:
    end = time.monotonic() + limit
    while not done():
        if time.monotonic() > end:
            raise TimeoutError("The sweep did not get on.")
        time.sleep(EVERY)


def states(store: Store, sweep_id: str) -> Counter[str]:
    return Counter(run.state for run in sweep(store, sweep_id).runs)


def say(store: Store, sweep_id: str, begun: float, words: str) -> None:
    found = ", ".join(f"{count} {state}" for state, count in states(store, sweep_id).items())
    print(f"{time.monotonic() - begun:6.1f} s  {found}; {words}", flush=True)


def through(store: Store, sweep_id: str, lab: Launcher, begun: float) -> None:
    """Wait until all runs have ended; those that were interrupted are resumed."""
    def ended() -> bool:
        if resume(store, sweep_id, ["interrupted"]):
            lab.wake()
        return set(states(store, sweep_id)) <= set(ENDED) - {"interrupted"}

    wait(ended)
    say(store, sweep_id, begun, "the end")
    for run in sweep(store, sweep_id).runs:
        if run.state != "finished":
            print(f"{run.id}: {run.message}")


def learnt(store: Store, sweep_id: str) -> list[list[dict[str, float]]]:
    """Of each run in the order in which it was queued, what its steps measured of the training."""
    runs = sorted(sweep(store, sweep_id).runs, key=lambda run: run.number)
    return [[{key: value for key, value in step.metrics.items() if METRICS[key].about == "training"}
             for step in store.steps_after(run.id)] for run in runs]


def on_the_cluster(homes: Path, wanted: Sequence[RunSpec]) -> list[list[dict[str, float]]]:
    """The sweep on two nodes, one of which is lost."""
    path = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": os.pathsep.join(path)}
    with closing(Nodes(homes)) as nodes:
        nodes.add("one")
        nodes.add("two")
        os.environ |= {"RAY_ADDRESS": nodes.address, "RL_LAB_EXECUTOR": "ray", "RL_LAB_MAX_RUNS": "256"}
        store = Store()
        with closing(Launcher(store)) as lab:
            begun, sweep_id = time.monotonic(), queue(store, wanted)
            lab.wake()
            print(f"{len(wanted)} runs of {wanted[0].steps} steps on Ray", flush=True)
            wait(partial(halfway, store, sweep_id, homes / "two"))
            say(store, sweep_id, begun, "node two is killed")
            nodes.lose("two")
            wait(lambda: states(store, sweep_id)["interrupted"] > 0)
            say(store, sweep_id, begun, "node three joins")
            nodes.add("three")
            through(store, sweep_id, lab, begun)
        found = learnt(store, sweep_id)
        runs = [run.id for run in sweep(store, sweep_id).runs]
        resumed = [run for run in runs if any(event.kind == "resumed" for event in store.events_after(run))]
        print(f"resumed: {', '.join(resumed)}; runs in the home of " + ", ".join(
            f"{home.name}: {sum((home / run).exists() for run in runs)}" for home in sorted(homes.iterdir())))
        store.dispose()
    del os.environ["RAY_ADDRESS"]
    return found


def halfway(store: Store, sweep_id: str, home: Path) -> bool:
    """Whether a third of the runs have finished, and one is in its midst on the machine with that home."""
    runs = sweep(store, sweep_id).runs
    return (states(store, sweep_id)["finished"] >= len(runs) // 3
            and any(run.state == "running" and run.step > run.spec.steps // 3 and (home / run.id).exists()
                    for run in runs))


def on_this_machine(home: Path, wanted: Sequence[RunSpec]) -> list[list[dict[str, float]]]:
    """The sweep as a lab alone trains it: forked workers, SQLite, a folder."""
    os.environ["RL_LAB_HOME"] = str(home)
    for name in ("RL_LAB_STORE", "RL_LAB_ARTIFACTS", "RL_LAB_EXECUTOR", "RL_LAB_MAX_RUNS"):
        os.environ.pop(name, None)
    store = Store()
    with closing(Launcher(store)) as lab:
        begun, sweep_id = time.monotonic(), queue(store, wanted)
        lab.wake()
        print("the same runs in a lab on this machine alone", flush=True)
        through(store, sweep_id, lab, begun)
    found = learnt(store, sweep_id)
    store.dispose()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=6, help="of each of four settings")
    given = parser.parse_args(arguments)
    if postgres.MISSING:
        print(postgres.MISSING, file=sys.stderr)
        return 1
    wanted = specs(given.steps, given.seeds)
    url = "s3://lab/proof"
    with tempfile.TemporaryDirectory() as folder, postgres.server() as server, bucket(url, moto=True):
        homes = Path(folder) / "homes"
        os.environ |= {"RL_LAB_STORE": server.render_as_string(hide_password=False), "RL_LAB_ARTIFACTS": url,
                       "RL_LAB_HOME": str(homes / "lab")}
        there = on_the_cluster(homes, wanted)
        here = on_this_machine(Path(folder) / "alone", wanted)
    rows = sum(map(len, here))
    same = sum(one == other and len(one) == given.steps for one, other in zip(there, here, strict=True))
    print(f"{same} of {len(wanted)} runs are bit-equal in all their steps, {rows:,} rows of "
          f"{len(here[0][0])} metrics each")
    return int(same < len(wanted))


if __name__ == "__main__":
    sys.exit(main())
