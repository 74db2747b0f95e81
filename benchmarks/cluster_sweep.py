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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.artifacts import bucket
from labcore.catalog.metrics import METRICS
from labcore.runs.sweep import grid, queue, resume, sweep
from labcore.spec.run_spec import RunSpec, make
from labcore.store.rows import ENDED
from labcore.store.store import Store
from labcore.workers.launcher import Launcher
from tests.store import postgres

ROOT = Path(__file__).resolve().parents[1]
BETAS = (0.0, 0.02, 0.04, 0.1)
EVERY = 0.25  # seconds between two looks


def specs(steps: int, seeds: int) -> list[RunSpec]:
    return grid(make(algorithm_key="grpo", task_key="sort", steps=steps, threads=1), {"beta": BETAS}, range(seeds))


@contextmanager
def cluster(homes: Path) -> Iterator[Callable[[str], object]]:
    """A Ray cluster whose head takes no run; what it gives adds a node of that name, with a home of its own."""
    from ray.cluster_utils import Cluster

    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": os.pathsep.join(
        filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    made = Cluster(initialize_head=True, head_node_args={
        "num_cpus": 0, "include_dashboard": False,
        "_system_config": {"health_check_period_ms": 300, "health_check_failure_threshold": 3}})

    def add(name: str) -> object:
        os.environ["RL_LAB_HOME"] = str(homes / name)  # a node has the environment that it is started in
        try:
            return made.add_node(num_cpus=1)
        finally:
            os.environ["RL_LAB_HOME"] = str(homes / "lab")

    os.environ["RAY_ADDRESS"] = made.address
    add.lose = lambda node: made.remove_node(node, allow_graceful=False)  # type: ignore[attr-defined]
    try:
        yield add
    finally:
        made.shutdown()
        os.environ.pop("RAY_ADDRESS")


def wait(done: Callable[[], bool], limit: float = 1800) -> None:
    end = time.monotonic() + limit
    while not done():
        if time.monotonic() > end:
            raise TimeoutError("The sweep did not get on.")
        time.sleep(EVERY)


def states(store: Store, sweep_id: str) -> Counter[str]:
    return Counter(run.state for run in sweep(store, sweep_id).runs)


def through(store: Store, sweep_id: str, lab: Launcher, begun: float) -> None:
    """Wait until all runs have finished; those that were interrupted are resumed."""
    def ended() -> bool:
        if any(run.state == "interrupted" for run in sweep(store, sweep_id).runs):
            resume(store, sweep_id)
            lab.wake()
        return set(states(store, sweep_id)) <= set(ENDED)

    wait(ended)
    print(f"{time.monotonic() - begun:6.1f} s  {dict(states(store, sweep_id))}", flush=True)
    for run in sweep(store, sweep_id).runs:
        if run.state != "finished":
            print(f"{run.id} {run.state}: {run.message}")


def learnt(store: Store, sweep_id: str) -> list[list[dict[str, float]]]:
    """Of each run in the order in which it was queued, what its steps measured of the training."""
    runs = sorted(sweep(store, sweep_id).runs, key=lambda run: run.number)
    return [[{key: value for key, value in step.metrics.items() if METRICS[key].about == "training"}
             for step in store.steps_after(run.id)] for run in runs]


def on_the_cluster(homes: Path, wanted: Sequence[RunSpec]) -> list[list[dict[str, float]]]:
    """The sweep on two nodes, one of which is lost."""
    with cluster(homes) as add:
        nodes = {name: add(name) for name in ("one", "two")}
        os.environ |= {"RL_LAB_EXECUTOR": "ray", "RL_LAB_MAX_RUNS": "256"}
        store = Store()
        lab, begun = Launcher(store), time.monotonic()
        sweep_id = queue(store, wanted)
        lab.wake()
        print(f"{len(wanted)} runs of {wanted[0].steps} steps on Ray", flush=True)

        def halfway() -> bool:
            found = states(store, sweep_id)
            on_two = [run for run in sweep(store, sweep_id).runs if run.state == "running"
                      and run.step > wanted[0].steps // 3 and (homes / "two" / run.id).exists()]
            return found["finished"] >= len(wanted) // 3 and bool(on_two)

        wait(halfway)
        print(f"{time.monotonic() - begun:6.1f} s  {dict(states(store, sweep_id))}; node two is killed", flush=True)
        add.lose(nodes["two"])  # type: ignore[attr-defined]
        wait(lambda: states(store, sweep_id)["interrupted"] > 0)
        print(f"{time.monotonic() - begun:6.1f} s  {dict(states(store, sweep_id))}; node three joins", flush=True)
        add("three")
        through(store, sweep_id, lab, begun)
        lab.close()
        found = learnt(store, sweep_id)
        resumed = [run.id for run in sweep(store, sweep_id).runs
                   if any(event.kind == "resumed" for event in store.events_after(run.id))]
        print(f"resumed on another node: {', '.join(resumed)}; homes with runs: "
              + ", ".join(f"{home.name} {sum((home / run.id).exists() for run in sweep(store, sweep_id).runs)}"
                          for home in sorted(homes.iterdir())), flush=True)
        store.dispose()
    return found


def on_this_machine(home: Path, wanted: Sequence[RunSpec]) -> list[list[dict[str, float]]]:
    """The sweep as a lab alone trains it: forked workers, SQLite, a folder."""
    os.environ["RL_LAB_HOME"] = str(home)
    for name in ("RL_LAB_STORE", "RL_LAB_ARTIFACTS", "RL_LAB_EXECUTOR", "RL_LAB_MAX_RUNS"):
        os.environ.pop(name, None)
    store = Store()
    lab, begun = Launcher(store), time.monotonic()
    sweep_id = queue(store, wanted)
    lab.wake()
    print("the same runs in a lab on this machine alone", flush=True)
    through(store, sweep_id, lab, begun)
    lab.close()
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
