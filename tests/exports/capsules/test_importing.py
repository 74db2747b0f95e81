"""A capsule becomes a run like any other, in its own lab or another one."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from labcore.cli.main import main
from labcore.errors import LabError
from labcore.exports.capsules import importing, packing, reading
from labcore.exports.capsules.importing import import_capsule
from labcore.exports.capsules.replay import replay
from labcore.exports.recorded_studies import CAPSULES
from labcore.runs import jobs
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files import uploads
from labcore.runs.files.paths import home, run_folder
from labcore.runs.fork import fork_spec
from labcore.runs.lists import cleanup
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.runs.titles import with_titles
from labcore.workers.worker import drive
from tests.exports.capsules.tools import SMALL, maze, ran, sealed
from tests.words import says


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """elsewhere() is the store of another lab."""
    def moved() -> Store:
        monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "elsewhere"))
        return Store()
    return moved


def test_the_same_run_in_another_lab(store, elsewhere, tmp_path):
    run_id = ran(store, maze(30), {3: ("alpha", 0.3)}, stop=8)
    store.mark(run_id, project="my paper")
    path = packing.write(store, run_id, tmp_path / "run.zip")
    before, rows, events = store.run(run_id), store.steps_after(run_id), store.events_after(run_id)
    samples = {file.name: file.read_bytes() for file in (run_folder(run_id) / "samples").iterdir()}
    other = elsewhere()
    assert import_capsule(other, path) == run_id
    run = other.run(run_id)
    assert (run.spec, run.state, run.step, run.seconds) == (before.spec, "stopped", 8, before.seconds)
    assert run.tags == ("imported",) and run.project == "my paper" and run.message == "Imported from run.zip."
    assert other.steps_after(run_id) == rows
    found = other.events_after(run_id)
    assert [(e.step, e.kind, e.payload, e.time) for e in found[:-1]] == [
        (e.step, e.kind, e.payload, e.time) for e in events]
    assert (found[-1].kind, found[-1].step) == ("imported", 8)
    assert [step for step, _ in checkpoint.steps(run_folder(run_id))] == [0, 8]
    assert samples == {file.name: file.read_bytes() for file in (run_folder(run_id) / "samples").iterdir()}


def test_a_teacher_that_a_capsule_does_not_bring_is_named(store):
    """The capsule of a study whose tiny model had a small teacher."""
    path = CAPSULES / "larger_teacher.capsule.zip"
    run = store.run(import_capsule(store, path))
    name = run.spec.knobs["teacher"]
    assert f"teacher {name} is not in the capsule" in run.message
    with pytest.raises(LabError, match=f"teacher {name} .* is not in the capsule"):
        replay(path)


def test_a_teacher_s_folder_is_not_named_in_a_capsule(tmp_path):
    (tmp_path / "theirs").mkdir()
    spec = make(algorithm_key="opd", task_key="sort", knobs={"teacher": str(tmp_path / "theirs")})
    assert packing._portable(spec, None).knobs["teacher"] == "theirs"
    assert packing._without_places(spec)([f"of {tmp_path / 'theirs'}"]) == ["of theirs"]


def test_of_an_adapter_only_weights_that_the_capsule_brings_are_copied(tmp_path):
    policy, other = tmp_path / "checkpoints" / "step-000000" / "policy", tmp_path / "private"
    policy.mkdir(parents=True), other.mkdir()
    (policy / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "base_model_name_or_path": str(other)}))
    assert importing._weights(policy) == policy, "a folder of this machine that an adapter names is none of its own"
    (tmp_path / "checkpoints" / "base").mkdir()
    assert importing._weights(policy) == tmp_path / "checkpoints" / "base"


def test_an_imported_run_goes_on_as_it_would_have(store, elsewhere, tmp_path):
    whole, stopped = ran(store, maze(20), {3: ("alpha", 0.3)}), ran(store, maze(20), {3: ("alpha", 0.3)}, stop=8)
    path = packing.write(store, stopped, tmp_path / "run.zip")
    wanted = [row.metrics["td_error"] for row in store.steps_after(whole)]
    other = elsewhere()
    run_id = import_capsule(other, path)
    other.requeue(run_id)
    assert drive(other, run_id) == "finished"
    assert [row.metrics["td_error"] for row in other.steps_after(run_id)] == wanted
    child = ran(other, fork_spec(other, run_id, 8, knobs={"alpha": 0.9}, steps=12))
    assert other.run(child).step == 12


def test_a_name_that_is_taken(store, tmp_path):
    run_id = ran(store, maze(4))
    path = packing.write(store, run_id, tmp_path / "run.zip")
    second = import_capsule(store, path)
    assert second != run_id and second.startswith("q_learning-textbook-")
    assert store.steps_after(second) == store.steps_after(run_id)
    assert store.run(run_id).tags == ()
    assert says(with_titles(store.run(second).message, lambda: store), "run.zip", run_id, "taken", "new one")


def test_a_name_that_no_run_may_have(store, packed):
    for name in ("votes", "imported", "jobs", "uploads", "base", "Votes", "lab.db", "supervisor.log",
                 "imported-x", "sweep-abc123"):
        run_id = import_capsule(store, sealed(packed, run=name))
        assert run_id.startswith("grpo-sort-") and not (home() / name).is_dir(), name


@pytest.mark.parametrize("name", ["tiny", "Small", "table"])
def test_a_name_of_a_model_that_comes_with_the_lab(capsys, packed, name):
    assert main(["import", str(sealed(packed, run=name))]) == 0
    printed = capsys.readouterr()
    run_id = printed.out.strip()
    assert run_id.startswith("grpo-sort-")
    assert says(Store().run(run_id).message, packed.name, name, "taken", "new one")
    assert printed.err.startswith("labcore: GRPO sort #1: Imported from ") and "it has a new one." in printed.err


def test_a_folder_of_the_lab_outlives_a_run_of_its_name(store):
    run_id = ran(store, maze(4))
    (home() / "votes").mkdir()
    row = replace(store.run(run_id), id="votes")
    assert store.add(row, store.steps_after(run_id), store.events_after(run_id))  # as a lab of before could
    store.trash(["votes"])
    assert store.purge(time.time(), ["votes"]) == ["votes"]
    assert store.add(row, store.steps_after(run_id), store.events_after(run_id))
    store.delete("votes")
    assert (home() / "votes").is_dir() and [each.id for each in store.runs()] == [run_id]


@pytest.mark.long
def test_a_run_with_a_file_and_a_model_of_its_own(store, elsewhere, tmp_path):
    data = uploads.keep("sums.jsonl", b"".join(b'{"prompt": "%d+1=", "answer": "%d"}\n' % (n, n + 1) for n in range(9)))
    base = ran(store, make(algorithm_key="sft", task_key="prompts", data=str(data), steps=2,
                           knobs={"eval_prompts": 4}))
    model = tmp_path / "model"
    checkpoint.newest(run_folder(base))[1].joinpath("policy").rename(model)
    run_id = ran(store, make(algorithm_key="grpo", task_key="prompts", data=str(data), model=str(model), steps=3,
                             knobs=SMALL), stop=1)
    path = packing.write(store, run_id, tmp_path / "run.zip")
    other = elsewhere()
    assert import_capsule(other, path) == run_id
    spec = other.run(run_id).spec
    assert all(place.startswith(str(home() / "uploads")) for place in (spec.data, spec.model))
    child = other.create(fork_spec(other, run_id, 0, steps=1))
    second = import_capsule(other, path)  # shares the weights
    assert other.run(second).spec.model == spec.model
    cleanup.delete_spare(run_id)
    other.requeue(run_id)
    assert drive(other, run_id) == "finished", other.run(run_id).message
    other.delete(run_id)
    other.requeue(second)
    for each in (child, second):
        assert drive(other, each) == "finished", other.run(each).message
    assert jobs.compute({"job": "answer", "models": [f"base:{child}"], "temperature": 1.0, "max_new_tokens": 4,
                         "seed": 0, "prompt": "1+1=", "count": 1})


def test_what_a_capsule_brought_can_be_cleaned_up_when_its_runs_are_gone_but_not_while_it_comes_again(
        store, elsewhere, tmp_path):
    data = uploads.keep("sums.jsonl", b'{"prompt": "1+1=", "answer": "2"}\n')
    base = ran(store, make(algorithm_key="sft", task_key="prompts", data=str(data), steps=1,
                           knobs={"eval_prompts": 1}))
    model = checkpoint.newest(run_folder(base))[1] / "policy"
    run_id = ran(store, make(algorithm_key="grpo", task_key="prompts", data=str(data), model=str(model), steps=1,
                             knobs=SMALL))
    path = packing.write(store, run_id, tmp_path / "run.zip")
    other = elsewhere()
    spec = other.run(import_capsule(other, path)).spec
    places = {Path(spec.data).parent, Path(spec.model).parent}

    def forgotten() -> set[Path]:
        other.delete(run_id)
        return {uploads.root() / name for name in cleanup.unused_uploads(other)}

    for file in uploads.root().rglob("*"):
        os.utime(file, (1.0, 1.0))
    assert cleanup.unused_uploads(other) == [] and forgotten() == places
    import_capsule(other, path)
    assert forgotten() == set(), "used again a moment ago"


def test_what_cannot_be_imported_leaves_nothing(store, tmp_path, monkeypatch):
    run_id = ran(store, maze(4))
    path = packing.write(store, run_id, tmp_path / "run.zip")
    with reading.unpacked(path) as found:
        spec = found.spec
    before = sorted(home().iterdir())
    monkeypatch.setattr(Store, "add", lambda *_: (_ for _ in ()).throw(LabError("the disk is full")))
    with pytest.raises(LabError, match="the disk is full"):
        import_capsule(store, path)
    sealed(path, {"spec.json": spec.to_json().replace("textbook", "nowhere").encode()})
    with pytest.raises(LabError, match="no task 'nowhere'"):
        import_capsule(store, path)
    assert sorted(set(home().iterdir()) - {home() / "imports.lock"}) == before


def test_the_command(store, tmp_path, capsys):
    run_id = ran(store, maze(4))
    path = packing.write(store, run_id, tmp_path / "run.zip")
    assert main(["import", str(path)]) == 0
    new = capsys.readouterr().out.strip()
    assert store.run(new).tags == ("imported",)
    assert main(["import", str(path), "--label", "mine"]) == 1
    (tmp_path / "x.csv").write_text("step,reward\n1,2\n")
    assert main(["import", str(path), str(tmp_path / "x.csv")]) == 1
    assert "without other files" in capsys.readouterr().err
    path.write_bytes(path.read_bytes()[:1000])
    assert main(["import", str(path)]) == 1
    assert "is not a whole zip file" in capsys.readouterr().err
