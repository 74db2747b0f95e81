"""The user's own files: what no run names goes, what a run needs or may need stays, whatever happens meanwhile."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from labcore.errors import LabError
from labcore.runs.files import uploads
from labcore.runs.files.paths import home, run_folder
from labcore.runs.fork import fork_spec
from labcore.runs.lists import cleanup
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store

QUESTIONS = b'{"prompt": "1+1=", "answer": "2"}\n'


def kept(content: bytes = QUESTIONS, name: str = "questions.jsonl", days: float = 2.0) -> Path:
    """An upload that was last used so many days ago."""
    path = uploads.keep(name, content)
    age(path.parent, days)
    return path


def age(folder: Path, days: float) -> None:
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (time.time() - days * 86_400,) * 2)


def spec(path: Path, **more):
    return make(algorithm_key="grpo", task_key="prompts", model="tiny", data=str(path), **more)


def ended(store: Store, path: Path) -> str:
    run_id = store.create(spec(path), mine=True)
    store.set_state(run_id, "stopped")
    return run_id


def test_labels_that_a_reward_model_learns_from_stay(store):
    labels = kept(b'{"prompt": "a", "chosen": "b", "rejected": "c"}\n', "labels.jsonl")
    place = labels.parent.name
    learner = make(algorithm_key="reward_model", task_key="sort", knobs={"labelled_pairs": place})
    run_id = store.create(learner, mine=True)
    store.set_state(run_id, "stopped")
    assert cleanup.unused_uploads(store) == []
    store.delete(run_id)
    assert cleanup.unused_uploads(store) == [place]
    run_folder("elsewhere").mkdir(parents=True)
    (run_folder("elsewhere") / "spec.json").write_text(learner.to_json())
    assert cleanup.unused_uploads(store) == [], "a run of this folder that the store does not know"


def test_a_held_out_file_stays(store):
    first, second = kept(), kept(b'{"prompt": "a", "answer": "b"}\n', "second.jsonl")
    run_id = store.create(spec(first, knobs={"held_out_file": second.parent.name}), mine=True)
    store.set_state(run_id, "stopped")
    assert cleanup.unused_uploads(store) == []


def test_what_no_run_names_goes_and_the_rest_stays(store):
    used, free, young = kept(), kept(b"a", "book.txt"), kept(b"b", "new.txt", days=0.9)
    ended(store, used)
    assert cleanup.unused_uploads(store) == [free.parent.name] and uploads.names(free.parent.name) == ["book.txt"]
    assert cleanup.remove_uploads(store, [each.parent.name for each in (used, free, young)]) == {free.parent.name: 1}
    assert used.exists() and young.exists() and not free.parent.exists()
    assert sorted(path.name for path in uploads.root().glob("*")) == sorted(
        each.parent.name for each in (used, young)), "nothing half deleted is left"


def test_without_uploads_there_is_nothing_to_clean(store):
    assert cleanup.unused_uploads(store) == [] and cleanup.remove_uploads(store, ["0123456789abcdef"]) == {}


def test_a_run_in_the_trash_a_queued_one_and_a_fork_keep_what_they_name(store):
    one, two, three = kept(b"1"), kept(b"2"), kept(b"3")
    gone = ended(store, one)
    store.trash([gone])
    store.create(spec(two))
    parent = ended(store, three)
    (run_folder(parent) / "checkpoints" / "step-000000").mkdir(parents=True)
    (run_folder(parent) / "spec.json").write_text(spec(three).to_json())
    child = store.create(fork_spec(store, parent, 0), mine=True)
    store.set_state(child, "stopped")
    store.delete(parent)
    assert cleanup.unused_uploads(store) == []
    store.purge(time.time(), [gone])
    store.delete(child)
    assert cleanup.unused_uploads(store) == [one.parent.name, three.parent.name]


def test_weights_of_a_capsule_are_kept_as_long_as_a_run_begins_with_them(store):
    model = uploads.place(b"seals") / "model"
    model.mkdir(parents=True)
    (model / "model.safetensors").write_bytes(b"x" * 10)
    age(model.parent, 2)
    run_id = store.create(make(algorithm_key="grpo", task_key="sort", model=str(model)), mine=True)
    assert cleanup.unused_uploads(store) == []
    store.set_state(run_id, "stopped")
    store.delete(run_id)
    assert cleanup.unused_uploads(store) == [model.parent.name] and uploads.size(model.parent.name) == 10


def test_a_run_that_only_its_folder_knows_keeps_its_file_too(store):
    path = kept()
    folder = home() / "grpo-prompts-of-another-store"
    folder.mkdir()
    (folder / "spec.json").write_text(json.dumps({"data": str(path), "model": "tiny"}))
    (home() / "broken").mkdir()
    (home() / "broken" / "spec.json").write_text("{")
    assert cleanup.unused_uploads(store) == []


def test_a_lab_behind_a_link_finds_its_files(store, tmp_path, monkeypatch):
    path = kept()
    (tmp_path / "link").symlink_to(home())
    ended(store, tmp_path / "link" / path.relative_to(home()))
    assert cleanup.unused_uploads(store) == []
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "link"))
    assert cleanup.unused_uploads(Store()) == []


@pytest.mark.parametrize("front", ["/mnt/old lab/runs", "C:\\Users\\me\\runs", "runs"])
def test_a_lab_that_was_moved_keeps_what_its_runs_name(store, front):
    path = kept()
    slash = "\\" if "\\" in front else "/"
    there = slash.join((front, "uploads", path.parent.name, path.name))
    store.create(replace(spec(path), data=there))  # no clean-up is blamed for a file that is elsewhere
    assert cleanup.unused_uploads(store) == [] and cleanup.remove_uploads(store, [path.parent.name]) == {}


def test_what_is_uploaded_again_is_young_again(store):
    path = kept()
    assert cleanup.unused_uploads(store) == [path.parent.name]
    assert uploads.keep("questions.jsonl", QUESTIONS) == path
    assert cleanup.unused_uploads(store) == []


def test_a_run_that_is_made_between_the_plan_and_the_clean_up_keeps_its_file(store):
    path = kept()
    plan = cleanup.unused_uploads(store)
    ended(store, path)
    assert cleanup.remove_uploads(store, plan) == {} and path.exists()


def test_a_run_that_is_made_just_after_the_clean_up_is_refused_in_words(store):
    path = kept()
    meant = spec(path)
    cleanup.remove_uploads(store, cleanup.unused_uploads(store))
    with pytest.raises(LabError, match="was deleted by a clean-up"):
        store.create(meant)
    assert store.runs() == []


def test_what_an_earlier_clean_up_left_half_deleted_goes_with_the_next(store):
    path = kept()
    half = uploads.root() / ".gone-0123456789abcdef"
    half.mkdir()
    assert cleanup.unused_uploads(store) == [path.parent.name]
    cleanup.remove_uploads(store, [])
    assert not half.exists() and path.exists()


def test_what_a_killed_clean_up_left_of_the_same_file_is_in_nobodys_way(store, monkeypatch):
    path = kept()
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(cleanup, "remove_folder", lambda folder: (_ for _ in ()).throw(KeyboardInterrupt))
        cleanup.remove_uploads(store, cleanup.unused_uploads(store))
    assert kept() == path
    assert cleanup.remove_uploads(store, cleanup.unused_uploads(store)) == {path.parent.name: len(QUESTIONS)}
    assert [*uploads.root().iterdir()] == []
