"""The supervisor's bookkeeping, without processes."""

from __future__ import annotations

import os
import platform

from labcore.runs.store import Store
from labcore.runs.supervisor import Supervisor
from tests.runs import fake


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


def test_a_worker_that_dies_before_it_takes_its_run_is_not_started_again_and_again():
    store = Store()
    run_id = store.create(fake.grpo(10))
    supervisor = Still(store)
    supervisor.workers[os.getpid()] = run_id
    supervisor.code = 1
    supervisor.reap()
    assert store.run(run_id).state == "failed" and "did not start" in store.run(run_id).message
