"""Publishing: whole or not at all, nothing twice, and what is pruned here is pruned there."""

import os
import signal

import pytest

from labcore.runs.files import checkpoints
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.artifacts import changes, fetch, manifest, object_store, publish
from labcore.runs.files.artifacts.changes import changed
from labcore.runs.files.artifacts.publish import unpublished
from labcore.runs.files.paths import home, run_folder
from tests.runs.files.artifacts.tools import RUN, killed_before_write, objects, saved, store


def test_a_changed_file_replaces_the_old_one_in_the_store(folder):
    log = run_folder(RUN) / "worker.log"
    log.parent.mkdir(parents=True)
    for text in ("one", "one and two"):
        log.write_text(text)
        publish.publish(store(), RUN)
    assert len(objects(folder / RUN)) == 2 and manifest.read(store(), f"{RUN}/run")["worker.log"].size == 11


def test_nothing_is_sent_twice(monkeypatch):
    saved(0, 50)
    publish.publish(store(), RUN)
    sent = []
    for name in ("put_file", "put"):
        put = getattr(object_store.ObjectStore, name)
        monkeypatch.setattr(object_store.ObjectStore, name,
                            lambda *given, put=put: sent.append(given) or put(*given))
    publish.publish(store(), RUN)
    assert sent == []
    saved(100)
    publish.publish(store(), RUN)
    assert sent, "what is new is sent"


def test_what_is_pruned_here_is_pruned_there(folder):
    for step in range(0, 2000, 100):
        saved(step, marked={300})
        publish.publish(store(), RUN, marked={300})
    here = [step for step, _ in checkpoint.local(run_folder(RUN))]
    there = sorted(path.name for path in (folder / RUN / "checkpoints").iterdir())
    assert there == [checkpoint.name_of(step) for step in here]
    assert 300 in here and len(here) == 1 + checkpoint.LADDER + checkpoint.KEEP


def test_a_home_with_less_of_a_run_takes_nothing_from_the_store(folder, another):
    saved(0, 50)
    publish.publish(store(), RUN)
    another()
    checkpoint.newest(run_folder(RUN))
    saved(100)
    publish.publish(store(), RUN)
    assert [step for step, _ in checkpoint.steps(run_folder(RUN))] == [0, 50, 100]


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_kill_between_two_steps_of_publishing_leaves_it_whole_or_not_there(folder, another, nth):
    """The process dies before its nth write into the store; the next one publishes what is missing."""
    first, b = home(), None
    saved(0, 50)
    store().begin()
    pid = os.fork()
    if pid == 0:
        killed_before_write(nth)
        publish.publish(store(), RUN)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    b = another()
    there = [step for step, _ in checkpoint.steps(run_folder(RUN))]
    assert there == ([0] if nth > 3 else [])
    for step in there:
        assert (checkpoint.at(run_folder(RUN), step) / "state.json").read_text() == str(step)
    os.environ["RL_LAB_HOME"] = str(first)
    assert not changes.is_published(RUN, store().begin())
    publish.publish(store(), RUN)
    assert changes.is_published(RUN, store().begin())
    os.environ["RL_LAB_HOME"] = str(b)
    assert [step for step, _ in checkpoint.steps(run_folder(RUN))] == [0, 50]
    assert len(objects(folder / RUN)) == 6


def test_a_home_of_before_there_was_a_store_is_published(monkeypatch):
    url = os.environ["RL_LAB_ARTIFACTS"]
    monkeypatch.delenv("RL_LAB_ARTIFACTS")
    saved(0)
    (home() / "base" / "abc" / "model").mkdir(parents=True)
    (home() / "jobs" / "xyz").mkdir(parents=True)
    monkeypatch.setenv("RL_LAB_ARTIFACTS", url)
    assert unpublished(store()) == ["base/abc", RUN]
    publish.publish(store(), RUN)
    assert unpublished(store()) == ["base/abc"]


def test_a_file_that_grows_while_it_is_published_fits_its_manifest(monkeypatch):
    """Its log, say, into which the run writes."""
    log, hashed = run_folder(RUN) / "worker.log", manifest.of_file
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("one\n")

    def and_grown(path):
        found = hashed(path)
        if path == log:
            log.write_text("one\ntwo\n")
        return found

    monkeypatch.setattr(manifest, "of_file", and_grown)
    store = object_store.opened()
    publish.publish(store, RUN)
    [entry] = manifest.read(store, f"{RUN}/run").values()
    assert entry == manifest.of_bytes(b"one\ntwo\n") and store.names(f"{RUN}/run").keys() >= {entry.sha256}


def test_a_run_of_which_the_store_has_another_file_does_not_count_as_published():
    """This home may have the newer one, which its bound must not drop."""
    picture = run_folder(RUN) / "samples" / "step-000001.json"
    picture.parent.mkdir(parents=True)
    picture.write_text("1")
    store = object_store.opened()
    publish.publish(store, RUN)
    assert changes.is_published(RUN, store.begin())
    picture.write_text("2")
    changed(picture)
    publish.publish(store, RUN, add=True)
    assert not changes.is_published(RUN, store.begin())
    publish.publish(store, RUN)
    assert changes.is_published(RUN, store.begin())


def test_an_optimizer_that_is_dropped_here_is_dropped_there(another, folder, monkeypatch):
    """The store's copy gets smaller, another machine knows of it before it fetches it, and reads it."""
    monkeypatch.setattr(checkpoints, "OPTIMIZER_BYTES", 1000)

    def fill(new):
        (new / "policy").mkdir()
        (new / "optimizer_policy.safetensors").write_bytes(os.urandom(2000))
    for step in (1, 2, 3):
        checkpoint.save(run_folder(RUN), step, fill)
        publish.publish(store(), RUN)
    there = {step: sum((folder / RUN / "checkpoints" / checkpoint.name_of(step) / name).stat().st_size
                       for name in os.listdir(folder / RUN / "checkpoints" / checkpoint.name_of(step))
                       if name != manifest.NAME) for step in (1, 2, 3)}
    assert there == {1: len(checkpoints.DROPPED), 2: 2000, 3: 2000}
    another()
    assert [checkpoint.keeps_optimizer(run_folder(RUN), step) for step in (1, 2, 3)] == [False, True, True]
    assert checkpoints.is_dropped(checkpoint.at(run_folder(RUN), 1))


def test_a_checkpoint_that_loses_its_optimizer_while_it_is_fetched_is_fetched_anew(another, monkeypatch):
    monkeypatch.setattr(checkpoints, "OPTIMIZER_BYTES", 1000)

    def fill(new):
        (new / "optimizer_policy.safetensors").write_bytes(os.urandom(2000))
    checkpoint.save(run_folder(RUN), 1, fill)
    publish.publish(store(), RUN)
    first = manifest.read(store(), f"{RUN}/checkpoints/step-000001")
    for step in (2, 3):
        checkpoint.save(run_folder(RUN), step, fill)
    publish.publish(store(), RUN)
    another()
    monkeypatch.setattr(fetch, "_manifest", lambda *_: first)  # as it was read a moment before
    assert checkpoints.is_dropped(fetch.bring(run_folder(RUN) / "checkpoints" / "step-000001"))
