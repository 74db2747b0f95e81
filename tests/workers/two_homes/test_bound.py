"""The bound of a home: what was used longest ago goes, and comes back."""

import os
import shutil

import pytest

from app.training import files
from labcore.errors import LabError
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files import uploads
from labcore.runs.files.artifacts import cache, changes, deletion, fetch, manifest, object_store, publish
from labcore.runs.files.paths import run_folder
from tests.runs import fake
from tests.workers.tools import run
from tests.workers.two_homes.tools import STEPS, interrupt, whole


def small(monkeypatch, size: float):
    monkeypatch.setenv("RL_LAB_CACHE_GB", str(size / 1e9))


def test_what_was_used_longest_ago_goes_first_and_comes_back(machines, store, old, monkeypatch):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    for age, (_, path) in enumerate(reversed(checkpoint.local(run_folder(run_id)))):
        os.utime(path, (1e9 - age, 1e9 - age))
    whole = cache.trim(set)
    assert whole == 0 and len(checkpoint.local(run_folder(run_id))) == 3
    total = sum(each.size for each in cache._kept())
    small(monkeypatch, total - 1)
    assert cache.trim(set) > 0
    assert [step for step, _ in checkpoint.local(run_folder(run_id))] == [50, 60]
    assert [step for step, _ in checkpoint.steps(run_folder(run_id))] == [0, 50, 60]
    assert checkpoint.at(run_folder(run_id), 0).is_dir()
    small(monkeypatch, 1)
    cache.trim(set)
    assert checkpoint.local(run_folder(run_id)) == [] and (run_folder(run_id) / "spec.json").is_file()
    assert not list((machines.root / "home-a" / ".artifacts").glob("dropped/*"))
    assert files.load(run_id, "samples", 25)["step"] == 25


def test_what_is_not_published_or_live_or_just_used_stays(machines, store, old, monkeypatch):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    small(monkeypatch, 1)
    assert cache.trim(lambda: {run_id}) == 0  # live
    changes.set_changed(run_id)
    assert cache.trim(set) == 0  # not published
    changes.set_published(run_id, object_store.opened().begin())
    monkeypatch.setattr(cache, "USED_SECONDS", 3600)
    assert cache.trim(set) == 0  # just used
    for path in (run_folder(run_id) / "checkpoints").iterdir():
        os.utime(path, (1e9, 1e9))
    checkpoint.newest(run_folder(run_id))  # counts as a use
    assert cache.trim(set) > 0
    assert [step for step, _ in checkpoint.local(run_folder(run_id))] == [60]


def test_the_last_copy_of_an_upload_is_not_dropped(machines, old, monkeypatch):
    """Another home, in which no run named it, has deleted it in the object store since this one fetched it."""
    first = uploads.keep("mine.jsonl", b"x" * 2000).parent
    machines.at("b")
    upload = uploads.file_at(first.name)
    machines.at("a")
    shutil.rmtree(first)
    deletion.deleted(first)
    machines.at("b")
    small(monkeypatch, 1)
    unit, shared = f"uploads/{first.name}", object_store.opened()
    assert not manifest.read(shared, unit)
    assert cache.trim(set) == 0 and upload.read_bytes() == b"x" * 2000
    assert publish.unpublished(shared) == [unit]  # the lab sends it again
    publish.publish(shared, unit)
    assert cache.trim(set) > 0 and not upload.exists() and fetch.there(upload)


def test_what_a_worker_is_about_to_go_on_with_is_not_dropped(machines, store, old, monkeypatch):
    """It takes what is here for all that there is: a clean-up that began before must not come in between."""
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {57: interrupt}) == "interrupted"
    os.utime(run_folder(run_id) / "samples", (1e9, 1e9))
    monkeypatch.setattr(cache, "USED_SECONDS", 3600)
    small(monkeypatch, 1)
    fetch.bring_run(run_id)
    cache.trim(set)
    assert files.steps_of(run_id, "samples") and (run_folder(run_id) / "samples" / "step-000005.json").is_file()


def test_a_run_whose_files_were_dropped_is_resumed_bit_for_bit(machines, store, old, monkeypatch):
    undisturbed = whole(store, fake.grpo(STEPS))
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id, {57: interrupt}) == "interrupted"
    small(monkeypatch, 1)
    assert cache.trim(set) > 0 and checkpoint.local(run_folder(run_id)) == []
    store.requeue(run_id, mine=True)
    assert run(store, run_id) == "finished", store.run(run_id).message
    assert fake.trained(store, run_id) == undisturbed
    assert len(fetch.names(run_id, "samples")) == STEPS // 5


@pytest.mark.parametrize("text", ["0", "-1", "many", "nan", "inf"])
def test_a_bound_that_is_none_is_one_sentence(monkeypatch, text):
    monkeypatch.setenv("RL_LAB_CACHE_GB", text)
    with pytest.raises(LabError, match=r"RL_LAB_CACHE_GB is .* set it to the gigabytes"):
        cache.limit()
