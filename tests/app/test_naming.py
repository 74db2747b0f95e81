"""What things are called on the pages: knobs by their signs, models and files without their folders."""

from dataclasses import replace

import pytest

from app import naming
from app.compare import data
from app.compare.place import Place
from app.training import controls
from labcore.catalog import kinds
from labcore.catalog.llm.knobs import LEARNING_RATE
from labcore.catalog.presets import PRESETS
from labcore.runs.files.paths import home
from labcore.runs.presets import spec_of
from labcore.runs.spec.run_spec import every_knob, make
from labcore.runs.store.store import Store
from tests.every import every
from tests.words import says


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The lab's home."""
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path))
    return tmp_path


def test_where_runs_are_chosen_their_titles_come_first_and_then_what_sets_them_apart(folder):
    store = Store()
    knobs = ({}, {"beta": 0.1}, {"beta": 0.1, "clip_low": 0.3, "temperature": 0.9}, {"aggregation": "token_mean"})
    runs = [store.run(store.create(make(algorithm_key="grpo", task_key="sort", knobs=each))) for each in knobs]
    assert [naming.to_choose(run) for run in runs] == [
        "GRPO sort #1", "GRPO sort #2 · β 0.1", "GRPO sort #3 · β 0.1, ε_low 0.3 …",
        "GRPO sort #4 · mean over all tokens of…"]
    fork = store.run(store.create(replace(runs[1].spec, parent=(runs[0].id, 0))))
    assert naming.to_choose(fork, "seed 0", "queued") == "GRPO sort #5 · β 0.1, fork · seed 0 · queued"


def test_runs_with_the_settings_of_presets_are_called_by_the_presets_names(lab):
    store = lab.store
    runs = [store.run(store.create(spec_of(PRESETS[key]))) for key in ("no_clip", "clip", "default")]
    assert [naming.to_choose(run) for run in runs] == [
        "GRPO sort #1 · No clip", "GRPO sort #2 · Clip 0.2", "GRPO sort #3"]
    chosen, _ = data.choose(Place(runs=tuple(run.id for run in runs[:2])), runs[:2])
    assert [look["short"] for look in data.look_of(chosen)] == ["No clip", "Clip 0.2"]


def test_what_a_run_says_and_starts_from_is_called_by_titles(lab):
    run_id = lab.store.create(make(algorithm_key="grpo", task_key="sort"))
    run = replace(lab.store.run(run_id), message=f"There is no {run_id}@60 any more.")
    assert says(naming.message(run), "GRPO sort #1 at step 60")
    assert naming.model(str(home() / run_id / "checkpoints" / "step-000060" / "policy")) == "GRPO sort #1 at step 60"


def test_a_choice_is_called_by_its_words():
    assert naming.written("aggregation", "sequence_mean_token_mean") == "mean over sequences of token means"
    assert naming.written("aggregation", "of another lab") == "of another lab"


def test_a_folder_elsewhere_is_called_by_its_name(folder):
    assert naming.model("/elsewhere/mine") == "mine"
    assert naming.written("data", str(folder / "uploads" / "0f" / "pairs.jsonl")) == "pairs.jsonl"


def test_a_setting_is_called_as_its_run_calls_it():
    grpo, dpo = make(algorithm_key="grpo", task_key="sort"), make(algorithm_key="dpo", task_key="sort")
    assert naming.title("beta", [grpo]) == "KL coefficient β" and naming.title("beta", [dpo]) == "Inverse temperature β"
    assert naming.title("beta", [grpo, dpo]) == "β", "what both have in common"
    assert naming.setting("clip_high", 0.3, grpo) == "ε_high 0.3" and naming.setting("steps", 9, grpo) == "steps 9"
    assert naming.setting("data", "/home/me/my-very-own-preferences.jsonl", dpo) == "file my-very-own-preferences…"


def test_knobs_changed_mid_run_have_their_signs():
    assert naming.written("changed mid-run", [("beta", 0.5, 1), ("clip_low", 0.1, 2)]) == (
        "β=0.5 after step 1; ε_low=0.1 after step 2")


@every("key", every_knob())
def test_labels_are_plain_words(key):
    """A label's markup would be read out by screen readers as it is written."""
    for going in (False, True):
        assert not set(controls.label(every_knob()[key], going)) & set("*`$[]\\:")


def test_a_label_has_the_unit_unless_the_value_has_it():
    price = kinds.algorithm("grpo").knob("beta")
    assert controls.label(price) == "KL coefficient β (reward/nat)"
    assert controls.label(price, going=True, unit=False) == "KL coefficient β · live"
    assert controls.label(LEARNING_RATE) == "Learning rate η"
