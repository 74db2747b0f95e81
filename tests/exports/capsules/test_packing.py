"""Run capsules as they are written: complete, and without a trace of the user's folders."""

import csv
import hashlib
import io
import json
import os
import time
from pathlib import Path

import pytest

from labcore.errors import LabError
from labcore.exports import folder
from labcore.exports.capsules import packing, reading
from labcore.runs import fork
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files import uploads
from labcore.runs.files.paths import run_folder
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.exports.capsules.tools import content, faked, refused, sealed
from tests.runs import fake


@pytest.fixture
def packed(store, tmp_path) -> Path:
    """The capsule of a run of the store."""
    return packing.write(store, faked(store), tmp_path / "run.capsule.zip")


def test_a_capsule_holds_everything_with_its_hash(store, packed):
    files = content(packed)
    manifest = json.loads(files.pop("manifest.json"))
    assert {name: seal["sha256"] for name, seal in manifest["files"].items()} == {
        name: hashlib.sha256(text).hexdigest() for name, text in files.items()}
    seen = {*(f"lines/step-{step:06d}.json" for step in (1, 2, 3, 20, 25)),  # the first three: a knob was turned
            *(f"samples/step-{step:06d}.json" for step in (1, 2, 3, 5, 10, 15, 20, 25))}
    assert set(files) == {"README.txt", "spec.json", "metrics.csv", "events.csv", "knobs.csv", *seen, *(
        f"checkpoints/step-{step:06d}/{name}" for step in (0, 25) for name in ("state.json", "policy/state.json"))}
    run = store.run(manifest["run"])
    assert RunSpec.from_json(files["spec.json"].decode()) == run.spec
    assert (manifest["state"], manifest["step"]) == ("finished", 25)
    assert manifest["made_with"][0]["torch"] == manifest["exported_with"]["torch"] and manifest["made_with"][0]["code"]
    assert list(csv.reader(io.StringIO(files["knobs.csv"].decode()))) == [
        ["step", "update", "knob", "from", "to"], ["1", "0", "beta", "0.04", "0.2"]]


def test_reading_gives_back_what_was_written(store, packed):
    with reading.unpacked(packed) as found:
        run_id = found.run
        assert list(found.rows) == store.steps_after(run_id)
        assert [(e.step, e.kind, e.payload, e.time) for e in found.events] == [
            (e.step, e.kind, e.payload, e.time) for e in store.events_after(run_id)]
        assert found.spec == store.run(run_id).spec
        first = dict(checkpoint.steps(run_folder(run_id)))[0]
        assert (found.first / "state.json").read_bytes() == (first / "state.json").read_bytes()
        folder = found.folder
    assert not folder.exists()


def test_nothing_of_the_users_folders_is_in_it(store, tmp_path, monkeypatch):
    home = tmp_path / "home" / "someone"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("RL_LAB_HOME", str(home / "lab"))
    data = uploads.keep("my questions.jsonl", b'{"prompt": "1+1=", "answer": "2"}\n')
    (home / "models" / "mine").mkdir(parents=True)
    spec = make(algorithm_key="grpo", task_key="prompts", data=str(data), model=str(home / "models" / "mine"), steps=5)
    store = Store()
    run_id = store.create(spec, mine=True)
    store.log(run_id, "failed", {"text": f"The file {data} and {home}/x and {home}/models/mine are bad"}, 0)
    store.log(run_id, "refused", {"knob": "beta", "value": [str(home)]}, 0)
    drive(store, run_id, start=fake.start)
    path = packing.write(store, run_id, tmp_path / "c.zip")
    for name, text in content(path).items():
        assert b"someone" not in text and str(tmp_path).encode() not in text, name
    told = RunSpec.from_json(content(path)["spec.json"].decode())
    assert (told.data, told.model) == ("data/my questions.jsonl", "checkpoints/step-000000/policy")
    assert content(path)[told.data] == data.read_bytes()
    with reading.unpacked(path) as found:
        assert found.data.read_bytes() == data.read_bytes()
        assert found.events[1].payload["text"] == "The file my questions.jsonl and ~/x and mine are bad"


def test_a_fork_takes_along_where_it_began(store, tmp_path):
    parent = faked(store, 10)
    child = store.create(fork.fork_spec(store, parent, 10, knobs={"beta": 0.5}, steps=15))
    drive(store, child, start=fake.start)
    with reading.unpacked(packing.write(store, child, tmp_path / "c.zip")) as found:
        assert found.first.name == "step-000010" and found.spec.parent == (parent, 10)
        assert [row.step for row in found.rows] == [11, 12, 13, 14, 15]


def test_what_is_too_large_is_left_out_with_its_hash(store, tmp_path, monkeypatch):
    run_id = faked(store)
    (run_folder(run_id) / "checkpoints" / "step-000000" / "policy" / "model.safetensors").write_bytes(b"weights")
    monkeypatch.setattr(packing, "LARGEST", 10)
    path = packing.write(store, run_id, tmp_path / "c.zip")
    with reading.unpacked(path) as found:
        assert found.first is None
        assert found.manifest["left_out"]["weights"] == {"model.safetensors": hashlib.sha256(b"weights").hexdigest()}
    assert not [name for name in content(path) if name.startswith("checkpoints/")]


def test_of_a_newest_checkpoint_that_is_too_large_the_policy_is_kept(store, tmp_path, monkeypatch):
    run_id = faked(store)
    newest = run_folder(run_id) / "checkpoints" / "step-000025"
    (newest / "optimizer.safetensors").write_bytes(bytes(100_000))
    monkeypatch.setattr(packing, "LARGEST", 50_000)
    names = set(content(packing.write(store, run_id, tmp_path / "c.zip")))
    assert "checkpoints/step-000025/policy/state.json" in names
    assert "checkpoints/step-000025/optimizer.safetensors" not in names
    assert "checkpoints/step-000000/state.json" in names


def test_of_what_there_is_to_look_at_the_newest_is_taken(store, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "MOST_SEEN", 60)  # two of these samples
    names = set(content(packing.write(store, faked(store), tmp_path / "c.zip")))
    assert {name for name in names if name.startswith(packing.SEEN)} == {
        "samples/step-000025.json", "lines/step-000025.json"}


def test_a_newest_checkpoint_deleted_meanwhile_is_replaced_by_the_next(store, tmp_path, monkeypatch):
    run_id = faked(store)
    folder, real, moved = run_folder(run_id) / "checkpoints", packing.sha256, []

    def sha256(path):
        if not moved:  # the worker has just deleted it
            moved.append((folder / "step-000025").rename(folder / "step-000024"))
        return real(path)

    monkeypatch.setattr(packing, "sha256", sha256)
    names = set(content(packing.write(store, run_id, tmp_path / "c.zip")))
    assert moved and "checkpoints/step-000024/state.json" in names
    assert not [name for name in names if name.startswith("checkpoints/step-000025")]


def test_a_going_runs_checkpoint_is_not_newer_than_its_rows(store, tmp_path, monkeypatch):
    run_id = faked(store)
    rows = [row for row in store.steps_after(run_id) if row.step <= 7]  # read just before step 8 was made
    monkeypatch.setattr(store, "steps_after", lambda _: rows)
    path = packing.write(store, run_id, tmp_path / "c.zip")
    assert {name.split("/")[1] for name in content(path) if name.startswith("checkpoints/")} == {"step-000000"}
    later = {name.replace("000000", "000025"): text for name, text in content(path).items() if "step-000000" in name}
    assert "is of a later step than its last, 7" in refused(sealed(path, later))


def test_what_cannot_be_packed_is_told_and_nothing_is_left(store, tmp_path):
    waiting = store.create(fake.grpo(5))
    with pytest.raises(LabError, match="made no step yet"):
        packing.write(store, waiting, tmp_path / "c.zip")
    run_id = faked(store)
    with pytest.raises(LabError, match="is a folder"):
        packing.write(store, run_id, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot be written"):
        packing.write(store, run_id, tmp_path / "file" / "c.zip")
    with pytest.raises(LabError, match="elsewhere"):
        packing.write_own(store, "../elsewhere")
    (run_folder(run_id) / "checkpoints" / "step-000000").rename(tmp_path / "gone")
    with pytest.raises(LabError, match="lost its first checkpoint"):
        packing.write(store, run_id, tmp_path / "c.zip")
    assert not list(tmp_path.glob("*.zip")) and not list(tmp_path.glob(".capsule-*"))


def test_a_lost_file_of_the_user_is_told(store, tmp_path):
    data = uploads.keep("pairs.jsonl", b'{"prompt": "a", "chosen": "b", "rejected": "c"}\n')
    run_id = store.create(make(algorithm_key="dpo", task_key="preferences", data=str(data), model="tiny", steps=2,
                               knobs={"sft_steps": 0}))
    drive(store, run_id, start=fake.start)
    data.unlink()
    with pytest.raises(LabError, match=r"The file pairs\.jsonl .* is gone"):
        packing.write(store, run_id, tmp_path / "c.zip")


def test_the_runs_own_capsule_is_replaced_as_a_whole(store):
    run_id = faked(store)
    for _ in range(2):
        path = packing.write_own(store, run_id)
    assert [each.name for each in path.parent.iterdir()] == [f"{run_id}.capsule.zip"]


@pytest.mark.parametrize("year", [1970, 1979, 2108, 2500])
def test_a_clock_may_show_what_no_zip_can_hold(store, tmp_path, monkeypatch, year):
    then = time.mktime((year, 6, 1, 0, 0, 0, 0, 0, -1)) if year > 1970 else 0.0
    run_id = faked(store, 3)
    for path in run_folder(run_id).rglob("*"):
        os.utime(path, (then, then))
    monkeypatch.setattr(time, "time", lambda: then)
    packed = packing.write(store, run_id, tmp_path / "run.zip")
    folder.export_zip(store, run_id)
    monkeypatch.undo()
    with reading.unpacked(packed) as capsule:
        assert capsule.run == run_id and len(capsule.rows) == 3
