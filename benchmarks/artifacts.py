"""How long a checkpoint takes to the object store and back, and what publishing costs a training beside it.

`python -m benchmarks.artifacts --url file:///FOLDER` or `--url s3://BUCKET/FOLDER`; with `--moto` a server of moto on
this machine has the bucket (pip install -r requirements-cluster-dev.txt). Everything is made in a temporary home, and
deleted in the store at the end. Medians; a table is printed.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files import sizes, storage
from labcore.runs.files.artifacts import changes, deletion, fetch, object_store, publish
from labcore.runs.files.paths import home, run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.workers.worker import drive

ROUNDS = 3


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--moto", action="store_true", help="serve the bucket here")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rl-lab-artifacts-") as folder, bucket(given.url, given.moto):
        os.environ["RL_LAB_HOME"] = folder
        os.environ.pop("RL_LAB_STORE", None)
        os.environ.pop(storage.VARIABLE, None)
        trained(5)  # torch is loaded and warm
        seconds: dict[str, list[float]] = {"": [], given.url: []}
        runs = []
        for url in (*seconds,) * ROUNDS:
            os.environ[storage.VARIABLE] = url
            object_store.check()
            run, took = trained(given.steps)
            seconds[url].append(took)
            runs += [run] if url else []
        first = runs[0]
        size = sizes.size(checkpoint.local(run_folder(first))[-1][1])
        print(f"| checkpoint of {size / 1e6:.1f} MB in {files(first)} files | ms, median of {given.times} |")
        print("|---|---:|")
        for name, milliseconds in checkpoint_times(first, given.times):
            print(f"| {name} | {milliseconds:.1f} |")
        alone, beside = ("  ".join(f"{each:.2f}" for each in sorted(found)) for found in seconds.values())
        print(f"\n{given.steps} steps took, s: {alone} without and {beside} with the object store")
        for run in runs:
            changes.forget(run)
        store = object_store.opened()
        assert store
        deletion.clear(store)


def trained(steps: int) -> tuple[str, float]:
    """A run of the default model, and the seconds that its steps and checkpoints took."""
    store = Store()
    run = store.create(make(algorithm_key="grpo", task_key="sort", steps=steps, knobs={"sft_steps": 0}), mine=True)
    assert drive(store, run) == "finished", store.run(run).message
    return run, store.run(run).seconds


def files(run: str) -> int:
    """How many files the newest checkpoint has."""
    return sum(path.is_file() for path in checkpoint.local(run_folder(run))[-1][1].rglob("*"))


def checkpoint_times(run: str, times: int) -> Iterator[tuple[str, float]]:
    """What is done with the newest checkpoint of a run, and the milliseconds."""
    store = object_store.opened()
    assert store
    path = checkpoint.local(run_folder(run))[-1][1]
    thing = path.relative_to(home()).as_posix()

    def again() -> None:
        store.delete_folder(thing)

    yield "publish", median(times, lambda: publish.publish_thing(store, thing), again)
    yield "look whether it is there", median(times, lambda: fetch.names(run, "checkpoints"), fetch.forget_answers)
    path.rename(Path(tempfile.mkdtemp(dir=home())) / "kept")
    yield "fetch and check", median(times, lambda: fetch.bring(path), lambda: shutil.rmtree(path, ignore_errors=True))


def median(times: int, do: Callable[[], object], before: Callable[[], object]) -> float:
    """Milliseconds of `do`, each time after `before`."""
    found = []
    for _ in range(times):
        before()
        begun = time.perf_counter()
        do()
        found.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(found)


@contextmanager
def bucket(url: str, moto: bool) -> Iterator[None]:
    """A server of moto with the bucket of the URL, where it is asked for."""
    if not moto:
        yield
        return
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ |= {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
                   "AWS_DEFAULT_REGION": "us-east-1"}
    boto3.client("s3").create_bucket(Bucket=url.removeprefix("s3://").partition("/")[0])
    try:
        yield
    finally:
        server.stop()


if __name__ == "__main__":
    main()
