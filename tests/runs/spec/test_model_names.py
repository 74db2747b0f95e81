"""What models are called, and back."""

import pytest

from labcore.cli.commands import spec_of
from labcore.cli.main import parser
from labcore.errors import LabError
from labcore.runs.files import checkpoints
from labcore.runs.files.paths import home, run_folder
from labcore.runs.spec.model_names import BASE, START, Model, model_of_name, name_of_model, parse, read
from labcore.runs.spec.run_spec import make
from tests.every import every
from tests.words import saying


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The lab's home with two checkpoints of a run and a base model."""
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path))
    for step in ("000100", "000200"):
        (run_folder("grpo-sort-ab12") / "checkpoints" / f"step-{step}" / "policy").mkdir(parents=True)
    (home() / "base" / "3fa81c" / "model").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("inside, name", [
    ("grpo-sort-ab12/checkpoints/step-000100/policy", "grpo-sort-ab12@100"), ("base/3fa81c/model", "SFT base 3fa81c")])
def test_what_the_lab_made_has_a_name_that_leads_back(folder, inside, name):
    assert name_of_model(str(folder / inside)) == name
    assert model_of_name(name) == str(folder / inside)


def test_what_comes_with_the_lab_goes_before_a_run_that_is_called_so(folder):
    (run_folder("tiny") / "checkpoints" / "step-000003" / "policy").mkdir(parents=True)
    assert model_of_name("tiny") == "tiny"
    assert model_of_name("tiny@3") == str(run_folder("tiny") / "checkpoints" / "step-000003" / "policy")


@pytest.mark.parametrize("name, told", [
    ("grpo-sort-ab12@7", "has no checkpoint of step 7: take one of 100, 200."),
    ("grpo-sort-zzzz", "There is no model 'grpo-sort-zzzz'"), ("grpo-sort-zzzz@16", "There is no model 'grpo-sort-"),
    ("SFT base none", "There is no model 'SFT base none'"), ("base:grpo-sort-ab12", "There is no model 'base:grpo"),
    ("/no/such/model", "There is no model '/no/such/model': choose tiny, "), ("./mine", "There is no model './mine'"),
    ("~/no/such/model", "There is no model '~/no/such"), ("models/of/mine", "There is no model 'models/of/mine'"),
    ("ppo-cart-1f", "has no language model to start from"), ("ppo-cart-1f@5", "has no language model to start from")])
def test_a_run_without_that_model_is_told_before_it_starts(folder, name, told):
    (run_folder("ppo-cart-1f") / "checkpoints" / "step-000005").mkdir(parents=True)
    assert model_of_name(name) == name
    with pytest.raises(LabError, match=told):
        make(algorithm_key="grpo", task_key="sort", model=name)


@pytest.mark.parametrize("text", ["tiny", "Qwen/Qwen2.5-0.5B", "grpo-sort-ab12@7", "SFT base none", "base:3fa81c", "",
                                  "supervisor.log@1", "../x@200", "/elsewhere/model"])
def test_any_other_model_stays_as_it_is(folder, text):
    assert model_of_name(text) == name_of_model(text) == text


def test_the_best_checkpoint_is_read_as_its_step(folder):
    with pytest.raises(LabError, match=saying("no best checkpoint", "no held-out rows")):
        parse("grpo-sort-ab12@best")
    checkpoints.mark_best(run_folder("grpo-sort-ab12"), 100, "held_out/greedy", 0.5)
    assert parse("grpo-sort-ab12@best").name == "grpo-sort-ab12@100"
    assert model_of_name("grpo-sort-ab12@best").endswith("step-000100/policy")
    assert read("base:grpo-sort-ab12@best") is None and read("../x@best") is None


@pytest.mark.parametrize("name, step", [("grpo-sort-ab12", 200), ("grpo-sort-ab12@100", 100),
                                        ("grpo-sort-ab12@best", 100)])
def test_the_command_line_takes_a_run_and_one_of_its_steps(folder, name, step):
    checkpoints.mark_best(run_folder("grpo-sort-ab12"), 100, "held_out/greedy", 0.5)
    options = parser().parse_args(["run", "--algorithm", "grpo", "--task", "sort", "--model", name])
    assert spec_of(options).model == str(run_folder("grpo-sort-ab12") / "checkpoints" / f"step-{step:06d}" / "policy")


@pytest.mark.parametrize("name, model", [
    ("grpo-sort-ab12", Model("grpo-sort-ab12")), ("grpo-sort-ab12@40", Model("grpo-sort-ab12", step=40)),
    ("base:ppo-x.y-1", Model("ppo-x.y-1", BASE)), (" start:a ", Model("a", START)), ("base", Model("base")),
    ("base@3", Model("base", step=3)), ("SFT base 3fa81c", Model("", sft="3fa81c"))])
def test_a_name_and_back(name, model):
    assert read(name) == model and model.name == name.strip()
    assert model.sft or parse(name) == model


@every("name", ["", "base:", "base:a@3", "../secret", "a/b", "..", "a@", "a@-1", "a@1@2", "end:a",
                "a b", "SFT base", "SFT base a@1", "base:SFT base a"])
def test_what_is_no_name_is_told(name):
    assert read(name) is None
    with pytest.raises(LabError, match="names no model"):
        parse(name)


def test_a_base_model_belongs_to_no_run_so_it_is_none_of_a_run_s_models(folder):
    name = name_of_model(str(home() / "base" / "3fa81c" / "model"))
    assert read(name).pinned == read(name)
    with pytest.raises(LabError, match="names no model"):
        parse(name)


def test_a_fork_needs_no_more_what_its_parent_started_from(folder):
    assert make(algorithm_key="grpo", task_key="sort", model="/gone", parent=("grpo-sort-ab12", 100)).model == "/gone"
