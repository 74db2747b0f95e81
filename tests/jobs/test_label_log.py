"""Labels of a person: on the disk at every click, apart by task and model, and together for all their runs."""

import pytest

from labcore.errors import LabError
from labcore.files.paths import is_run_id
from labcore.jobs import label_log, labels
from labcore.spec.run_spec import make

PAIR = {"prompt": "the plot was ", "a": "good", "b": "bad", "a_truncated": False, "b_truncated": True, "answer": "",
        "line": None}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path))


def test_labels_are_kept_one_by_one_and_become_preferences():
    one, other = (make(algorithm_key=key, task_key="reviews") for key in ("reward_model", "grpo"))
    assert label_log.rows(one) == [] and not is_run_id(label_log.path(one).parent.name)
    label_log.add(one, PAIR, "a")
    label_log.add(other, {**PAIR, "a": "so dull"}, "b")
    found = label_log.rows(one)
    assert [row["pick"] for row in found] == ["a", "b"], "of both runs: one task, one model"
    assert labels.preferences(found, [row["pick"] for row in found]) == [
        {"prompt": "the plot was ", "chosen": "good", "rejected": "bad", "rejected_truncated": True},
        {"prompt": "the plot was ", "chosen": "bad", "rejected": "so dull", "chosen_truncated": True}]
    assert label_log.rows(make(algorithm_key="reward_model", task_key="sort")) == []
    assert label_log.rows(make(algorithm_key="reward_model", task_key="reviews", model="small")) == []


def test_a_disk_that_cannot_be_written_is_said():
    spec = make(algorithm_key="reward_model", task_key="reviews")
    label_log.path(spec).mkdir(parents=True)
    with pytest.raises(LabError, match="could not be kept"):
        label_log.add(spec, PAIR, "a")
