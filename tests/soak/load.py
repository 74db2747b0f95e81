"""The store under load: many writers, one of them killed, and a reader that follows them."""

import random
import signal
import time

from labcore.runs.spec.run_spec import make
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Step, Store
from tests.soak.inputs import processes
from tests.soak.report import Report

WRITERS, STEPS, SWEEP = 6, 150, "sweep-load-"


def spec(seed: int):
    return make(kind="maze", algorithm_key="q_learning", task_key="corridors", steps=STEPS, seed=seed, knobs={})


def write(seed: int, sweep: str, url: str) -> None:
    """A run of STEPS rows, with an event at every tenth."""
    store = Store(url)
    run_id = store.create(spec(seed), mine=True, sweep=sweep)
    store.set_state(run_id, "running")
    for step in range(1, STEPS + 1):
        assert store.append(run_id, Record(step, 0, {"episode_return": float(seed + step)}, env_steps=step), step / 10)
        if step % 10 == 0:
            store.log(run_id, "checkpoint", {"seconds": 0.0}, step)
    store.set_state(run_id, "finished", "all steps done")


class Load:
    """Trials on one store."""

    def __init__(self, report: Report, store: Store):
        self._report, self._store = report, store

    def trial(self, chance: random.Random) -> None:
        """Write and read at once. Raises AssertionError where a row is lost, doubled, changed or out of order."""
        sweep, read = f"{SWEEP}{chance.randrange(10**9)}", {}
        writers = [processes.Process(target=write, args=(seed, sweep, self._store.url)) for seed in range(WRITERS)]
        for writer in writers:
            writer.start()
        victim, after = writers[0], time.monotonic() + chance.uniform(0.5, 3)
        while any(writer.is_alive() for writer in writers):
            self._read(sweep, read)
            if time.monotonic() > after and victim.is_alive():
                victim.kill()
                victim.join()
                self._report.count("Kills", "writer of the store")
        self._read(sweep, read)
        self._store.reconcile()
        self._check(sweep, read, [writer.exitcode for writer in writers])

    def _read(self, sweep: str, read: dict[str, list[Step]]) -> None:
        for row in self._store.sweep_runs(sweep):
            rows = read.setdefault(row.id, [])
            rows += self._store.steps_after(row.id, rows[-1].step if rows else 0)

    def _check(self, sweep: str, read: dict[str, list[Step]], codes: list[int | None]) -> None:
        assert codes[0] in (0, -signal.SIGKILL) and set(codes[1:]) == {0}, f"writers ended with {codes}"
        for row in self._store.sweep_runs(sweep):
            there = self._store.steps_after(row.id)
            assert read[row.id] == there, f"the reader of {row.id} saw other rows"
            assert [each.step for each in there] == list(range(1, len(there) + 1)), f"{row.id} has gaps"
            assert row.state in ("finished", "interrupted"), f"{row.id} is {row.state}"
            assert row.state != "finished" or len(there) == STEPS, f"{row.id} lost rows"
            assert all(each.metrics == {"episode_return": float(row.spec.seed + each.step)} for each in there)
            self._report.count("Rows written by several writers at once, and read meanwhile", row.state, len(there))
