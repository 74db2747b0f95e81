"""Where the models of a run come from."""

from dataclasses import replace
from pathlib import Path

import pytest

from labcore.errors import LabError
from labcore.runs.files.atomic import write_text
from labcore.runs.files.paths import home, run_folder
from labcore.runs.models import base_folder, offered, source
from labcore.runs.spec.model_names import BASE, START, Model, parse
from labcore.runs.spec.run_spec import BASE_SEED, base_spec, make


def run(run_id: str, *steps: int, **given) -> str:
    spec = make(**{"algorithm_key": "grpo", "task_key": "sort", **given})
    write_text(run_folder(run_id) / "spec.json", spec.to_json())
    for step in steps:
        (run_folder(run_id) / "checkpoints" / f"step-{step:06d}" / "policy").mkdir(parents=True)
    return run_id


def taught(run_id: str):
    """The base model that SFT makes for the run."""
    folder = home() / "base" / base_spec(source(Model(run_id, START)).spec).hash() / "model"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_the_newest_is_pinned_and_all_are_offered_in_the_order_of_training():
    name = run("a", 0, 20, 60)
    assert parse(name).pinned == Model("a", step=60) and parse("base:a").pinned == Model("a", BASE)
    assert [model.name for model in offered(name)] == ["start:a", "base:a", "a@20", "a@60"]
    assert [model.name for model in offered(run("b", 5, knobs={"sft_steps": 0}))] == ["base:b", "b@5"]


def test_where_each_lies():
    run("a", 0, 20, seed=4)
    assert source(parse("a")).checkpoint == run_folder("a") / "checkpoints" / "step-000020"
    folder = taught("a")
    assert source(parse("base:a")).weights == str(folder)
    start = source(parse("start:a"))
    assert (start.checkpoint, start.weights, start.spec.seed) == (None, None, BASE_SEED)


def test_a_base_that_comes_with_the_lab_is_read_where_it_is():
    run("a", 20)
    assert Path(source(parse("base:a")).weights).is_dir() and not [*home().rglob("*.safetensors")]


def test_a_base_without_sft_is_the_run_s_own_random_or_given_weights(tmp_path):
    run("random", 1, knobs={"sft_steps": 0}, seed=7)
    assert (source(parse("base:random")).weights, source(parse("base:random")).spec.seed) == (None, 7)
    run("given", 1, model=str(tmp_path))
    assert source(parse("base:given")).weights == str(tmp_path)
    with pytest.raises(LabError, match="no start before them: take base:given"):
        source(parse("start:given"))


def test_a_fork_s_base_is_that_of_its_root():
    run("root", 10, seed=3, knobs={"sft_steps": 0})
    fork = run("fork", 20, seed=9, knobs={"sft_steps": 0}, parent=("root", 10))
    assert source(parse(f"base:{fork}")).spec.seed == 3
    lost = run("lost", 20, seed=9, knobs={"sft_steps": 0}, parent=("gone", 10))
    assert source(parse(f"base:{lost}")).spec == replace(source(parse(lost)).spec, parent=None)


@pytest.mark.parametrize("name, words", [
    ("nobody", "run nobody has no model here"), ("a", "no checkpoint yet: wait for its first step"),
    ("b@3", "no checkpoint of step 3 any more: take one of 1, 2"), ("base:c", "The base model of 'sort' is gone"),
    ("maze", "is no language model")])
def test_what_is_not_there_is_one_sentence(name, words):
    run("a")
    run("b", 1, 2)
    run("c", knobs={"letters": 5})  # none that comes with the lab
    run("maze", kind="maze", algorithm_key="q_learning", task_key="corridors")
    with pytest.raises(LabError, match=words):
        source(parse(name))


def test_a_file_that_is_gone_is_told(tmp_path):
    data = tmp_path / "p.jsonl"
    data.write_text('{"prompt": "a", "answer": "b"}')
    spec = make(algorithm_key="grpo", task_key="prompts", data=str(data))
    data.unlink()
    with pytest.raises(LabError, match=r"There is no file .*p.jsonl"):
        base_folder(spec)
