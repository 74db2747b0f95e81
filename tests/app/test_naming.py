"""What things are called on the pages: knobs by their signs, models and files without their folders."""

import pytest

from app import naming
from app.training import controls
from labcore.catalog import kinds
from labcore.catalog.algorithms import LEARNING_RATE
from labcore.runs.paths import home, run_folder
from labcore.runs.spec import make


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The lab's home with a checkpoint of a run and a base model."""
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path))
    (run_folder("grpo-sort-ab12") / "checkpoints" / "step-000200" / "policy").mkdir(parents=True)
    (home() / "base" / "3fa81c" / "model").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("inside, link", [
    ("grpo-sort-ab12/checkpoints/step-000200/policy", "grpo-sort-ab12@200"), ("base/3fa81c/model", "base:3fa81c")])
def test_what_the_lab_made_is_in_a_link_without_its_folder(folder, inside, link):
    path = str(folder / inside)
    assert naming.model_in_link(path) == naming.model(path) == link
    assert naming.model_of_link(link) == path


@pytest.mark.parametrize("text", ["tiny", "Qwen/Qwen2.5-0.5B", "grpo-sort-ab12@7", "base:none", "supervisor.log@1",
                                  "../x@200", "", "/elsewhere/model"])
def test_any_other_model_stays_as_it_is(folder, text):
    assert naming.model_of_link(text) == naming.model_in_link(text) == text


def test_a_folder_elsewhere_is_called_by_its_name(folder):
    assert naming.model("/elsewhere/mine") == "mine"
    assert naming.written("data", str(folder / "uploads" / "0f" / "pairs.jsonl")) == "pairs.jsonl"


def test_a_setting_is_called_as_its_run_calls_it():
    grpo, dpo = make(algorithm_key="grpo", task_key="sort"), make(algorithm_key="dpo", task_key="sort")
    assert naming.title("beta", [grpo]) == "KL price β" and naming.title("beta", [dpo]) == "Inverse temperature β"
    assert naming.title("beta", [grpo, dpo]) == "β", "what both have in common"
    assert naming.setting("clip_high", 0.3, grpo) == "ε_high 0.3" and naming.setting("steps", 9, grpo) == "steps 9"
    assert naming.setting("data", "/home/me/my-very-own-preferences.jsonl", dpo) == "file my-very-own-preferences…"


@pytest.mark.parametrize("said, heard", [
    ("The ratio of epsilon_end to epsilon: 2.", "The ratio of Exploration at the end ε_end to Exploration ε: 2."),
    ("There is no file /tmp/beta/group_size.jsonl.", "There is no file /tmp/beta/group_size.jsonl."),
    ("The alphabet has no lambdas.", "The alphabet has no lambdas.")])
def test_only_keys_are_put_into_words(said, heard):
    assert naming.worded(said) == heard


def test_what_the_lab_keeps_is_called_without_its_folder(folder):
    said = naming.worded(f"There is no file {home()}/uploads/0f/pairs.jsonl: the model of {home()}/base/3fa81c/model, "
                         f"and '{home()}/grpo-sort-ab12/checkpoints/step-000200/policy'. Look into /elsewhere/pairs.")
    assert said == ("There is no file pairs.jsonl: the model of base:3fa81c, and 'grpo-sort-ab12@200'. Look into "
                    "/elsewhere/pairs.")


def test_a_sentence_has_the_words_of_the_run_that_it_is_about():
    dpo = kinds.algorithm("dpo")
    assert naming.worded("beta is 200.", dpo.knobs) == "Inverse temperature β is 200."


@pytest.mark.parametrize("key", naming.knobs())
def test_labels_are_plain_words(key):
    """A label's markup would be read out by screen readers as it is written."""
    for going in (False, True):
        assert not set(controls.label(naming.knobs()[key], going)) & set("*`$[]\\:")


def test_a_label_has_the_unit_unless_the_value_has_it():
    price = kinds.algorithm("grpo").knob("beta")
    assert controls.label(price) == "KL price β (reward/nat)"
    assert controls.label(price, going=True, unit=False) == "KL price β · live"
    assert controls.label(LEARNING_RATE) == "Learning rate η"
