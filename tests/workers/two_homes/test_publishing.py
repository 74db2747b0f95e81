"""What a worker and a lab publish, and when: also where the store goes away, hangs or comes late."""

import threading

import psutil
import pytest

from labcore.errors import LabError
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.artifacts import changes, fetch, object_store, publish, publishers
from labcore.runs.files.artifacts.publishers import OfLab
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.workers import alerts
from labcore.workers.launcher import Launcher
from tests.runs import fake
from tests.workers.tools import LIGHT, Background, run, until
from tests.workers.two_homes.tools import STEPS, interrupt, objects, published, whole


def test_all_is_published_before_the_end_is_said(machines, store, monkeypatch):
    at_the_end = []
    real = Store.set_state

    def set_state(self, run_id, state_, *given, **named):
        if state_ == "finished":
            at_the_end.extend([*(fetch.names(run_id, kind) for kind in ("checkpoints", "samples", "run")),
                               changes.is_published(run_id, object_store.opened().begin())])
        real(self, run_id, state_, *given, **named)

    monkeypatch.setattr(Store, "set_state", set_state)
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    checkpoints, samples, files, complete = at_the_end
    assert checkpoints == ["step-000000", "step-000050", "step-000060"] and complete
    assert samples == [f"step-{step:06d}.json" for step in range(5, 61, 5)]
    assert set(files) == {"spec.json", "versions.json"}


def test_a_store_that_goes_away_in_mid_run_and_returns(machines, store):
    undisturbed = whole(store, fake.grpo(STEPS))
    run_id = store.create(fake.grpo(STEPS), mine=True)

    def plug():
        until(lambda: published(store, run_id))
        machines.plug()

    assert run(store, run_id, {20: machines.unplug, 55: plug}) == "finished"
    assert fake.trained(store, run_id) == undisturbed
    assert published(store, run_id) == ["unpublished", "published"]
    machines.at("b")
    assert [step for step, _ in checkpoint.steps(run_folder(run_id))] == [0, 50, 60]


def test_a_store_that_stays_away_is_said_at_the_end_and_nothing_is_lost(machines, store):
    undisturbed = whole(store, fake.grpo(STEPS))
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {20: machines.unplug}) == "finished"
    assert published(store, run_id) == ["unpublished"] and not machines.shared.exists()
    said = next(event for event in store.events_after(run_id) if event.kind == "unpublished").payload["text"]
    assert "is not there" in said and str(machines.root / "home-a") in said
    assert fake.trained(store, run_id) == undisturbed
    machines.plug()
    store_id = object_store.opened().begin()
    assert not changes.is_published(run_id, store_id)
    assert publish.unpublished(object_store.opened()) == [run_id]


def test_a_store_that_was_away_to_the_end_has_all_after_the_next_start_of_the_lab(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {20: machines.unplug}) == "finished"
    machines.plug()
    with OfLab(store) as lab:
        assert lab.flush()
    assert published(store, run_id) == ["unpublished", "published"]
    machines.at("b")
    assert [step for step, _ in checkpoint.steps(run_folder(run_id))] == [0, 50, 60]
    assert len(fetch.names(run_id, "samples")) == STEPS // 5


def test_a_home_that_comes_late_takes_nothing_from_the_store(machines, store):
    """A was cut off, B went on: what A publishes at its next start is older and less."""
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {32: machines.unplug, 57: interrupt}) == "interrupted"
    machines.plug()
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "finished"
    before = {name: path.read_bytes() for name, path in objects(machines.shared).items()}
    machines.at("a")
    with OfLab(store) as lab:
        assert lab.flush()
    after = {name: path.read_bytes() for name, path in objects(machines.shared).items()}
    assert {name: after.get(name) for name in before} == before


def test_a_run_under_way_is_never_marked_as_published(machines, store):
    """Else what it wrote just before it was killed would never be sent."""
    run_id, seen = store.create(fake.grpo(STEPS), mine=True), []

    def look():
        until(lambda: fetch.names(run_id, "checkpoints"))
        seen.append(changes.is_published(run_id, object_store.opened().begin()))

    assert run(store, run_id, {10: look, 52: look}) == "finished"
    assert seen == [False, False] and changes.is_published(run_id, object_store.opened().begin())


@pytest.mark.parametrize("held", [False, True], ids=["its process ends", "a service holds its process"])
def test_a_store_that_hangs_does_not_hold_a_run_that_is_asked_to_stop(machines, store, monkeypatch, held):
    """Its own process sends its files later or, if it has ended, the next lab does; the sender reports it."""
    run_id, free = store.create(fake.grpo(STEPS)), threading.Event()
    real = object_store.ObjectStore._put

    def hangs(self, *given):
        free.wait()
        if not held:  # a process that has ended sends nothing more
            raise LabError("The process is gone.")
        return real(self, *given)

    monkeypatch.setattr(object_store.ObjectStore, "_put", hangs)
    monkeypatch.setattr(publishers, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(publish, "REST_SECONDS", 0.01)
    object_store.opened()
    (machines.shared / object_store.MARKER).write_text('{"format": 1, "id": "a"}')
    if held:
        monkeypatch.setattr(alerts, "wait", lambda: until(lambda: changes.is_published(run_id, "a")))
    worker = Background(store, run_id)
    until(lambda: store.run(run_id).message == "publishing its files")
    assert store.run(run_id).state == "running" and store.run(run_id).step == STEPS
    store.ask(run_id, "stop")
    until(lambda: store.run(run_id).state == "finished")
    assert published(store, run_id) == ["unpublished"] and not store.asked(run_id)
    free.set()
    worker.join()
    machines.at("a")  # waits for the end of the publisher
    if not held:
        assert published(store, run_id) == ["unpublished"]
        monkeypatch.setattr(object_store.ObjectStore, "_put", real)
        with OfLab(store) as lab:
            assert lab.flush()
    assert published(store, run_id) == ["unpublished", "published"] and changes.is_published(run_id, "a")


def test_a_fault_of_the_store_of_runs_while_files_are_sent_does_not_keep_the_end_from_being_said(
        machines, store, monkeypatch):
    """A glitch: what looks after the run meanwhile fails, and the last state is written all the same."""
    run_id, real, failed = store.create(fake.grpo(STEPS), mine=True), object_store.ObjectStore._put, []
    said = Store.set_message

    def faulty(self, of, message):
        if message != "publishing its files":
            return said(self, of, message)
        failed.append(1)
        raise LabError("The store of runs has a fault.")

    def slow(self, *given):
        until(lambda: len(failed) > 1 or store.run(run_id).step < STEPS)  # the end waits, and looks again
        return real(self, *given)

    monkeypatch.setattr(publishers, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(Store, "set_message", faulty)
    monkeypatch.setattr(object_store.ObjectStore, "_put", slow)
    assert run(store, run_id) == "finished"
    assert len(failed) > 1 and store.run(run_id).state == "finished" and published(store, run_id) == []


@pytest.mark.parametrize("fault", [OSError(5, "Input/output error"), LabError("The bound is no number.")])
def test_a_fault_of_the_home_at_the_end_does_not_keep_it_from_being_said(machines, store, monkeypatch, fault):
    monkeypatch.setattr(publishers.cache, "trim", lambda _: (_ for _ in ()).throw(fault))
    run_id = store.create(fake.grpo(STEPS), mine=True)
    monkeypatch.setattr(publishers, "changed", lambda _: (_ for _ in ()).throw(fault))
    assert run(store, run_id) == "finished" and store.run(run_id).state == "finished"


def test_a_lab_whose_store_cannot_be_used_does_not_open(machines, store, monkeypatch):
    monkeypatch.setenv("RL_LAB_ARTIFACTS", f"file://{machines.root / 'nowhere'}")
    with pytest.raises(LabError, match="There is no folder"):
        Launcher(store)


def test_the_process_that_forks_has_no_thread_of_the_store(machines, store):
    lab = Launcher(store, LIGHT)
    try:
        run_id = lab.start(make(kind="maze", algorithm_key="sarsa_lambda", task_key="slippery", steps=40,
                                knobs={"pace": 0}))
        until(lambda: store.run(run_id).state == "finished")
        assert psutil.Process(lab._process.pid).num_threads() == 1
        machines.at("b")
        assert checkpoint.newest_step(run_folder(run_id)) == 40
    finally:
        machines.at("a")
        lab.close()
