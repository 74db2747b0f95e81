"""Fetching: by another home, and only where every byte is right."""

import errno
import json
import shutil

import pytest

from labcore.errors import LabError
from labcore.runs.faults import disk_full
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files import uploads
from labcore.runs.files.artifacts import fetch, manifest, publish
from labcore.runs.files.artifacts.changes import changed
from labcore.runs.files.paths import run_folder
from labcore.runs.files.storage import Away
from tests.runs.files.artifacts.tools import RUN, objects, saved, store


def test_what_is_published_is_fetched_by_another_home(another):
    saved(0, 50)
    publish.publish(store(), RUN)
    here = checkpoint.at(run_folder(RUN), 50)
    there = another()
    assert [step for step, _ in checkpoint.steps(run_folder(RUN))] == [0, 50] and not run_folder(RUN).exists()
    step, path = checkpoint.newest(run_folder(RUN))
    assert step == 50 and path.is_relative_to(there) and not path.samefile(here)
    assert (path / "policy" / "weights").read_text() == "50" * 100 and (path / "state.json").read_text() == "50"
    assert [step for step, _ in checkpoint.local(run_folder(RUN))] == [50]  # the other one stays where it is
    assert checkpoint.at(run_folder(RUN), 60) is None


def test_files_that_stand_for_themselves_come_one_by_one(another):
    for step in (5, 10):
        path = run_folder(RUN) / "samples" / f"step-{step:06d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(step))
    (run_folder(RUN) / "spec.json").write_text("{}")
    publish.publish(store(), RUN)
    another()
    assert fetch.names(RUN, "samples") == ["step-000005.json", "step-000010.json"]
    path = fetch.bring(run_folder(RUN) / "samples" / "step-000010.json")
    assert path.read_text() == "10" and len(list(path.parent.iterdir())) == 1
    assert fetch.bring(run_folder(RUN) / "spec.json").read_text() == "{}"
    assert not fetch.bring(run_folder(RUN) / "worker.log").exists()
    fetch.bring_run(RUN)
    assert len(list(path.parent.iterdir())) == 2


def written(versions, log):
    run_folder(RUN).mkdir(parents=True, exist_ok=True)
    (run_folder(RUN) / "versions.json").write_text(versions)
    with (run_folder(RUN) / "worker.log").open("a") as file:
        file.write(log)


def record():
    return [(run_folder(RUN) / name).read_text() for name in ("versions.json", "worker.log")]


def test_a_run_that_comes_home_has_what_another_machine_added_to_its_record(another):
    another("a")
    written("[A]", "of A\n")
    publish.publish(store(), RUN)
    another("b")
    run_folder(RUN).mkdir(parents=True)
    with (run_folder(RUN) / "worker.log").open("a") as log:  # a worker has it open before it fetches anything
        fetch.bring_run(RUN)
        log.write("of B\n")
    written("[A, B]", "")
    publish.publish(store(), RUN)
    another("a")
    with (run_folder(RUN) / "worker.log").open("a") as log:
        log.write("again ")
        log.flush()
        fetch.bring_run(RUN)
        log.write("of A\n")
    assert record() == ["[A, B]", "of A\nof B\nagain of A\n"]
    fetch.bring_run(RUN)
    assert record() == ["[A, B]", "of A\nof B\nagain of A\n"]


def test_the_log_that_a_page_shows_is_the_newest_and_what_is_here_where_the_store_is_away(folder, another):
    assert not fetch.bring_log(RUN).exists()
    another("a")
    written("[A]", "of A\n")
    publish.publish(store(), RUN)
    another("b")
    assert fetch.bring_log(RUN).read_text() == "of A\n" and not (run_folder(RUN) / "versions.json").exists()
    written("[A, B]", "of B\n")
    publish.publish(store(), RUN)
    another("a")
    folder.rename(folder.with_name("unplugged"))
    assert fetch.bring_log(RUN).read_text() == "of A\n"
    folder.with_name("unplugged").rename(folder)
    assert fetch.bring_log(RUN).read_text() == "of A\nof B\n"


def test_what_this_home_has_not_published_of_a_record_stays(another):
    written("[A]", "of A\n")
    publish.publish(store(), RUN)
    changed(run_folder(RUN))
    written("[A, more]", "more of A\n")
    fetch.bring_run(RUN)
    assert record() == ["[A, more]", "of A\nmore of A\n"]


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


def listing(name="a", size=1, sha256="0" * 64):
    return json.dumps({"format": 1, "files": {name: {"size": size, "sha256": sha256}}})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2, "files": {}}', '{"format": 1, "files": {"a": {}}}',
                                  listing("../../a"), listing("/a"), listing(size=-1), listing(sha256="../../victim"),
                                  listing(sha256="A" * 64), listing(sha256="0" * 64 + "\n")])
def test_a_damaged_manifest_is_a_sentence(folder, another, text):
    saved(50)
    publish.publish(store(), RUN)
    (folder / RUN / "checkpoints" / "step-000050" / manifest.NAME).write_text(text)
    another()
    with pytest.raises(LabError, match="its manifest cannot be read"):
        checkpoint.newest(run_folder(RUN))


def test_a_manifest_has_nothing_deleted_outside_its_folder(folder):
    """Who may write into the store names another file by the hash of one that the next publish replaces."""
    victim = folder.parent / "victim.txt"
    victim.write_text("precious")
    manifest.write(store(), f"{RUN}/samples", {"step-000001.json": manifest.File(8, "../../../victim.txt")})
    picture = run_folder(RUN) / "samples" / "step-000002.json"
    picture.parent.mkdir(parents=True)
    picture.write_text("{}")
    publish.publish(store(), RUN)
    assert victim.read_text() == "precious" and fetch.names(RUN, "samples") == [picture.name]


def test_an_upload_in_a_store_that_is_away_is_not_called_deleted(folder):
    kept = uploads.keep("mine.jsonl", b"x")
    shutil.rmtree(kept.parent)  # the bound of the home asked for the room
    uploads.check([str(kept)])
    folder.rename(folder.with_name("unplugged"))
    with pytest.raises(Away, match="is not there"):
        uploads.check([str(kept)])
    folder.with_name("unplugged").rename(folder)
    store().delete_folder(f"uploads/{kept.parent.name}")
    with pytest.raises(LabError, match="deleted by a clean-up"):
        uploads.check([str(kept)])


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
