"""Two machines with a home each, one object store between them, and one store of runs."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from labcore.files import checkpoints as checkpoint
from labcore.files.artifacts import fetch, manifest, object_store, publisher, state
from labcore.files.paths import run_folder
from labcore.store.store import Store
from tests.runs import fake
from tests.workers.tools import kinds, run, until

STEPS = 60  # checkpoints at 0, 50 and the end


@dataclass(frozen=True)
class Machines:
    """The shared folder, and the homes by their names. One home is in use; the others cannot be seen."""

    root: Path
    patch: pytest.MonkeyPatch

    @property
    def shared(self) -> Path:
        return self.root / "shared"

    def at(self, name: str) -> Path:
        for home in self.root.glob("home-*"):
            home.rename(home.with_name(home.name.replace("home-", "hidden-")))
        hidden, home = self.root / f"hidden-{name}", self.root / f"home-{name}"
        if hidden.exists():
            hidden.rename(home)
        self.patch.setenv("RL_LAB_HOME", str(home))
        return home

    def unplug(self) -> None:
        self.shared.rename(self.root / "unplugged")

    def plug(self) -> None:
        (self.root / "unplugged").rename(self.shared)


@pytest.fixture
def machines(tmp_path, monkeypatch):
    """No answer of the store is kept, so that no test waits."""
    found = Machines(tmp_path, monkeypatch)
    found.shared.mkdir()
    monkeypatch.setenv("RL_LAB_ARTIFACTS", f"file://{found.shared}")
    monkeypatch.setenv("RL_LAB_STORE", f"sqlite:///{tmp_path / 'lab.db'}")
    monkeypatch.setattr(fetch, "FRESH_SECONDS", -1)
    monkeypatch.setattr(fetch, "AWAY_SECONDS", -1)
    monkeypatch.setattr(publisher, "RETRY_SECONDS", 0.01)
    object_store._opened.cache_clear()
    found.at("a")
    return found


@pytest.fixture
def store(machines):
    return Store()


def interrupt():
    raise KeyboardInterrupt


def whole(store, spec):
    """What the run learns where nobody disturbs it."""
    run_id = store.create(spec, mine=True)
    assert run(store, run_id) == "finished"
    return fake.trained(store, run_id)


def published(store, run_id) -> list[str]:
    return [event.kind for event in store.events_after(run_id) if event.kind in ("published", "unpublished")]


def test_a_run_that_was_interrupted_ends_in_another_home_bit_for_bit(machines, store):
    undisturbed = whole(store, fake.grpo(STEPS))
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {57: interrupt}) == "interrupted"
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "finished"
    assert fake.trained(store, run_id) == undisturbed
    assert kinds(store, run_id)[-2:] == ["resumed", "finished"] and published(store, run_id) == []
    b = [step for step, _ in checkpoint.here(run_folder(run_id))]
    assert b == [50, 60] and [step for step, _ in checkpoint.steps(run_folder(run_id))] == [0, 50, 60]
    samples = sorted(path.name for path in (run_folder(run_id) / "samples").iterdir())
    assert samples == sorted(fetch.files(run_id, "samples")) and "step-000005.json" in samples
    machines.at("a")  # which has it from before, and less of it
    assert checkpoint.newest(run_folder(run_id)) == (60, run_folder(run_id) / "checkpoints" / "step-000060")


def test_all_is_published_before_the_end_is_said(machines, store, monkeypatch):
    at_the_end = []
    real = Store.set_state

    def set_state(self, run_id, state_, *given, **named):
        if state_ == "finished":
            at_the_end.extend([fetch.checkpoints(run_id), fetch.files(run_id, "samples"), fetch.files(run_id, "run"),
                               state.is_published(run_id, object_store.opened().begin())])
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
    assert not state.is_published(run_id, store_id)
    assert publisher.unpublished(object_store.opened()) == [run_id]


def test_a_run_begins_where_the_store_is_away_but_is_not_resumed_from_nothing(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    machines.unplug()
    assert run(store, run_id, {57: interrupt}) == "interrupted"  # all of it was made without the store
    store.requeue(run_id, mine=True)
    assert run(store, run_id, {58: interrupt}) == "interrupted"
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "failed"
    message = store.run(run_id).message
    assert "There is no folder" in message and store.run(run_id).step == 58


@pytest.mark.parametrize("nth", [1, 3, 5, 8, 11])
def test_a_worker_killed_while_it_publishes_is_resumed_elsewhere_bit_for_bit(machines, store, nth):
    undisturbed = whole(store, fake.grpo(STEPS))
    run_id = store.create(fake.grpo(STEPS))
    store.dispose()
    pid = os.fork()
    if pid == 0:
        writes = iter(range(1, 1000))
        real = object_store.ObjectStore._put

        def put(self, *given):
            if next(writes) == nth:
                os.kill(os.getpid(), signal.SIGKILL)
            real(self, *given)

        object_store.ObjectStore._put = put
        object_store._opened.cache_clear()
        run(store, run_id)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    assert store.reconcile() == [run_id]
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "finished"
    assert fake.trained(store, run_id) == undisturbed


def test_a_damaged_checkpoint_is_not_resumed_from(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {57: interrupt}) == "interrupted"
    for path in (machines.shared / run_id / "checkpoints" / "step-000050").iterdir():
        if path.name != manifest.NAME:
            path.write_bytes(path.read_bytes()[1:])
    machines.at("b")
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "failed"
    assert "step-000050 in file://" in store.run(run_id).message and "is damaged" in store.run(run_id).message
    assert checkpoint.here(run_folder(run_id)) == []
    machines.at("a")  # which still has it
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "finished"
