"""Processes and threads that share a store: they write, claim and fork at once, and nothing is lost or doubled."""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

import pytest

from labcore.runs.store.store import Store
from tests.runs.fake import grpo
from tests.runs.store.test_store import record


@pytest.fixture
def store(each_database):
    return Store()


def _write(run_id: str, count: int) -> None:
    store = Store()
    for step in range(1, count + 1):
        store.append(run_id, record(step), float(step))


def test_two_processes_write_at_once_and_nothing_is_lost(store):
    ids = [store.create(grpo()) for _ in range(2)]
    context = multiprocessing.get_context("fork")
    store.dispose()
    writers = [context.Process(target=_write, args=(run_id, 200)) for run_id in ids]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert [len(store.steps_after(run_id)) for run_id in ids] == [200, 200]


def test_a_forked_child_uses_connections_of_its_own(store):
    run_id = store.create(grpo())
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            store.append(run_id, record(1), 1.0)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    store.append(run_id, record(2), 2.0)
    assert [s.step for s in store.steps_after(run_id)] == [1, 2]


def _claim(ids: list[str], barrier: Barrier, results: Queue) -> None:
    store = Store()
    barrier.wait(30)
    results.put([run_id for run_id in ids if store.claim(run_id)])


def test_of_two_processes_that_claim_a_run_at_once_one_gets_it(store):
    ids = [store.create(grpo()) for _ in range(20)]
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(2), context.Queue()
    store.dispose()
    claimers = [context.Process(target=_claim, args=(ids, barrier, results)) for _ in range(2)]
    for claimer in claimers:
        claimer.start()
    taken = [results.get(timeout=30) for _ in claimers]
    for claimer in claimers:
        claimer.join(30)
    assert sorted(taken[0] + taken[1]) == sorted(ids)
    assert {store.run(run_id).pid for run_id in ids} <= {claimer.pid for claimer in claimers}


def test_a_step_that_two_threads_commit_at_once_is_there_once(store):
    run_id = store.create(grpo(), mine=True)
    with ThreadPoolExecutor(4) as threads:
        for step in range(1, 11):
            new = list(threads.map(lambda value, step=step: store.append(run_id, record(step, value), 1.0), range(4)))
            assert sorted(new) == [False, False, False, True]
    assert [each.step for each in store.steps_after(run_id)] == list(range(1, 11))
