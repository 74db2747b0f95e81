"""The bases that come with the lab: named by the specs of today, made again by SFT, taken whole or not at all."""

import json
import re
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from safetensors.numpy import load_file

from labcore.catalog import kinds
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.errors import LabError
from labcore.llm.evaluation import evaluate
from labcore.llm.session import LlmSession
from labcore.runs.files import bases
from labcore.runs.files.paths import home
from labcore.runs.models import base_folder
from labcore.runs.spec.model_names import model_of_name
from labcore.runs.spec.run_spec import RunSpec, base_spec, make
from labcore.workers import ship_bases
from labcore.workers.base import base_model
from tests.runs import fake
from tests.workers.tools import run

# The base of sort stops at the same step on every processor (measured from SSE to AVX-512), at weights 5e-7 to 2e-6 of
# their norm away: SORT_CLOSE is a hundred times as far, and another seed is much farther. The other models take more
# steps or a higher learning rate, which amplify any difference in rounding (the teacher: 3 % of the norm), and stop
# where 256 answers first reach their target: their exact match is compared, with a standard error of 0.02.
SORT_CLOSE, ADD_CLOSE = 2e-4, 0.1


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose base of sort the fake session can read; its folder."""
    folder = tmp_path / "package" / NAME
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "state.json").write_text('{"weight": 0.5}')
    (folder / "run.json").write_text('{"run": null}')
    monkeypatch.setattr(bases, "SHIPPED", folder.parent)
    return folder


@pytest.fixture(autouse=True)
def briefly(monkeypatch):
    """Each fake run ends after three steps, which are enough, because SFT may end early, too."""
    real = fake.FakeSession.run
    monkeypatch.setattr(fake.FakeSession, "run", lambda session: islice(real(session), 3))


def sort_spec(**knobs):
    return make(algorithm_key="grpo", task_key="sort", steps=6, knobs=knobs)


NAME = base_spec(sort_spec()).hash()


def distance(one, other) -> float:
    """The L2 norm of the difference of two sets of weights, of that of the second."""
    assert one.keys() == other.keys()
    norm = np.sqrt(sum(float((other[key] ** 2).sum()) for key in other))
    return np.sqrt(sum(float(((one[key] - other[key]) ** 2).sum()) for key in other)) / norm


def no_training(_run_id):
    raise AssertionError("nothing is trained")


def test_they_are_named_by_the_specs_of_today_and_serve_every_algorithm():
    names = {*ship_bases.specs(), ship_bases.scorer_spec().hash()}
    assert {path.name for path in bases.SHIPPED.iterdir()} == names
    assert f"PRM {ship_bases.scorer_spec().hash()}" == kinds.task(ship_bases.TEACHER, "llm").scorer
    teacher = {"teacher": str(bases.SHIPPED / ship_bases.teacher_spec().hash() / "model")}
    for row in ALGORITHMS.values():
        asks = {"teacher", "context_share"} & {knob.key for knob in row.knobs}
        own = "context_share" in asks  # its base is taught to use a context, which none that is shipped is
        for task in ship_bases.TASKS if row.loop != "sft" and not own else ():
            spec = make(algorithm_key=row.key, task_key=task, knobs=teacher if asks else {})
            assert bases.shipped(base_spec(spec).hash()), (row.key, task)


def exact_match(spec: RunSpec, model) -> float:
    """The share of 512 problems that a base gets right."""
    asked = replace(spec, knobs={**spec.knobs, "eval_prompts": 512})
    return evaluate(LlmSession.start(asked, model)).metrics["exact_match"]


def test_they_answer_as_well_as_sft_was_to_teach_them():
    for name, spec in ship_bases.specs().items():
        got = exact_match(spec, bases.SHIPPED / name / "model")
        assert got > spec.knobs["sft_target"] - ADD_CLOSE, (spec.task, got)


@pytest.mark.long
def test_training_makes_the_process_reward_model_again(store):
    spec = ship_bases.scorer_spec()
    made, shipped = ship_bases.trained(store, spec), bases.SHIPPED / spec.hash() / "model"
    assert contents(made).keys() == contents(shipped).keys()
    apart = distance(*(load_file(folder / "process_reward_model.safetensors") for folder in (made, shipped)))
    assert apart < SORT_CLOSE


@pytest.mark.long
@pytest.mark.timeout(600)  # two whole SFT runs, on however busy a machine
def test_sft_makes_them_again(store):
    for name, spec in ship_bases.specs().items():
        shipped, made = bases.SHIPPED / name / "model", ship_bases.trained(store, spec)
        apart = distance(*(load_file(folder / "model.safetensors") for folder in (made, shipped)))
        if name == NAME:
            assert apart < SORT_CLOSE
        else:
            assert abs(exact_match(spec, made) - exact_match(spec, shipped)) < ADD_CLOSE, spec.task


def test_they_are_small_and_hold_nothing_of_the_machine_that_made_them():
    files = [path for path in bases.SHIPPED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 4e6
    assert {path.suffix for path in files} == {".json", ".safetensors"}
    for path in files:
        content = path.read_bytes()
        if path.suffix == ".safetensors":  # the names of the tensors; their values are no text
            content = content[8:8 + int.from_bytes(content[:8], "little")]
        json.loads(content)
        assert not re.search(r"/(home|root|tmp|work|Users)/", content.decode()), path


def test_a_first_run_takes_its_base_from_the_package(store, package):
    run_id = store.create(sort_spec())
    assert run(store, run_id) == "finished"
    taken = home() / "base" / NAME
    assert contents(taken) == contents(package) and len(contents(taken)) == 2
    assert [row.spec.algorithm for row in store.runs()] == ["grpo"] and store.run(run_id).base is None
    assert not [event for event in store.events_after(run_id) if event.kind == "sft"]


def contents(folder) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_playground_takes_it_too():
    assert contents(base_folder(sort_spec()).parent) == contents(bases.SHIPPED / NAME)


def test_a_link_to_it_works_before_it_was_ever_used(package):
    assert bases.there(NAME) and not bases.folder(NAME).exists()
    assert model_of_name(f"SFT base {NAME}") == str(bases.folder(NAME) / "model")
    assert contents(bases.folder(NAME)) == contents(package) and not bases.there("0" * 12)


def test_it_is_there_whole_or_not_at_all(monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(bases.shutil, "copyfile", full)
        with pytest.raises(OSError):
            bases.take(NAME)
        with pytest.raises(LabError, match=r"cannot be copied to .* \(No space left on device\): free some space"):
            model_of_name(f"SFT base {NAME}")
    assert list((home() / "base").iterdir()) == []
    assert bases.take(NAME) == home() / "base" / NAME == bases.take(NAME)


def test_another_process_may_be_faster(monkeypatch):
    copy = bases._copy

    def late(source, target):
        copy(source, target)
        copy(source, bases.folder(NAME))

    monkeypatch.setattr(bases, "_copy", late)
    assert bases.take(NAME) == bases.folder(NAME)


@pytest.mark.parametrize("knobs", [{"letters": 5}, {"sft_target": 0.5}, {"sft_steps": 30}])
def test_another_spec_is_trained(store, knobs):
    run_id = store.create(sort_spec(**knobs))
    assert run(store, run_id) == "finished"
    assert store.run(store.run(run_id).base).spec == base_spec(sort_spec(**knobs))


def test_no_list_of_all_runs_is_read_for_a_base(store, package, monkeypatch):
    monkeypatch.setattr(type(store), "runs", no_training)
    for warm_up in (False, True):
        run_id = store.create(sort_spec(), warm_up=warm_up)
        assert run(store, run_id) == "finished"


def test_the_warm_up_is_trained_in_front_of_the_user_once(store):
    run_id = store.create(sort_spec(), warm_up=True)
    assert run(store, run_id) == "finished"
    sft, folder = store.run(run_id).base, bases.folder(NAME)
    assert store.run(sft).state == "finished" and store.run(sft).spec == base_spec(sort_spec())
    assert json.loads((folder / "run.json").read_text("utf-8")) == {"run": sft}
    assert base_model(store, run_id, sort_spec(), no_training, lambda: None) == folder / "model"


def test_a_base_that_is_there_stays_as_it_is_when_the_warm_up_is_seen(store, package):
    folder = bases.take(NAME)
    before = contents(folder)
    run_id = store.create(sort_spec(), warm_up=True)
    assert run(store, run_id) == "finished"
    assert store.run(run_id).base and contents(folder) == before
    assert sort_spec().hash() == store.run(run_id).spec.hash(), "it is no part of the spec"
