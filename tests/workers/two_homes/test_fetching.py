"""What pages, exports, forks and runs want of another home comes from the store."""

from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from app.training import files
from labcore.errors import LabError
from labcore.exports.capsules import packing
from labcore.exports.folder import export_run
from labcore.llm.nets.folder import find
from labcore.runs import models, versions
from labcore.runs.files import bases, uploads
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.artifacts import deletion, fetch, object_store
from labcore.runs.files.paths import run_folder
from labcore.runs.fork import fork_spec, steps_to_fork
from labcore.runs.spec import model_names
from labcore.runs.spec.run_spec import RunSpec, base_spec, make
from labcore.tasks.task import make_task
from tests.runs import fake
from tests.workers.tools import run
from tests.workers.two_homes.tools import STEPS, objects


@pytest.mark.parametrize("gone", [False, True])
def test_a_fork_starts_in_a_home_that_has_nothing_of_its_parent(machines, store, gone):
    """Also where the parent was deleted since."""
    parent = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, parent) == "finished"
    here = store.create(fork_spec(store, parent, 50, steps=70), mine=True)
    assert run(store, here) == "finished"
    machines.at("b")
    assert steps_to_fork(parent) == [0, 50, 60]
    fork = store.create(fork_spec(store, parent, 50, steps=70))
    assert not (run_folder(fork) / "start").exists()
    if gone:
        store.delete(parent)
        deletion.clear(object_store.opened())
        assert fetch.names(parent, "checkpoints") == []
    assert store.claim(fork)
    assert run(store, fork) == "finished", store.run(fork).message
    assert fake.trained(store, fork) == fake.trained(store, here)
    assert not objects(machines.shared / fork / "start")  # no longer needed


def test_what_the_page_and_the_exports_want_of_a_run_comes_from_the_store(machines, store, tmp_path):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    machines.at("b")
    assert files.steps_of(run_id, "samples") == list(range(5, 61, 5))
    assert files.steps_of(run_id, "lines") == [20, 40, 60]
    found = files.load(run_id, "samples", 25)
    assert found is not None and found | {"prompt_hashes": []} == {"step": 25, "groups": [], "prompt_hashes": []}
    assert files.load(run_id, "samples", 26) is None
    assert [path.name for path in (run_folder(run_id) / "samples").iterdir()] == ["step-000025.json"]
    assert models.spec_of(run_id) == store.run(run_id).spec and models.steps(run_id) == [0, 50, 60]
    assert model_names.parse(run_id).pinned.step == 60
    assert models.source(model_names.parse(f"{run_id}@50")).checkpoint.is_dir()
    assert versions.noted(run_folder(run_id))[0]["lab"]
    folder = export_run(store, run_id, tmp_path / "export")
    assert (folder / "checkpoint" / "state.json").is_file()
    with ZipFile(packing.write(store, run_id, tmp_path / "capsule.zip")) as capsule:
        names = capsule.namelist()
    assert {"checkpoints/step-000000/state.json", "checkpoints/step-000060/state.json", "samples/step-000005.json"} <= {
        name.partition("/")[2] if name.startswith(run_id) else name for name in names}


def test_a_store_that_is_away_is_said_where_something_is_wanted_of_it(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    object_store.opened().begin()
    machines.at("b")
    machines.unplug()
    assert files.steps_of(run_id, "samples") == [] and checkpoint.steps(run_folder(run_id)) == []
    with pytest.raises(LabError, match="is not there"):
        files.load(run_id, "samples", 25)


def test_a_base_is_made_once_for_both_homes(machines, store):
    spec = replace(fake.grpo(10), knobs=fake.grpo(10).knobs | {"sft_steps": 4, "length_high": 6})
    name = base_spec(spec).hash()
    assert not bases.shipped(name)
    first = store.create(spec, mine=True)
    assert run(store, first) == "finished", store.run(first).message
    machines.at("b")
    assert bases.there(name) and not bases.folder(name).exists()
    second = store.create(spec, mine=True)
    assert run(store, second) == "finished", store.run(second).message
    assert fake.trained(store, second) == fake.trained(store, first)
    assert bases.maker(name) == store.run(first).base == store.run(second).base


def test_a_file_that_a_spec_names_in_another_home_is_fetched(machines, store):
    kept = uploads.keep("lines.jsonl", b'{"prompt": "a", "answer": "b"}\n' * 8)
    spec = make(algorithm_key="grpo", task_key="prompts", steps=STEPS, data=str(kept))
    digest, size = spec.hash(), make_task(spec.task_row, spec.knobs, spec.data).size
    home = machines.at("b")
    assert not kept.exists() and spec.hash() == digest
    assert make_task(spec.task_row, spec.knobs, spec.data).size == size
    assert uploads.file_at(kept.parent.name) == home / "uploads" / kept.parent.name / "lines.jsonl"
    assert RunSpec.from_json(spec.to_json()) == spec


def test_a_model_that_a_spec_names_in_another_home_is_fetched(machines, store):
    run_id = store.create(fake.grpo(STEPS), mine=True)
    assert run(store, run_id) == "finished"
    model = model_names.model_of_name(f"{run_id}@50")
    machines.at("b")
    assert not Path(model).exists()
    assert find(model) == run_folder(run_id) / "checkpoints" / "step-000050" / "policy" and find(model).is_dir()
    assert model_names.model_of_name(f"{run_id}@50") == str(find(model))
