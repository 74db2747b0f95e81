"""Run capsules: complete, without a trace of the user's folders, and never believed before they are checked."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import labcore
from labcore.errors import LabError
from labcore.runs import capsule, capsule_file, capsule_zip, checkpoint, fork, uploads, versions
from labcore.runs.paths import run_folder
from labcore.runs.spec import RunSpec, make
from labcore.runs.store import Store
from labcore.runs.worker import drive
from tests.runs import fake


@pytest.fixture
def store():
    return Store()


def ran(store, steps: int = 25, **knobs) -> str:
    run_id = store.create(fake.grpo(steps, **knobs))
    store.ask(run_id, "set", {"knob": "beta", "value": 0.2})
    drive(store, run_id, start=fake.start)
    return run_id


@pytest.fixture
def packed(store, tmp_path) -> Path:
    return capsule.write(store, ran(store), tmp_path / "run.capsule.zip")


def content(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sealed(path: Path, changed: dict[str, bytes | None] | None = None, **manifest) -> Path:
    """The capsule again with other files (None: left out) under their true hashes, and another manifest."""
    files = {name: text for name, text in (content(path) | (changed or {})).items() if text is not None}
    told = json.loads(files.pop(capsule.MANIFEST)) | manifest
    if "files" not in manifest:
        told["files"] = {name: {"sha256": hashlib.sha256(text).hexdigest(), "bytes": len(text)}
                         for name, text in files.items()}
    return rewritten(path, files | {capsule.MANIFEST: json.dumps(told).encode()})


def rewritten(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def refused(path: Path) -> str:
    """Why the capsule is refused: one sentence or two, about this file."""
    with pytest.raises(LabError) as caught, capsule_file.unpacked(path):
        raise AssertionError("it was read")
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------- writing


def test_a_capsule_holds_everything_with_its_hash(store, packed):
    files = content(packed)
    manifest = json.loads(files.pop("manifest.json"))
    assert {name: seal["sha256"] for name, seal in manifest["files"].items()} == {
        name: hashlib.sha256(text).hexdigest() for name, text in files.items()}
    seen = {"lines/step-000020.json", *(f"samples/step-{step:06d}.json" for step in (5, 10, 15, 20, 25))}
    assert set(files) == {"README.txt", "spec.json", "metrics.csv", "events.csv", "knobs.csv", *seen, *(
        f"checkpoints/step-{step:06d}/{name}" for step in (0, 25) for name in ("state.json", "policy/state.json"))}
    run = store.run(manifest["run"])
    assert RunSpec.from_json(files["spec.json"].decode()) == run.spec
    assert (manifest["state"], manifest["step"]) == ("finished", 25)
    assert manifest["made_with"][0]["torch"] == manifest["exported_with"]["torch"] and manifest["made_with"][0]["code"]
    assert list(csv.reader(io.StringIO(files["knobs.csv"].decode()))) == [
        ["step", "update", "knob", "from", "to"], ["1", "0", "beta", "0.04", "0.2"]]


def test_reading_gives_back_what_was_written(store, packed):
    with capsule_file.unpacked(packed) as found:
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
    store.log(run_id, "failed", {"text": f"The file {data} and {home}/x and {home}/models/mine are bad",
                                 "more": [str(home)]}, 0)
    drive(store, run_id, start=fake.start)
    path = capsule.write(store, run_id, tmp_path / "c.zip")
    for name, text in content(path).items():
        assert b"someone" not in text and str(tmp_path).encode() not in text, name
    told = RunSpec.from_json(content(path)["spec.json"].decode())
    assert (told.data, told.model) == ("data/my questions.jsonl", "checkpoints/step-000000/policy")
    assert content(path)[told.data] == data.read_bytes()
    with capsule_file.unpacked(path) as found:
        assert found.data.read_bytes() == data.read_bytes()
        assert found.events[1].payload["text"] == "The file my questions.jsonl and ~/x and mine are bad"


def test_a_fork_takes_along_where_it_began(store, tmp_path):
    parent = ran(store, 10)
    child = store.create(fork.fork_spec(store, parent, 10, knobs={"beta": 0.5}, steps=15))
    drive(store, child, start=fake.start)
    with capsule_file.unpacked(capsule.write(store, child, tmp_path / "c.zip")) as found:
        assert found.first.name == "step-000010" and found.spec.parent == (parent, 10)
        assert [row.step for row in found.rows] == [11, 12, 13, 14, 15]


def test_what_is_too_large_is_left_out_with_its_hash(store, tmp_path, monkeypatch):
    run_id = ran(store)
    (run_folder(run_id) / "checkpoints" / "step-000000" / "policy" / "model.safetensors").write_bytes(b"weights")
    monkeypatch.setattr(capsule, "LARGEST", 10)
    path = capsule.write(store, run_id, tmp_path / "c.zip")
    with capsule_file.unpacked(path) as found:
        assert found.first is None
        assert found.manifest["left_out"]["weights"] == {"model.safetensors": hashlib.sha256(b"weights").hexdigest()}
    assert not [name for name in content(path) if name.startswith("checkpoints/")]


def test_of_a_newest_checkpoint_that_is_too_large_the_policy_is_kept(store, tmp_path, monkeypatch):
    run_id = ran(store)
    newest = run_folder(run_id) / "checkpoints" / "step-000025"
    (newest / "optimizer.safetensors").write_bytes(bytes(100_000))
    monkeypatch.setattr(capsule, "LARGEST", 50_000)
    names = set(content(capsule.write(store, run_id, tmp_path / "c.zip")))
    assert "checkpoints/step-000025/policy/state.json" in names
    assert "checkpoints/step-000025/optimizer.safetensors" not in names
    assert "checkpoints/step-000000/state.json" in names


def test_of_what_there_is_to_look_at_the_newest_is_taken(store, tmp_path, monkeypatch):
    monkeypatch.setattr(capsule, "MOST_SEEN", 60)  # two of these samples
    names = set(content(capsule.write(store, ran(store), tmp_path / "c.zip")))
    assert {name for name in names if name.startswith(capsule.SEEN)} == {
        "samples/step-000025.json", "samples/step-000020.json"}


def test_a_newest_checkpoint_deleted_meanwhile_is_replaced_by_the_next(store, tmp_path, monkeypatch):
    run_id = ran(store)
    folder, real, moved = run_folder(run_id) / "checkpoints", capsule.sha256, []

    def sha256(path):
        if not moved:  # the worker has just deleted it
            moved.append((folder / "step-000025").rename(folder / "step-000024"))
        return real(path)

    monkeypatch.setattr(capsule, "sha256", sha256)
    names = set(content(capsule.write(store, run_id, tmp_path / "c.zip")))
    assert moved and "checkpoints/step-000024/state.json" in names
    assert not [name for name in names if name.startswith("checkpoints/step-000025")]


def test_a_going_runs_checkpoint_is_not_newer_than_its_rows(store, tmp_path, monkeypatch):
    run_id = ran(store)
    rows = [row for row in store.steps_after(run_id) if row.step <= 7]  # read just before step 8 was made
    monkeypatch.setattr(store, "steps_after", lambda _: rows)
    path = capsule.write(store, run_id, tmp_path / "c.zip")
    assert {name.split("/")[1] for name in content(path) if name.startswith("checkpoints/")} == {"step-000000"}
    later = {name.replace("000000", "000025"): text for name, text in content(path).items() if "step-000000" in name}
    assert "is of a later step than its last, 7" in refused(sealed(path, later))


def test_what_cannot_be_packed_is_told_and_nothing_is_left(store, tmp_path):
    waiting = store.create(fake.grpo(5))
    with pytest.raises(LabError, match="made no step yet"):
        capsule.write(store, waiting, tmp_path / "c.zip")
    run_id = ran(store)
    with pytest.raises(LabError, match="is a folder"):
        capsule.write(store, run_id, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot be written"):
        capsule.write(store, run_id, tmp_path / "file" / "c.zip")
    with pytest.raises(LabError, match="elsewhere"):
        capsule.write_own(store, "../elsewhere")
    (run_folder(run_id) / "checkpoints" / "step-000000").rename(tmp_path / "gone")
    with pytest.raises(LabError, match="lost its first checkpoint"):
        capsule.write(store, run_id, tmp_path / "c.zip")
    assert not list(tmp_path.glob("*.zip")) and not list(tmp_path.glob(".capsule-*"))


def test_a_lost_file_of_the_user_is_told(store, tmp_path):
    data = uploads.keep("pairs.jsonl", b'{"prompt": "a", "chosen": "b", "rejected": "c"}\n')
    run_id = store.create(make(algorithm_key="dpo", task_key="preferences", data=str(data), model="tiny", steps=2,
                               knobs={"sft_steps": 0}))
    drive(store, run_id, start=fake.start)
    data.unlink()
    with pytest.raises(LabError, match=r"The file pairs\.jsonl .* is gone"):
        capsule.write(store, run_id, tmp_path / "c.zip")


def test_the_runs_own_capsule_is_replaced_as_a_whole(store):
    run_id = ran(store)
    for _ in range(2):
        path = capsule.write_own(store, run_id)
    assert [each.name for each in path.parent.iterdir()] == [f"{run_id}.capsule.zip"]


# ---------------------------------------------------------------- capsules from anybody


def test_what_is_no_capsule(packed, tmp_path):
    assert "There is no file" in refused(tmp_path / "none.zip")
    assert "is a folder" in refused(tmp_path)
    (tmp_path / "text.zip").write_text("hello")
    assert "not a whole zip file" in refused(tmp_path / "text.zip")
    assert "holds no manifest.json" in refused(rewritten(tmp_path / "x.zip", {"a.txt": b"a"}))
    assert "is not JSON" in refused(rewritten(tmp_path / "x.zip", {"manifest.json": b"{"}))
    assert "is not JSON" in refused(rewritten(tmp_path / "x.zip", {"manifest.json": b"[" * 100_000}))
    assert "not a run capsule's" in refused(rewritten(tmp_path / "x.zip", {"manifest.json": b"[]"}))
    assert "not a run capsule's" in refused(sealed(packed, format="a cake"))


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.99])
def test_a_capsule_that_was_cut_off(packed, share):
    text = packed.read_bytes()
    packed.write_bytes(text[:int(len(text) * share)])
    assert "copy it again" in refused(packed)


def test_another_version(packed):
    assert "version 2, and this lab reads version 1" in refused(sealed(packed, version=2))


def test_a_wrong_hash(packed):
    files = content(packed)
    files["metrics.csv"] = files["metrics.csv"].replace(b"1", b"2", 1)
    assert "metrics.csv in run.capsule.zip is not what was packed" in refused(rewritten(packed, files))


def test_a_damaged_byte(packed):
    with zipfile.ZipFile(packed) as archive:
        entry = archive.getinfo("metrics.csv")
    text = bytearray(packed.read_bytes())
    text[entry.header_offset + 30 + len("metrics.csv") + entry.compress_size // 2] ^= 0xFF
    packed.write_bytes(text)
    assert "run.capsule.zip" in refused(packed)


def test_missing_and_extra_files(packed):
    files = content(packed)
    without = {name: text for name, text in files.items() if name != "events.csv"}
    assert "'events.csv' is missing" in refused(rewritten(packed, without))
    assert "'evil.txt' is not in its manifest" in refused(rewritten(packed, files | {"evil.txt": b"x"}))
    rewritten(packed, files)
    assert "'evil.py' is no part of a capsule" in refused(sealed(packed, {"evil.py": b"x"}))
    rewritten(packed, files)
    assert "'metrics.csv' is missing" in refused(sealed(packed, {"metrics.csv": None}))


@pytest.mark.parametrize("text", [b"[]", b"{}", b'{"step": "many"}', b"{"])
def test_samples_that_make_no_sense(packed, text):
    assert "is not a sound capsule" in refused(sealed(packed, {"samples/step-000025.json": text}))


def test_a_lost_first_checkpoint(packed):
    gone = {name: None for name in content(packed) if name.startswith("checkpoints/step-000000")}
    assert "the checkpoint that the run began with is missing" in refused(sealed(packed, gone))


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "checkpoints/../../evil", "a\\..\\evil", "C:evil", "a//b",
                                  "./evil", "evil\n", "data/"])
def test_names_that_lead_elsewhere(packed, name, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    files = content(packed)
    assert "is not a plain path within it" in refused(rewritten(packed, files | {name: b"x"}))
    rewritten(packed, files)
    assert "is not a plain path within it" in refused(sealed(packed, {name: b"x"}))
    assert sorted(tmp_path.rglob("*")) == before and not Path("/etc/evil").exists()


@pytest.mark.parametrize("name", ["spec.json", "SPEC.json"])
def test_a_name_that_is_there_twice(packed, name):
    with pytest.warns(UserWarning) if name == "spec.json" else io.StringIO(), zipfile.ZipFile(packed, "a") as archive:
        archive.writestr(name, b"{}")
    assert "is in it twice" in refused(packed)


def test_links_and_locks(packed):
    files = content(packed)
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o120777 if name == "spec.json" else 0o644) << 16
            archive.writestr(info, text)
    assert "'spec.json' is a link" in refused(packed)
    text = rewritten(packed, files).read_bytes()
    at = text.rindex(b"PK\x01\x02")
    packed.write_bytes(text[:at + 8] + b"\x01" + text[at + 9:])  # the flag that says: encrypted
    assert "is encrypted" in refused(packed)


def test_bombs(packed, monkeypatch):
    monkeypatch.setattr(capsule_zip, "SMALL", 2**20)
    with capsule_file.unpacked(packed):
        pass
    bomb = sealed(packed, {"checkpoints/step-000000/zeros": bytes(32 * 2**20)})
    assert "it would unpack to 0.03 GiB from 0.0" in refused(bomb)
    monkeypatch.setattr(capsule_zip, "LARGEST", 1000)
    assert "it would unpack to" in refused(packed)
    monkeypatch.setattr(capsule_zip, "MOST_FILES", 3)
    assert "it holds 17 files" in refused(packed)


@pytest.mark.parametrize("file, limit, most", [
    ("manifest.json", "TEXT_BYTES", 100), ("spec.json", "TEXT_BYTES", 20_000), ("events.csv", "TABLE_BYTES", 100),
    ("samples/step-000030.json", None, 2**25), ("data/mine.txt", None, 2**26)])
def test_each_file_has_its_limit(packed, monkeypatch, file, limit, most):
    if limit:
        monkeypatch.setattr(capsule_zip, limit, most)
    larger = {} if file in ("manifest.json", "events.csv") else {file: bytes(most + 1)}
    assert f"{file!r} has " in refused(sealed(packed, larger))


def test_a_file_that_is_a_folder_too(packed):
    assert "'checkpoints/step-000000/a' is a file and a folder" in refused(sealed(packed, {
        "checkpoints/step-000000/a": b"", "checkpoints/step-000000/A/b": b""}))


def test_a_full_disk_is_foreseen(packed, monkeypatch):
    monkeypatch.setattr(capsule_zip.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10}))
    assert "free some space" in refused(packed)


def test_manifests_that_make_no_sense(packed):
    files = content(packed)
    told = json.loads(files["manifest.json"])
    for key, value in {"run": "../../x", "state": "sleeping", "step": "many", "made_with": [3], "files": [],
                       "left_out": None}.items():
        broken = files | {"manifest.json": json.dumps(told | {key: value}).encode()}
        assert "is not a sound capsule" in refused(rewritten(packed, broken)), key
    rewritten(packed, files)
    assert "does not end with step 26" in refused(sealed(packed, step=26))


@pytest.mark.parametrize("key", ["created", "started", "ended"])
@pytest.mark.parametrize("time", [float("nan"), float("inf"), 1e300, 10**400, -1, True, "now"])
def test_times_that_no_clock_shows(packed, key, time):
    assert "no proper times" in refused(sealed(packed, **{key: time}))


def test_versions_that_count_from_no_step(packed):
    assert "no proper 'made_with'" in refused(sealed(packed, made_with=[{"from": "3"}]))


@pytest.mark.parametrize("change, words", [
    ({"data": "/etc/passwd"}, "names a file outside"), ({"data": "../x"}, "names a file outside"),
    ({"data": "data/none"}, "names a file outside"), ({"kind": ["llm"]}, "is no run's"),
    ({"parent": ["../x", 3]}, "is no run's"), ({"parent": 3}, "not a run's spec.json"),
    ({"knobs": 3}, "is no run's"), ({"what": 1}, "not a run's spec.json")])
def test_specs_that_make_no_sense(packed, change, words):
    spec = json.loads(content(packed)["spec.json"])
    assert words in refused(sealed(packed, {"spec.json": json.dumps(spec | change).encode()}))


@pytest.mark.parametrize("change, words", [
    ({"algorithm": "alchemy"}, "no algorithm 'alchemy'"), ({"task": "x"}, "no task 'x'"), ({"kind": "y"}, "no kind"),
    ({"knobs": {"beta": 1e9}}, "outside its bounds"), ({"knobs": {"magic": 1}}, "no knob 'magic'"),
    ({"steps": 0}, "steps must be"), ({"threads": "many"}, "threads must be"), ({"device": "abacus"}, "no device")])
def test_specs_are_checked_as_if_typed_in(packed, change, words):
    spec = json.loads(content(packed)["spec.json"])
    sealed(packed, {"spec.json": json.dumps(spec | change).encode()})
    with capsule_file.unpacked(packed) as found, pytest.raises(LabError, match=words):
        found.located("tiny", None)


@pytest.mark.parametrize("table, words", [
    (b"", "is no table"), (b"step,tokens,seconds\n1,2\n", "is no table"), (b"step,tokens\n1,2\n", "has no column"),
    (b"step,tokens,seconds,magic\n1,2,3,4\n", "the metric 'magic', which this lab does not know"),
    (b"step,tokens,seconds,reward\n1,2,3,NaN\n", "'NaN' in its tables is no number"),
    (b"step,tokens,seconds,reward\n1,2,3,true\n", "'true' in its tables is no number"),
    (b"step,tokens,seconds,reward\n1,2,3,x\n", "is no number"), (b"step,tokens,seconds\n1.5,2,3\n", "count its steps"),
    (b"step,tokens,seconds\n1,1%s,3\n" % (b"0" * 30), "is beyond 2**53"),
    (b"step,tokens,seconds\n1%s,1,3\n" % (b"0" * 400), "is beyond 2**53"),
    (b"step,tokens,seconds,reward\n1,2,3,-1%s\n" % (b"0" * 400), "is beyond 2**53"),
    (b"step,tokens,seconds\n1,1,1e300\n", "count its seconds"),
    (b"step,tokens,seconds\n2,2,3\n1,2,3\n", "count its steps"), (b"step,tokens,seconds\n1,2,3\n", "end with step 25"),
    (b"\xff\xfe", "is not UTF-8")])
def test_metrics_that_make_no_sense(packed, table, words):
    assert words in refused(sealed(packed, {"metrics.csv": table}))


@pytest.mark.parametrize("line", ['1,0.0,knob,,"{}"', "1,0.0,knob,,[]", "x,0.0,a,,{}", "1,0.0,<b>,,{}", "1,0,a,,{",
                                  "1,1e300,a,,{}", "1,-1,a,,{}",
                                  '1,0.0,knob,,"{""knob"": ""beta"", ""update"": 0, ""between"": 0, ""to"": NaN}"',
                                  '1,0.0,knob,,"{""knob"": ""beta"", ""update"": 0, ""between"": 0, ""to"": 1%s}"'
                                  % ("0" * 400),
                                  '1,0.0,knob,,"{""knob"": ""beta"", ""update"": 0, ""between"": 7, ""to"": 1}"'])
def test_events_that_make_no_sense(packed, line):
    table = f"step,time,kind,text,payload\n{line}\n"
    assert "is not a sound capsule" in refused(sealed(packed, {"events.csv": table.encode()}))


def test_a_long_cell_is_read_whatever_was_imported_before(packed):
    csv.field_size_limit(128 * 1024)
    payload = json.dumps(json.dumps({"text": "x" * 200_000}))[1:-1].replace('\\"', '""')
    table = f'step,time,kind,text,payload\n1,0.0,failed,,"{payload}"\n'
    with capsule_file.unpacked(sealed(packed, {"events.csv": table.encode()})) as found:
        assert len(found.events[0].payload["text"]) == 200_000


# ---------------------------------------------------------------- what a run was made with


def test_versions_are_noted_once_and_again_when_they_change(store, monkeypatch):
    run_id = ran(store, 5)
    [told] = versions.noted(run_folder(run_id))
    assert told["from"] == 0 and told["lab"] and len(told["code"]) == 12
    versions.note(run_folder(run_id), 3, None)
    assert versions.noted(run_folder(run_id)) == [told]
    monkeypatch.setattr(versions, "here", lambda device=None: {"torch": "99"})
    versions.note(run_folder(run_id), 4, None)
    assert versions.noted(run_folder(run_id)) == [told, {"from": 4, "torch": "99"}]


def test_the_labs_version_is_the_packages():
    project = tomllib.loads((Path(labcore.__file__).parents[1] / "pyproject.toml").read_text())
    assert versions.here()["lab"] == labcore.__version__ == project["project"]["version"]


def test_the_code_is_known_by_its_content(tmp_path, monkeypatch):
    root = tmp_path / "labcore"
    (root / "maths").mkdir(parents=True)
    (root / "__init__.py").write_text("")
    (root / "maths" / "kl.py").write_text("a = 1\n")
    monkeypatch.setattr(versions.labcore, "__file__", str(root / "__init__.py"))
    codes = []
    for text in ("a = 1\n", "a = 2\n", "a = 1\n"):
        (root / "maths" / "kl.py").write_text(text)
        versions.code.cache_clear()
        codes.append(versions.code())
    versions.code.cache_clear()
    assert codes[0] == codes[2] != codes[1]


def test_capsules_are_read_without_torch():
    code = ("import sys, labcore.runs.capsule, labcore.runs.capsule_file, labcore.runs.replay, labcore.cli.main;"
            "assert not {'torch', 'transformers', 'streamlit'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(capsule.__file__).parents[2])
