"""Artifacts in a plain shared folder: published whole or not at all, fetched only where every byte is right."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

from labcore.errors import LabError
from labcore.files import checkpoints as checkpoint
from labcore.files.artifacts import deletion, fetch, manifest, object_store, publish, state, things
from labcore.files.artifacts.changes import changed
from labcore.files.artifacts.deletion import deleted
from labcore.files.artifacts.object_store import Away
from labcore.files.artifacts.publisher import Publisher, unpublished
from labcore.files.paths import home, run_folder
from labcore.runs.faults import disk_full

RUN = "grpo-sort-1"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The shared folder. Answers are not kept, and a store that was away is asked again at once."""
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("RL_LAB_ARTIFACTS", f"file://{shared}")
    monkeypatch.setattr(fetch, "FRESH_SECONDS", -1)
    monkeypatch.setattr(fetch, "AWAY_SECONDS", -1)
    object_store._opened.cache_clear()
    return shared


@pytest.fixture
def another(tmp_path, monkeypatch):
    """Go to a machine with an empty home."""
    def go(name="b"):
        monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / name))
        return tmp_path / name
    return go


def store():
    return object_store.opened()


def fill(text):
    def write(new):
        (new / "policy").mkdir()
        (new / "policy" / "weights").write_text(text * 100)
        (new / "state.json").write_text(text)
    return write


def saved(*steps, run=RUN, marked=()):
    for step in steps:
        checkpoint.save(run_folder(run), step, fill(str(step)), marked)


def objects(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_what_is_published_is_fetched_by_another_home(another):
    saved(0, 50)
    publish.publish(store(), RUN)
    here = checkpoint.at(run_folder(RUN), 50)
    there = another()
    assert [step for step, _ in checkpoint.steps(run_folder(RUN))] == [0, 50] and not run_folder(RUN).exists()
    step, path = checkpoint.newest(run_folder(RUN))
    assert step == 50 and path.is_relative_to(there) and not path.samefile(here)
    assert (path / "policy" / "weights").read_text() == "50" * 100 and (path / "state.json").read_text() == "50"
    assert [step for step, _ in checkpoint.here(run_folder(RUN))] == [50]  # the other one stays where it is
    assert checkpoint.at(run_folder(RUN), 60) is None


def test_files_that_stand_for_themselves_come_one_by_one(another):
    for step in (5, 10):
        path = run_folder(RUN) / "samples" / f"step-{step:06d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(step))
    (run_folder(RUN) / "spec.json").write_text("{}")
    publish.publish(store(), RUN)
    another()
    assert fetch.files(RUN, "samples") == ["step-000005.json", "step-000010.json"]
    path = fetch.here(run_folder(RUN) / "samples" / "step-000010.json")
    assert path.read_text() == "10" and len(list(path.parent.iterdir())) == 1
    assert fetch.here(run_folder(RUN) / "spec.json").read_text() == "{}"
    assert not fetch.here(run_folder(RUN) / "worker.log").exists()
    fetch.bring_run(RUN)
    assert len(list(path.parent.iterdir())) == 2


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
    monkeypatch.setattr(object_store.ObjectStore, "put_file", None)
    monkeypatch.setattr(object_store.ObjectStore, "put", None)
    publish.publish(store(), RUN)


def test_what_is_pruned_here_is_pruned_there(folder):
    for step in range(0, 2000, 100):
        saved(step, marked={300})
        publish.publish(store(), RUN, marked={300})
    here = [step for step, _ in checkpoint.here(run_folder(RUN))]
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


@pytest.mark.parametrize("damage, words", [
    (lambda file: file.write_bytes(file.read_bytes()[:-1]), "299 of 300 bytes|1 of 2 bytes"),
    (lambda file: file.write_bytes(b"x" * file.stat().st_size), "another content"),
    (lambda file: file.unlink(), "missing"),
])
def test_a_damaged_object_is_a_sentence_and_is_never_used(folder, another, damage, words):
    saved(50)
    publish.publish(store(), RUN)
    for path in objects(folder / RUN):
        if not path.endswith(manifest.NAME):
            damage(folder / RUN / path)
    another()
    with pytest.raises(LabError, match=f"damaged .*({words.replace('299', '199').replace('300', '200')})"):
        checkpoint.newest(run_folder(RUN))
    assert not (run_folder(RUN) / "checkpoints" / "step-000050").exists()
    assert not list((run_folder(RUN) / "checkpoints").glob("*"))
    assert not list((run_folder(RUN) / "checkpoints").glob(".*"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2, "files": {}}', '{"format": 1, "files": {"a": {}}}',
                                  '{"format": 1, "files": {"../../a": {"size": 1, "sha256": "0"}}}',
                                  '{"format": 1, "files": {"/a": {"size": 1, "sha256": "0"}}}'])
def test_a_damaged_manifest_is_a_sentence(folder, another, text):
    saved(50)
    publish.publish(store(), RUN)
    (folder / RUN / "checkpoints" / "step-000050" / manifest.NAME).write_text(text)
    another()
    with pytest.raises(LabError, match="its manifest cannot be read"):
        checkpoint.newest(run_folder(RUN))


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_kill_between_two_steps_of_publishing_leaves_it_whole_or_not_there(folder, another, nth):
    """The process dies before its nth write into the store; the next one publishes what is missing."""
    first, b = home(), None
    saved(0, 50)
    store().begin()
    pid = os.fork()
    if pid == 0:
        writes = iter(range(1, 100))
        real = object_store.ObjectStore._put

        def put(self, *given):
            if next(writes) == nth:
                os.kill(os.getpid(), signal.SIGKILL)
            real(self, *given)

        object_store.ObjectStore._put = put
        publish.publish(store(), RUN)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    b = another()
    there = [step for step, _ in checkpoint.steps(run_folder(RUN))]
    assert there == ([0] if nth > 3 else [])
    for step in there:
        assert (checkpoint.at(run_folder(RUN), step) / "state.json").read_text() == str(step)
    os.environ["RL_LAB_HOME"] = str(first)
    assert not state.is_published(RUN, store().begin())
    publish.publish(store(), RUN)
    assert state.is_published(RUN, store().begin())
    os.environ["RL_LAB_HOME"] = str(b)
    assert [step for step, _ in checkpoint.steps(run_folder(RUN))] == [0, 50]
    assert len(objects(folder / RUN)) == 6


def test_what_is_deleted_here_is_deleted_there_also_when_the_store_comes_back(folder, tmp_path):
    saved(0, 50)
    publish.publish(store(), RUN)
    folder.rename(tmp_path / "away")
    shutil.rmtree(run_folder(RUN))
    deleted(run_folder(RUN))
    with pytest.raises(Away):
        deletion.clear(store())
    (tmp_path / "away").rename(folder)
    deletion.clear(store())
    assert objects(folder) == [object_store.MARKER] and state.to_forget() == []
    assert not (folder / RUN).exists()


def test_a_checkpoint_beyond_the_store_of_runs_is_forgotten_there_too():
    saved(0, 50, 100)
    publish.publish(store(), RUN)
    checkpoint.forget_after(run_folder(RUN), 60)
    deletion.clear(store())
    assert [step for step, _ in checkpoint.steps(run_folder(RUN))] == [0, 50]


# ---------------------------------------------------------------- the publisher


def test_the_publisher_publishes_what_changed_and_says_nothing(another):
    said = []
    with Publisher(lambda *words: said.append(words)) as publisher:
        saved(0, 50)
        assert publisher.flush()
        assert state.is_published(RUN, store().begin())
    changed(run_folder(RUN))
    assert not state.is_published(RUN, store().begin())
    another()
    assert checkpoint.newest_step(run_folder(RUN)) == 50 and said == []


def test_a_store_that_goes_away_is_said_once_and_all_is_published_when_it_is_back(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("labcore.files.artifacts.publisher.RETRY_SECONDS", 0.01)
    said = []
    store().begin()
    with Publisher(lambda *words: said.append(words)) as publisher:
        folder.rename(tmp_path / "away")
        for step in (0, 50, 100):
            saved(step)
            assert not publisher.flush()
        assert len(said) == 1 and said[0][0] == RUN and "is not there" in said[0][1]
        assert not folder.exists()  # never made again
        (tmp_path / "away").rename(folder)
        while not publisher.flush():
            pass  # a try may have been under way
    assert said[1:] == [(RUN, "")]
    assert fetch.checkpoints(RUN) == ["step-000000", "step-000050", "step-000100"]


def test_a_disk_that_is_not_mounted_is_not_written_into(folder, tmp_path):
    """Where the mount point is left, it is an empty folder."""
    saved(0)
    publish.publish(store(), RUN)
    folder.rename(tmp_path / "away")
    folder.mkdir()
    saved(50)
    with pytest.raises(Away, match="mount or restore it"):
        publish.publish(store(), RUN)
    object_store._opened.cache_clear()  # nor by another process of this home
    with pytest.raises(Away, match="mount or restore it"):
        publish.publish(store(), RUN)
    assert objects(folder) == []


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


def test_without_a_store_nothing_is_noted_and_nothing_is_asked(monkeypatch):
    monkeypatch.delenv("RL_LAB_ARTIFACTS")
    monkeypatch.setattr(object_store, "ObjectStore", None)
    with Publisher(lambda *_: None) as publisher:
        saved(0)
        deleted(run_folder(RUN))
        assert publisher.flush() and publisher._thread is None
    assert checkpoint.newest(run_folder(RUN))[0] == 0
    assert not (home() / state.FOLDER).exists()


def test_a_fault_of_the_lab_itself_keeps_no_run_from_ending(monkeypatch, capsys):
    monkeypatch.setattr("labcore.files.artifacts.publisher.RETRY_SECONDS", 0.01)
    with Publisher(lambda *_: None) as publisher, monkeypatch.context() as patch:
        patch.setattr(publish, "publish", lambda *_, **__: 1 / 0)
        saved(0)
        assert not publisher.flush()
        patch.undo()
        while not publisher.flush():
            pass  # a try may have been under way
    assert "ZeroDivisionError" in capsys.readouterr().err and fetch.checkpoints(RUN) == ["step-000000"]


def test_a_full_disk_here_is_not_taken_for_a_fault_of_the_store(another, monkeypatch):
    def full(*_given, **_named):
        raise OSError(errno.ENOSPC, "No space left on device")

    saved(0)
    publish.publish(store(), RUN)
    another()
    monkeypatch.setattr(store()._files, "get_file", full)
    with pytest.raises(OSError, match="No space left") as error:
        checkpoint.newest(run_folder(RUN))
    assert disk_full(error.value) and not list((run_folder(RUN) / "checkpoints").iterdir())


def test_what_is_deleted_while_it_is_published_is_gone_in_the_end(folder, monkeypatch):
    """Another process deletes the run between its files and its manifest."""
    saved(0)
    real = manifest.write

    def write(*given):
        if not deleting:
            shutil.rmtree(run_folder(RUN))
            deleting.append(threading.Thread(target=deleted, args=(run_folder(RUN),)))
            deleting[0].start()
        real(*given)

    deleting = []
    monkeypatch.setattr(manifest, "write", write)
    publish.publish(store(), RUN)
    deleting[0].join()
    assert objects(folder) == [object_store.MARKER]


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize("url, words", [
    ("ftp://host/a", "is not a place for artifacts"), ("s3:bucket", "is not a place"), ("s3://", "is not a place"),
    ("/folder", "is not a place"), ("file://relative/a", "no absolute path"),
    ("s3://key:secret@bucket/a", "leave keys and options"), ("s3://bucket/a?key=secret", "leave keys and options"),
    ("s3://key:sec/ret@bucket/secret", "leave keys and options"), ("s3://[secret@key", "leave keys and options"),
    ("file:///no/such/folder", "There is no folder /no/such/folder"),
])
def test_a_wrong_setting_is_one_sentence_without_keys(monkeypatch, url, words):
    monkeypatch.setenv("RL_LAB_ARTIFACTS", url)
    with pytest.raises(LabError, match=words) as error:
        object_store.check()
    assert "secret" not in str(error.value)
    assert "key:" not in object_store.shown(url) and "key=" not in object_store.shown(url)


@pytest.mark.parametrize("scheme, package", object_store.PACKAGES.items())
def test_a_missing_package_is_named(monkeypatch, scheme, package):
    monkeypatch.setenv("RL_LAB_ARTIFACTS", f"{scheme}://bucket/a")
    monkeypatch.setattr(object_store, "find_spec", lambda name: None)
    with pytest.raises(LabError, match=f"{package} is needed: pip install -r requirements-cluster.txt"):
        object_store.check()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_one_sentence(folder):
    folder.chmod(0o500)
    with pytest.raises(LabError, match="cannot be read or written"):
        object_store.check()


def test_a_folder_that_fails_is_one_sentence(folder, monkeypatch):
    def refuse(*_given, **_named):
        raise PermissionError(13, "Permission denied")
    monkeypatch.setattr(store()._files, "pipe_file", refuse)
    with pytest.raises(LabError, match=r"cannot be read or written \(Permission denied\): check that its"):
        object_store.check()


def test_a_marker_of_something_else_is_refused(folder):
    (folder / object_store.MARKER).write_text("{}")
    with pytest.raises(LabError, match="not what this lab writes"):
        object_store.check()


# ---------------------------------------------------------------- things


def test_paths_and_their_things(lab_home):
    at = run_folder(RUN) / "checkpoints" / "step-000050"
    assert things.whole_with(at) == things.whole_with(at / "policy" / "a") == f"{RUN}/checkpoints/step-000050"
    assert things.whole_with(lab_home / "base" / "abc" / "model") == "base/abc"
    assert things.whole_with(run_folder(RUN) / "start" / "checkpoint") == f"{RUN}/start"
    for other in (lab_home / "base", run_folder(RUN), lab_home / "jobs" / "start", run_folder(RUN) / "export" / "a"):
        assert things.whole_with(other) is None
    assert things.loose_with(run_folder(RUN) / "samples" / "a.json") == (f"{RUN}/samples", "a.json")
    assert things.loose_with(run_folder(RUN) / "spec.json") == (f"{RUN}/run", "spec.json")
    assert things.loose_with(lab_home / "lab.db") is None
    for name, unit in (("base/abc/model", "base/abc"), ("uploads/1", "uploads/1"), (RUN, RUN), ("jobs/1", None),
                       ("lab.db", None), ("base", None)):
        assert things.unit_with(lab_home / name) == unit


def test_a_path_of_another_home_is_found_in_this_one(lab_home):
    for name in ("uploads/0123456789abcdef/a.jsonl", "base/abc/model", f"{RUN}/checkpoints/step-000050/policy"):
        assert things.moved(Path("/elsewhere/base") / name) == lab_home / name
    assert things.moved(Path("/elsewhere/model")) is None and things.moved(Path("base/abc")) is None


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
    assert state.is_published(RUN, store.begin())
    picture.write_text("2")
    changed(picture)
    publish.publish(store, RUN, add=True)
    assert not state.is_published(RUN, store.begin())
    publish.publish(store, RUN)
    assert state.is_published(RUN, store.begin())
