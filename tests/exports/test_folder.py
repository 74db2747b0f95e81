"""Exports: every number exactly as it was logged, and a checkpoint that stands on its own."""

import csv
import errno
import json
import shutil
import zipfile

import pytest

from labcore.errors import LabError
from labcore.exports import folder as export
from labcore.exports.folder import export_run, export_zip
from labcore.runs.files.paths import home, run_folder
from labcore.runs.spec.run_spec import RunSpec
from labcore.runs.spec.session import Record
from labcore.workers.worker import drive
from tests.runs import fake


@pytest.fixture
def run_id(store):
    run_id = store.create(fake.grpo(25))
    store.ask(run_id, "set", {"knob": "beta", "value": 0.2})
    drive(store, run_id, start=fake.start)
    return run_id


def rows(path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_metrics_are_exactly_what_was_logged(store, run_id, tmp_path):
    export_run(store, run_id, tmp_path / "out")
    header, *lines = rows(tmp_path / "out" / "metrics.csv")
    assert header == ["step", "tokens", "seconds", "reward", "kl", "updates", "tokens_per_second", "memory"]
    logged = store.steps_after(run_id)
    assert len(lines) == len(logged) == 25
    for line, step in zip(lines, logged, strict=True):
        assert (int(line[0]), int(line[1]), float(line[2])) == (step.step, step.tokens, step.seconds)
        assert {key: float(text) for key, text in zip(header[3:], line[3:], strict=True) if text} == step.metrics


def test_columns_follow_the_catalog_and_a_missing_number_is_empty(store, tmp_path):
    run_id = store.create(fake.grpo(5), mine=True)
    store.append(run_id, Record(1, 8, {"loss": 1e-300, "reward": 0.1}, env_steps=40), 0.5)
    store.append(run_id, Record(2, 16, {"exact_match": 1 / 3}, env_steps=80), 1.5)
    (run_folder(run_id) / "checkpoints" / "step-000000" / "policy").mkdir(parents=True)
    export_run(store, run_id, tmp_path)
    assert (tmp_path / "metrics.csv").read_text() == (
        "step,tokens,seconds,env_steps,reward,exact_match,loss\n1,8,0.5,40,0.1,,1e-300\n"
        "2,16,1.5,80,,0.3333333333333333,\n")


def test_events_spec_and_checkpoint(store, run_id, tmp_path):
    folder = export_run(store, run_id, tmp_path)
    header, *lines = rows(folder / "events.csv")
    assert header == ["step", "time", "kind", "text", "payload"]
    assert [line[2] for line in lines] == [e.kind for e in store.events_after(run_id)]
    knob = next(line for line in lines if line[2] == "knob")
    assert (knob[0], knob[3], json.loads(knob[4])["to"]) == ("1", "β 0.04 → 0.2", 0.2)
    assert RunSpec.from_json((folder / "spec.json").read_text()) == store.run(run_id).spec
    assert json.loads((folder / "checkpoint" / "state.json").read_text())["step"] == 25
    assert sorted(path.name for path in folder.iterdir() if path.name != "lab") == [
        "checkpoint", "events.csv", "knobs.csv", "metrics.csv", "spec.json"]
    assert rows(folder / "knobs.csv") == [["step", "update", "knob", "from", "to"], ["1", "0", "beta", "0.04", "0.2"]]


def test_an_export_replaces_an_earlier_one(store, run_id, tmp_path):
    (tmp_path / "out" / "checkpoint").mkdir(parents=True)
    (tmp_path / "out" / "checkpoint" / "old.txt").write_text("")
    export_run(store, run_id, tmp_path / "out")
    assert not (tmp_path / "out" / "checkpoint" / "old.txt").exists()


def test_the_zip_holds_the_same_in_one_folder(store, run_id, tmp_path):
    export_run(store, run_id, tmp_path / "out")
    for _ in range(2):  # a second one replaces the first
        path = export_zip(store, run_id)
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if "tfevents" not in name}
        assert names == {f"{run_id}/{name}" for name in (
            "metrics.csv", "events.csv", "knobs.csv", "spec.json", "checkpoint/state.json")}
        assert len(archive.namelist()) == len(names) + 1
        assert archive.read(f"{run_id}/metrics.csv") == (tmp_path / "out" / "metrics.csv").read_bytes()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_what_cannot_be_exported_is_told(store, run_id, tmp_path, monkeypatch):
    queued = store.create(fake.grpo(5))
    for exporter in (lambda: export_run(store, queued, tmp_path), lambda: export_zip(store, queued)):
        with pytest.raises(LabError, match="no checkpoint yet"):
            exporter()
    with pytest.raises(LabError, match="no run 'nobody'"):
        export_zip(store, "nobody")
    with pytest.raises(LabError, match="elsewhere"):
        export_zip(store, "../elsewhere")
    assert not (home().parent / "elsewhere").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="is a file"):
        export_run(store, run_id, tmp_path / "file")
    with pytest.raises(LabError, match="cannot be exported"):
        export_run(store, run_id, tmp_path / "file" / "out")
    monkeypatch.setattr(export, "write_metrics", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
    with pytest.raises(LabError, match="is full"):
        export_run(store, run_id, tmp_path / "out")


def test_a_checkpoint_deleted_while_it_is_copied_is_replaced_by_the_next(store, run_id, tmp_path, monkeypatch):
    real, newer = shutil.copytree, []

    def copytree(source, target, **options):
        if not newer:  # the worker has just written two newer ones
            newer.append(source.parent.with_name("step-000030"))
            source.parent.rename(newer[0])
        return real(source, target, **options)

    monkeypatch.setattr(export.shutil, "copytree", copytree)
    export_run(store, run_id, tmp_path / "out")
    assert newer and (tmp_path / "out" / "checkpoint" / "state.json").exists()
