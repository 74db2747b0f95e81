"""A reward model scores stored completions as it scores them in a run that takes its rewards from it."""

import json

import pytest

from labcore.analysis.judge_again import spec_for
from labcore.llm.probes import reward_model_scores as scored
from labcore.llm.probes.reward_model_scores import by_reward_model
from labcore.runs import jobs
from labcore.runs.files import step_files
from labcore.runs.files.paths import home, run_folder
from labcore.tasks.stored_completions import read
from tests.llm.test_rewards_scorer import SCORED, judge
from tests.llm.tools import records, session

assert judge  # a fixture


@pytest.fixture
def stored(judge, monkeypatch):
    """Samples of a run that a reward model rewards."""
    monkeypatch.setattr(scored, "AT_ONCE", 3)
    made = session("grpo", steps=1, **SCORED)
    (home() / "scored").mkdir()
    (home() / "scored" / "spec.json").write_text(made.spec.to_json())
    samples, _ = records(made)[0].look()
    step_files.write(run_folder("scored") / "samples", 1, json.dumps(samples))
    return [*read("scored", [1], made.task)]


def test_the_scores_are_those_that_the_run_was_rewarded_with_as_a_job_too(stored):
    assert len({row.reward for row in stored}) > 3
    assert by_reward_model("judge@4")(stored) == pytest.approx([row.reward for row in stored], abs=1e-4)
    found = jobs.compute(spec_for("scored", "judge@4"))
    assert found["name"] == "judge@4" and found["n"] == len(stored)
    assert found["steps"][0]["score"]["mean"] == pytest.approx(found["steps"][0]["reward"]["mean"], abs=1e-4)


def test_a_run_is_judged_anew_once_its_reward_model_has_trained_on(stored):
    (home() / "judge").rename(home() / "learning")
    asked = spec_for("scored", "learning")
    later = home() / "learning" / "checkpoints" / "step-000008"
    later.with_name("step-000004").rename(later)
    assert (asked["by"], spec_for("scored", "learning")["by"]) == ("learning@4", "learning@8")
