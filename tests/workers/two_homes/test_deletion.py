"""What is deleted in one home is deleted in the store, and no other home brings it back."""

from app.training import files
from labcore.runs import models
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.artifacts import object_store
from labcore.runs.files.artifacts.publishers import OfLab
from labcore.runs.files.paths import run_folder
from labcore.runs.lists import cleanup
from tests.runs import fake
from tests.workers.tools import run
from tests.workers.two_homes.tools import STEPS, objects


def test_a_deleted_run_is_deleted_in_the_store_and_no_home_brings_it_back(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    machines.at("b")
    checkpoint.newest(run_folder(run_id))
    files.load(run_id, "samples", 25)
    machines.at("a")
    with OfLab(store) as lab:
        store.delete(run_id)
        assert lab.flush()
    assert list(objects(machines.shared)) == [object_store.MARKER]
    machines.at("b")
    with OfLab(store) as lab:
        assert lab.flush()
    assert list(objects(machines.shared)) == [object_store.MARKER]


def test_a_run_that_is_deleted_while_the_store_is_away_is_deleted_there_later(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    machines.unplug()
    store.delete(run_id)
    machines.plug()
    with OfLab(store) as lab:
        assert lab.flush()
    assert list(objects(machines.shared)) == [object_store.MARKER]


def test_a_clean_up_deletes_in_the_store_too(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    machines.at("b")
    with OfLab(store) as lab:
        cleanup.delete_spare(run_id)
        assert lab.flush()
    machines.at("c")
    assert [step for step, _ in checkpoint.steps(run_folder(run_id))] == [0, 60]
    assert files.steps_of(run_id, "samples") == [] and models.spec_of(run_id).steps == STEPS
