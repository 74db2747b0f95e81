"""The supervisor's bookkeeping, without processes."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from labcore.store.store import Store
from labcore.workers.supervisor import CAN_FORK, Supervisor
from tests.runs import fake

ROOT = Path(__file__).resolve().parents[2]


class Still(Supervisor):
    """A supervisor whose workers are already dead, by `code`."""

    code = 0

    def wait(self):
        return False

    def start(self, run_id):
        raise AssertionError("nothing is to be started here")

    start_job = start

    def ended(self, pid):
        return self.code

    def cut_lifeline(self):
        """There is none."""


def test_a_run_resumed_at_the_moment_its_dead_worker_is_noticed_is_not_given_up(monkeypatch):
    """Between noting the interruption and looking for a worker that never started, the user may press Go on."""
    store = Store()
    run_id = store.create(fake.grpo(10))
    assert store.claim(run_id, os.getpid(), platform.node())
    supervisor = Still(store)
    supervisor.workers[os.getpid()] = run_id
    supervisor.code = -9
    lost = store.lost

    def lost_then_resumed(pid, why):
        ids = lost(pid, why)
        store.requeue(run_id)
        return ids

    monkeypatch.setattr(store, "lost", lost_then_resumed)
    supervisor.reap()
    assert store.run(run_id).state == "queued"


def test_a_run_that_others_resumed_before_its_dead_worker_is_noticed_is_not_given_up():
    """The command line may see a dead worker first, and queue its run again."""
    store = Store()
    run_id = store.create(fake.grpo(10))
    supervisor = Still(store)
    supervisor.workers[os.getpid()], supervisor.before[os.getpid()] = run_id, None
    assert store.claim(run_id, os.getpid(), platform.node()) and store.lost(os.getpid(), "it was killed") == [run_id]
    store.requeue(run_id)
    supervisor.code = -9
    supervisor.reap()
    assert store.run(run_id).state == "queued"


def test_a_worker_that_dies_before_it_takes_its_run_is_not_started_again_and_again():
    store = Store()
    run_id = store.create(fake.grpo(10))
    supervisor = Still(store)
    supervisor.workers[os.getpid()] = run_id
    supervisor.code = 1
    supervisor.reap()
    assert store.run(run_id).state == "failed" and "did not start" in store.run(run_id).message


class Refused(Still):
    """A supervisor that gets no process for what is asked, and is asked `rounds` times."""

    rounds = 2

    def start(self, run_id):
        raise OSError(11, "Resource temporarily unavailable")

    start_job = start

    def wait(self):
        self.rounds -= 1
        return self.rounds > 0


def test_where_no_process_can_be_started_the_run_says_so_and_the_supervisor_goes_on():
    store = Store()
    run_id = store.create(fake.grpo(10))
    supervisor = Refused(store)
    supervisor.serve()
    row = store.run(run_id)
    assert supervisor.rounds == 0 and row.state == "failed"
    assert row.message.startswith("No process could be started for this (Resource temporarily unavailable)")


def test_a_fault_of_the_system_does_not_end_the_supervisor(monkeypatch, capsys):
    supervisor = Refused(Store())
    monkeypatch.setattr(supervisor, "reap", lambda: os.stat("/nowhere/at/all"))
    supervisor.serve()
    assert supervisor.rounds == 0 and "/nowhere/at/all" in capsys.readouterr().err


SIGNALLED_AT_ONCE = """
import os, signal, time
from pathlib import Path
from labcore.store.store import Store
from labcore.workers.supervisor import Forking

fork = os.fork
def slow_fork():  # the child is signalled before it does anything
    pid = fork()
    if pid:
        os.kill(pid, signal.SIGTERM)
    else:
        time.sleep(0.2)
    return pid
os.fork = slow_fork
supervisor = Forking(Store())
pid = supervisor._fork(Path("log").absolute(), lambda: None)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
"""


@pytest.mark.skipif(not CAN_FORK, reason="forks")
def test_a_worker_that_is_stopped_as_soon_as_it_is_forked_is_stopped(tmp_path):
    done = subprocess.run([sys.executable, "-c", SIGNALLED_AT_ONCE], cwd=tmp_path, stdin=subprocess.PIPE, text=True,
                          capture_output=True, timeout=60, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.stdout.split() == ["-15", "0"], done.stderr
