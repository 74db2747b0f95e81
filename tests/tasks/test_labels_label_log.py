"""Labels of a person: on the disk at every click, apart by task and model, and together for all their runs."""

import pytest

from labcore.errors import LabError
from labcore.runs.files.paths import is_run_id
from labcore.runs.spec.run_spec import make
from labcore.tasks import labels

PAIR = {"prompt": "the plot was ", "a": "good", "b": "bad", "a_truncated": False, "b_truncated": True, "answer": "",
        "line": None}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path))


def test_labels_are_kept_one_by_one_and_become_preferences():
    one, other = (make(algorithm_key=key, task_key="reviews") for key in ("reward_model", "grpo"))
    assert labels.rows(one) == [] and not is_run_id(labels.path(one).parent.name)
    labels.add(one, PAIR, "a")
    labels.add(other, {**PAIR, "a": "so dull"}, "b")
    found = labels.rows(one)
    assert [row["pick"] for row in found] == ["a", "b"], "of both runs: one task, one model"
    assert labels.preferences(found, [row["pick"] for row in found]) == [
        {"prompt": "the plot was ", "chosen": "good", "rejected": "bad", "rejected_truncated": True},
        {"prompt": "the plot was ", "chosen": "bad", "rejected": "so dull", "chosen_truncated": True}]
    assert labels.rows(make(algorithm_key="reward_model", task_key="sort")) == []
    assert labels.rows(make(algorithm_key="reward_model", task_key="reviews", model="small")) == []


def test_a_disk_that_cannot_be_written_is_said():
    spec = make(algorithm_key="reward_model", task_key="reviews")
    labels.path(spec).mkdir(parents=True)
    with pytest.raises(LabError, match="could not be kept"):
        labels.add(spec, PAIR, "a")
