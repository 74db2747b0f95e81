"""Stored completions judged again: what is scored, the comparison by hand, and what is kept with the run."""

import json

import numpy as np
import pytest

from labcore.analysis import judge_again as again
from labcore.analysis.judge_again import Change, change, compared, judge_again, spec_for
from labcore.errors import LabError
from labcore.runs import jobs
from labcore.runs.files import step_files
from labcore.runs.files.paths import home, run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.tasks import own_reward
from labcore.tasks.stored_completions import Stored
from labcore.tasks.task import Problem
from tests.words import says

ROUNDS = (1, 5, 10, 15, 20, 25)


def store_hacked(run_id: str) -> None:
    """Completions of six steps, 4 groups of 2 each: the reward rises to 1, and from step 15 on none is sorted."""
    for place, step in enumerate(ROUNDS):
        def completion(member, hacked=place >= 3, early=place < 2):
            right = not hacked and member == 0
            text = "abc" if right else "<b>a" if hacked else "acb"
            return {"text": text, "reward": float(not early or right), "exact": right, "truncated": False}
        groups = [{"prompt": "bca=", "answer": "abc", "completions": [completion(member) for member in range(2)]}
                  for _ in range(4)]
        step_files.write(run_folder(run_id) / "samples", step, json.dumps({"step": step, "groups": groups}))


@pytest.fixture
def run():
    found = Store().create(make(algorithm_key="grpo", task_key="sort", steps=25))
    run_folder(found).mkdir(parents=True)
    (run_folder(found) / "spec.json").write_text(Store().run(found).spec.to_json())
    store_hacked(found)
    return found


def test_a_reward_that_is_exploited_is_found_after_the_fact(run):
    found = jobs.compute(spec_for(run, "task"))
    assert found["verdict"] == "exploits" and says(found["sentence"], "48", "6 steps",
                                                   "`reward` rises from 0.50 to 1.00",
                                                   "verifier falls from 0.50 to 0.00", "exploit")
    assert [(each["step"], each["n"], each["reward"]["mean"], each["score"]["mean"]) for each in found["steps"]] == [
        (1, 8, 0.5, 0.5), (5, 8, 0.5, 0.5), (10, 8, 1.0, 0.5), *((step, 8, 1.0, 0.0) for step in (15, 20, 25))]
    assert found["steps"][0]["reward"]["low"] == 0.5, "over prompts, whose means are equal here"
    assert found["agreement"] == {"same": pytest.approx((8 + 8 + 4) / 48)}
    assert [(each["text"], each["step"], each["times"]) for each in found["apart"]] == [
        ("<b>a", 25, 24), ("acb", 10, 4)]


def test_the_result_is_kept_with_the_run_and_never_written_again(run):
    spec = spec_for(run, "exact")
    found = jobs.compute(spec)
    [path] = (run_folder(run) / again.FOLDER).iterdir()
    assert json.loads(path.read_text()) == found == again.kept_as(spec)
    path.write_text(json.dumps(found | {"sentence": "mine"}))
    jobs.forget(jobs.job_id(spec))
    jobs.compute(spec)
    assert again.kept_as(spec)["sentence"] == "mine"
    jobs.compute(spec_for(run, "contains", {"pattern": "a"}))
    path.with_name("0123456789abcdef.json").write_text("{")
    assert len(again.kept(run)) == 2, "a damaged file is left out"


def test_a_function_of_the_users_gets_the_prompts_and_the_step(run, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def right(prompts, completions, answer, trainer_state, **columns):\n"
        "    assert 'completion_ids' not in columns, 'no ids are stored'\n"
        "    return [None if trainer_state.global_step == 1 else float(text == want)\n"
        "            for text, want in zip(completions, answer)]\n"
        "def by_ids(completions, completion_ids):\n    return [1.0] * len(completions)\n")
    found = jobs.compute(spec_for(run, own_reward.register(f"{tmp_path / 'mine.py'}:right")))
    assert (found["name"], found["n"], found["unscored"]) == ("right", 40, 8)
    assert "8 more completions could not be scored" in again.about(found)
    with pytest.raises(LabError, match="asks for the column 'completion_ids'"):
        jobs.compute(spec_for(run, own_reward.register(f"{tmp_path / 'mine.py'}:by_ids")))


def test_rows_of_a_file_are_found_again_with_their_columns(tmp_path):
    rows = [{"prompt": "a", "answer": "1", "level": 3}, {"prompt": "b", "answer": "2", "level": 5}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = Store().create(make(algorithm_key="grpo", task_key="prompts", data=str(tmp_path / "rows.jsonl")))
    groups = [{"prompt": row["prompt"], "answer": row["answer"], "completions": [{"text": "x", "reward": 0.0}]}
              for row in rows]
    for step in (1, 2):
        step_files.write(run_folder(run) / "samples", step, json.dumps({"step": step, "groups": groups}))
    (run_folder(run) / "spec.json").write_text(Store().run(run).spec.to_json())
    (tmp_path / "level.py").write_text("def by_level(completions, level):\n    return [each / 10 for each in level]\n")
    found = jobs.compute(spec_for(run, own_reward.register(str(tmp_path / "level.py"))))
    assert [each["score"]["mean"] for each in found["steps"]] == [0.4, 0.4]


def test_of_many_steps_some_are_judged_which_is_reported(run):
    found = judge_again({**spec_for(run, "exact"), "most": 24})
    assert [each["step"] for each in found["steps"]] == [1, 10, 25], "evenly apart, the ends among them"
    assert again.about(found).startswith("From 3 of the 6 stored steps.")


@pytest.mark.parametrize(("by", "knobs", "fault"), [
    ("exakt", {}, "did you mean 'exact'"), ("regex", {}, "needs a pattern"), ("numeric", {}, "whole plain number"),
    ("mine.py:right 0123456789ab", {}, "no file here has this hash"), ("../../nowhere", {}, "There is no judge"),
    ("judge", {"judge_url": "http://localhost:1/v1"}, "does not allow"),
    ("exact", {"colour": 1}, "unknown setting 'colour'"),
])
def test_an_unusable_judge_is_reported(run, by, knobs, fault):
    with pytest.raises(LabError, match=fault):
        jobs.compute(spec_for(run, by, knobs))
    assert not (run_folder(run) / again.FOLDER).exists()


def test_a_run_without_completions_or_rewards_is_said(run):
    with pytest.raises(LabError, match="stored no completions"):
        spec_for("no-such-run", "exact")
    for step in ROUNDS:
        step_files.write(run_folder(run) / "samples", step, json.dumps(
            {"step": step, "groups": [{"prompt": "a", "completions": [{"text": "b", "reward": None}]}]}))
    with pytest.raises(LabError, match="no completion with a reward"):
        jobs.compute(spec_for(run, "contains", {"pattern": "b"}))


def test_a_shared_lab_judges_nothing_new(run, monkeypatch):
    done = judge_again(spec_for(run, "exact"))
    monkeypatch.setenv("RL_LAB_READ_ONLY", "1")
    assert again.kept_as(spec_for(run, "exact")) == done
    judge_again(spec_for(run, "choice") | {"by": "contains", "knobs": {"pattern": "a"}})
    assert len([*(home() / run / again.FOLDER).iterdir()]) == 1, "it can be computed, and is not written"


# ---- the comparison by hand ----------------------------------------------------------------------------------------

def rows(*steps):
    """Completions of steps, each a list of (group, reward, score)."""
    stored = [(Stored(step, group, Problem("p", ""), f"{step}.{place}", reward, False), score)
              for step, found in enumerate(steps, 1) for place, (group, reward, score) in enumerate(found)]
    return [row for row, _ in stored], [score for _, score in stored]


def test_an_interval_is_over_prompts_and_not_over_their_completions():
    """Three prompts of the last step are worth 0, 0 and 1, however many completions each has."""
    values = np.array([0.0] * 3 + [0.0] * 40 + [0.0] * 40 + [1.0] * 40)
    step, group = np.array([1] * 3 + [2] * 120), np.array([0, 1, 2] + [0] * 40 + [1] * 40 + [2] * 40)
    assert change(values, step, group) == Change(0.0, pytest.approx(1 / 3), 0)
    assert change(values, step, np.arange(len(values))).sign == 1, "as if each were independent"
    assert change(values[3:], step[3:], group[3:]) is None, "a single step"
    assert change(values, step, np.zeros_like(group)).sign is None, "one prompt tells nothing"


@pytest.mark.parametrize(("reward", "score", "verdict"), [(1, 1, "both"), (1, 0, "exploits"), (1, -1, "exploits"),
                                                          (0, 1, "missed"), (0, 0, "none"), (1, None, "none")])
def test_the_verdict_of_two_changes(reward, score, verdict):
    assert again.verdict_of(Change(0, 1, reward), Change(0, 1, score)) == verdict


def test_of_scores_of_another_unit_the_ranks_are_compared():
    stored, scores = rows([(0, 0.0, -3.0), (1, 0.5, -9.0), (2, 1.0, 40.0)], [(0, 1.0, -30.0), (1, 0.0, 5.0),
                                                                             (2, 0.5, 1.0)])
    found = compared(stored, scores, "m")
    assert found["apart"][0]["score"] == -30.0 and found["apart"][0]["reward"] == 1.0
    ranks = np.array([2, 1, 5, 0, 4, 3]) / 5  # of the scores
    assert found["agreement"]["rank_correlation"] == pytest.approx(
        np.corrcoef(ranks, np.array([0.5, 2.5, 4.5, 4.5, 0.5, 2.5]) / 5)[0, 1])


def test_unscored_completions_are_excluded_from_both_means():
    stored, scores = rows([(0, 0.0, np.nan), (1, 1.0, 0.5)], [(0, 1.0, 0.5), (1, 1.0, np.nan)])
    found = compared(stored, scores, "m")
    assert [each["reward"]["mean"] for each in found["steps"]] == [1.0, 1.0] and found["unscored"] == 2
    with pytest.raises(LabError, match="could not score any"):
        compared(stored, [np.nan] * 4, "m")
