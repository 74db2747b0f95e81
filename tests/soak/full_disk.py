"""A disk that fills in mid-run: the run ends in words, keeps its rows, and continues once there is room.

The lab of a trial is on a disk of its own, of 16 MB, which is filled but for a few bytes while the run trains. Where
nobody may mount one, the files of the worker may suddenly grow no more.
"""

import os
import random
import resource
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

from labcore.runs.store.dialects import sqlite_url
from labcore.runs.store.store import Store
from tests.soak.hosts import Wish, arguments
from tests.soak.inputs import answer, processes
from tests.soak.report import Report
from tests.workers.tools import learnt, until

SIZE = 16 * 2**20
LEFT = (0, 0, 4096, 20_000, 100_000, 300_000)  # bytes
SECONDS = 120
WISHES: tuple[Wish, ...] = (
    {"kind": "maze", "algorithm_key": "q_learning", "task_key": "corridors", "steps": 150, "knobs": {"pace": 60.0}},
    {"kind": "maze", "algorithm_key": "sarsa_lambda", "task_key": "slippery", "steps": 150, "knobs": {"pace": 60.0}},
    {"kind": "cartpole", "algorithm_key": "dqn", "task_key": "CartPole-v1", "steps": 40, "knobs": {}})


class FullDisk:
    """Trials on small disks in the folder `place`."""

    def __init__(self, report: Report, place: Path):
        self._report, self._place = report, place
        for folder in ("here", "user", "tmp"):
            (place / folder).mkdir(parents=True)

    def trial(self, chance: random.Random) -> None:
        """Fill the disk under a run. Raises AssertionError where a row is lost, or the run does not continue."""
        wish = {**chance.choice(WISHES), "seed": chance.randrange(10**9)}
        self.one(wish, chance.uniform(0.02, 0.9), chance.choice(LEFT))

    def one(self, wish: Wish, share: float, left: int) -> None:
        """Start the run, leave `left` bytes on the disk once that share of its steps is done, free it, resume."""
        with small_disk(self._place / "disk") as home:
            process, filled = self._begun(arguments(wish), home), None
            until(lambda: (home / "lab.db").exists(), seconds=SECONDS)
            store = Store(sqlite_url(home / "lab.db"))
            try:
                run_id = until(lambda: next((row.id for row in store.runs()), None), seconds=SECONDS)
                until(lambda: store.run(run_id).step >= share * wish["steps"] or not process.is_alive(),
                      seconds=SECONDS)
                filled = fill(home, process, left)
                process.join(SECONDS)
                assert not process.is_alive(), "the run goes on and on, on a full disk"
                filled.unlink(missing_ok=True)
                self._resumed(store, run_id, process.exitcode)
                twin = self._twin(store, wish, home, run_id)
                assert learnt(store, run_id) == learnt(store, twin), f"{run_id} differs from its twin"
            finally:
                store.dispose()
                process.kill()

    def _begun(self, words: Sequence[str], home: Path) -> BaseProcess:
        process = processes.Process(target=answer, args=(words, home, self._place, self._place / "said"))
        process.start()
        return process

    def _resumed(self, store: Store, run_id: str, code: int | None) -> None:
        """What the run said is right, its rows are whole, and it goes to its end."""
        said = (self._place / "said").read_text(errors="replace")
        assert "Traceback" not in said, said[-1000:]
        store.reconcile()
        row, before = store.run(run_id), store.steps_after(run_id)
        assert [each.step for each in before] == list(range(1, len(before) + 1)), "the rows have gaps"
        if row.state == "finished":
            self._report.count("Disks filled in mid-run", "there was room enough for the rest of the run")
            return
        assert code in (1, 2) and row.state in ("failed", "interrupted"), f"{row.state} with status {code}: {said}"
        told = f"{row.message} {said}"
        assert any(word in told for word in ("is full", "File too large", "could not be")), f"not said: {told}"
        process = self._begun(["resume", run_id, "--json"], store_home(store))
        process.join(SECONDS)
        assert store.run(run_id).state == "finished", f"resumed, it is {store.run(run_id)}"
        assert store.steps_after(run_id)[:len(before)] == before, "a row changed after the resume"
        self._report.count("Disks filled in mid-run", f"ended as {row.state}, resumed bit for bit as its twin")

    def _twin(self, store: Store, wish: Wish, home: Path, other: str) -> str:
        self._begun(arguments(wish), home).join(SECONDS)
        return next(row.id for row in store.runs("finished") if row.id != other)


def store_home(store: Store) -> Path:
    """The folder of a lab by its store."""
    return Path(store.url.removeprefix("sqlite:///")).parent


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of SIZE at `folder`; a folder like others where nobody may mount one."""
    folder.mkdir()
    mounted = os.name == "posix" and os.getuid() == 0 and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder], capture_output=True).returncode
    try:
        yield folder
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", folder], check=True)
        shutil.rmtree(folder)


def fill(home: Path, process: BaseProcess, left: int) -> Path:
    """Leave `left` bytes on the disk at `home`, or let no file of the process grow further by more; what fills it."""
    ballast = home.parent / "no-ballast"
    if os.path.ismount(home):
        ballast = home / "ballast"
        with ballast.open("wb", buffering=0) as file:
            with suppress(OSError):
                while file.write(bytes(4096)):
                    pass
            file.truncate(max(0, file.tell() - left))
    elif process.is_alive() and hasattr(resource, "prlimit"):
        largest = max(path.stat().st_size for path in home.glob("lab.db*"))
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (largest + left, resource.RLIM_INFINITY))
    return ballast
