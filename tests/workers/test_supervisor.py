"""The supervisor's bookkeeping, without processes."""

import gc
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from labcore.errors import LabError
from labcore.runs.files.paths import log_file
from labcore.runs.spec.run_spec import make
from labcore.runs.store import process
from labcore.runs.store.store import Store
from labcore.workers import supervisor
from labcore.workers.children import CAN_FORK
from labcore.workers.executors.executor import Ended
from labcore.workers.supervisor import AGAIN_SECONDS, LOOK_SECONDS, Supervisor
from tests.queries import counted
from tests.runs import fake
from tests.words import says

ROOT = Path(__file__).resolve().parents[2]


class Still:
    """Children and executor of a supervisor whose workers are already dead, by `code`."""

    limit, code = 2, 0

    def __init__(self):
        self.dead = []  # run ids
        self.waits = []  # seconds

    def wait(self, watched, seconds):
        self.waits.append(seconds)

    def start(self, run_id):
        raise AssertionError("nothing is to be started here")

    start_job = start

    def ended(self):
        while self.dead:
            yield Ended.with_code(self.dead.pop(), (os.getpid(), platform.node()), self.code)

    def waiting(self):
        return {}

    def watched(self):
        return []

    def cut(self):
        """There is nothing to cut."""

    cut_lifeline = kill = cut


def supervisor_of(store, still, run_id=None) -> Supervisor:
    """A supervisor that has started a worker for that run, which is dead by now."""
    supervisor = Supervisor(store, still, still)
    if run_id:
        supervisor.started[run_id] = None
        still.dead.append(run_id)
    return supervisor


def test_a_run_resumed_at_the_moment_its_dead_worker_is_noticed_is_not_given_up(monkeypatch, store):
    """Between noting the interruption and looking for a worker that never started, the user may press Go on."""
    run_id = store.create(fake.grpo(10))
    assert store.claim(run_id, os.getpid(), platform.node())
    still = Still()
    supervisor, still.code = supervisor_of(store, still, run_id), -9
    lost = store.lost

    def lost_then_resumed(pid, host, why):
        ids = lost(pid, host, why)
        store.requeue(run_id)
        return ids

    monkeypatch.setattr(store, "lost", lost_then_resumed)
    supervisor.reap()
    assert store.run(run_id).state == "queued"


def test_a_run_that_others_resumed_before_its_dead_worker_is_noticed_is_not_given_up(store):
    """The command line may see a dead worker first, and queue its run again."""
    run_id = store.create(fake.grpo(10))
    still = Still()
    supervisor, still.code = supervisor_of(store, still, run_id), -9
    assert store.claim(run_id, os.getpid(), platform.node())
    assert store.lost(os.getpid(), platform.node(), "it was killed") == [run_id]
    store.requeue(run_id)
    supervisor.reap()
    assert store.run(run_id).state == "queued"


def test_a_worker_that_dies_before_it_takes_its_run_is_not_started_again_and_again(store):
    run_id = store.create(fake.grpo(10))
    still = Still()
    supervisor, still.code = supervisor_of(store, still, run_id), 1
    supervisor.reap()
    row = store.run(run_id)
    assert row.state == "failed"
    assert says(row.message, "did not start", "code 1", str(log_file(run_id)), platform.node()), (
        "whoever reads it may be at another machine of the same store")


class Full(Still):
    """All places are taken."""

    limit = 0


def test_a_look_at_a_thousand_waiting_runs_asks_the_store_as_often_as_at_one(store):
    supervisor = supervisor_of(store, Full())
    often = []
    for many in (1, 999):
        store.create_all([fake.grpo(10)] * many)
        supervisor.fill()
        with counted() as asked:
            supervisor.fill()
        often.append(len(asked))
    assert often[0] == often[1] < 10
    assert all(says(run.message, "waiting", "RL_LAB_MAX_RUNS=0") and run.crowded_out for run in store.runs())


class Taking(Still):
    """Two places, and workers that go on."""

    def start(self, run_id):
        """It is started."""


def test_a_short_run_of_ones_own_does_not_wait_for_a_sweep_or_a_lesson(store):
    maze = make(kind="maze", algorithm_key="q_learning", task_key="cliff")
    swept = store.create_all([fake.grpo(10), maze, maze, maze], sweep="sweep-1")
    supervisor = supervisor_of(store, Taking())
    supervisor.fill()
    assert list(supervisor.started) == swept[:2]
    single, first, second = store.create(fake.grpo(10)), store.create(maze), store.create(maze)
    for _ in range(2):
        supervisor.fill()
        assert list(supervisor.started) == [*swept[:2], first], "one at a time, and none of a sweep"
    waiting = [run_id for run_id in (*swept, single, second) if store.run(run_id).crowded_out]
    assert waiting == [*swept[2:], single, second] and not store.run(first).message
    store.give_up(first, "it ended", supervisor.started.pop(first))
    supervisor.fill()
    assert list(supervisor.started) == [*swept[:2], second]
    for run_id in (swept[0], second):
        store.give_up(run_id, "it ended", supervisor.started.pop(run_id))
    supervisor.fill()
    assert list(supervisor.started) == [swept[1], swept[2]], "a place that is free is the queue's"


def test_beside_ones_own_runs_a_short_one_waits_for_a_place(store):
    for _ in range(2):
        store.create(fake.grpo(10))
    supervisor = supervisor_of(store, Taking())
    maze = store.create(make(kind="maze", algorithm_key="q_learning", task_key="cliff"))
    supervisor.fill()
    assert maze not in supervisor.started and store.run(maze).crowded_out


class Refused(Still):
    """No process is to be had for what is asked, and that `rounds` times."""

    rounds = 2

    def start(self, run_id):
        raise OSError(11, "Resource temporarily unavailable")

    start_job = start

    def wait(self, watched, seconds):
        super().wait(watched, seconds)
        self.rounds -= 1
        return [] if self.rounds else None


def test_where_no_process_can_be_started_the_queue_waits_and_is_tried_again_soon(capsys, store):
    store.create_all([fake.grpo(10)] * 3)
    refused = Refused()
    supervisor_of(store, refused).serve()
    assert refused.rounds == 0 and refused.waits == [AGAIN_SECONDS] * 2
    assert {row.state for row in store.runs()} == {"queued"}
    assert all(says(row.message, "Resource temporarily unavailable", "again every 5 s", "other runs or programs end")
               for row in store.runs())
    assert "Resource temporarily unavailable" in capsys.readouterr().err

    refused.start = refused.dead.append
    supervisor = supervisor_of(store, refused)
    supervisor.fill()
    assert len(supervisor.started) == len(refused.dead) == refused.limit


def test_a_folder_that_cannot_be_made_is_no_fault_of_a_run_but_its_own_sentence_is(monkeypatch, store):
    first, second = store.create_all([fake.grpo(10)] * 2)
    still = Still()

    def start(run_id):
        if run_id == first:
            raise LabError("This run cannot be.")
        raise LabError("The folder cannot be made.") from OSError(28, "No space left on device", "/lab")

    still.start = start
    with pytest.raises(OSError, match="No space left"):
        supervisor_of(store, still).fill()
    assert (store.run(first).state, store.run(first).message) == ("failed", "This run cannot be.")
    assert store.run(second).state == "queued"
    assert "none could be started (No space left on device: /lab)" in store.run(second).message


def test_a_fault_of_the_system_does_not_end_the_supervisor(monkeypatch, capsys):
    refused = Refused()
    supervisor = supervisor_of(Store(), refused)
    monkeypatch.setattr(supervisor, "reap", lambda: os.stat("/nowhere/at/all"))
    monkeypatch.setattr(supervisor, "close", lambda: None)
    supervisor.serve()
    assert refused.rounds == 0 and refused.waits == [AGAIN_SECONDS] * 2
    assert "/nowhere/at/all" in capsys.readouterr().err


def test_a_supervisor_with_nothing_to_do_looks_for_lost_runs_now_and_then(monkeypatch):
    """Those of a machine that is gone: nobody else would notice while no lab starts."""
    store, now = Store(), 1000.0
    run_id = store.create(fake.grpo(10))
    assert store.claim(run_id, 77, "far")
    monkeypatch.setattr(time, "monotonic", lambda: now)
    still = Still()
    supervisor = supervisor_of(store, still)
    supervisor.look()
    assert store.run(run_id).state == "starting"
    monkeypatch.setattr(process, "STALE_SECONDS", 0)
    now += LOOK_SECONDS - 1
    supervisor.look()
    assert store.run(run_id).state == "starting"
    now += 1
    supervisor.serve()
    assert store.run(run_id).state == "interrupted" and still.waits == [LOOK_SECONDS]


def test_a_store_that_is_away_does_not_keep_the_supervisor_from_ending(monkeypatch, capsys, store):
    run_id = store.create(fake.grpo(10))
    still = Still()
    supervisor = supervisor_of(store, still, run_id)
    monkeypatch.setattr(store, "lost", lambda *_: (_ for _ in ()).throw(LabError("It is away.")))
    supervisor.close()
    assert not supervisor.busy and "It is away." in capsys.readouterr().err


SIGNALLED_AT_ONCE = """
import os, signal, time
from pathlib import Path
from labcore.runs.store.store import Store
from labcore.workers.children import Forking

fork = os.fork
def slow_fork():  # the child is signalled before it does anything
    pid = fork()
    if pid:
        os.kill(pid, signal.SIGTERM)
    else:
        time.sleep(0.2)
    return pid
os.fork = slow_fork
pid = Forking(Store())._fork(Path("log").absolute(), lambda: None)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
"""


@pytest.mark.skipif(not CAN_FORK, reason="forks")
def test_a_worker_that_is_stopped_as_soon_as_it_is_forked_is_stopped(tmp_path):
    done = subprocess.run([sys.executable, "-c", SIGNALLED_AT_ONCE], cwd=tmp_path, stdin=subprocess.PIPE, text=True,
                          capture_output=True, timeout=60, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.stdout.split() == ["-15", "0"], done.stderr


def test_another_transformers_may_lack_the_table_that_is_made_beforehand(monkeypatch):
    def store():
        raise LabError("as far as this test goes")
    monkeypatch.setitem(sys.modules, "transformers.conversion_mapping", ModuleType("conversion_mapping"))
    monkeypatch.setattr(supervisor, "Store", store)
    try:
        with pytest.raises(LabError, match="as far as"):
            supervisor.main(preload=(), fork=False)
    finally:
        gc.enable()
