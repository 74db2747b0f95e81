"""A run on the scores of a process reward model: rewards stand at the ends of steps, and what does not fit is said."""

import shutil

import pytest
import torch

from labcore.errors import LabError
from labcore.llm.experience import collect
from labcore.llm.networks import SCORER
from labcore.llm.probes.reward_model_scores import by_reward_model
from labcore.llm.process_rewards import answers_of
from labcore.llm.rollout import credit, ends_of_steps, rewards_of_tokens, total_rewards
from labcore.runs.files.paths import home
from labcore.tasks.stored_completions import Stored
from labcore.tasks.task import Problem
from tests.llm.tools import records, session, shake, weights


def trained(name="judge", algorithm="prm", **given):
    """A run with a reward model in the checkpoint of step 4."""
    made = session(algorithm, **given)
    shake(made.models["process_reward_model" if algorithm == "prm" else "reward_model"], by=0.3)
    folder = home() / name / "checkpoints" / "step-000004"
    folder.mkdir(parents=True)
    made.save(folder)
    (home() / name / "spec.json").write_text(made.spec.to_json())
    return made


@pytest.fixture
def judge(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "lab"))
    return trained()


SCORED = {"reward_source": "process_reward", "reward_model": "judge"}


@pytest.mark.parametrize("form, weight", [("each_step", 0.0), ("min_form", 0.5), ("difference", 2.0), ("lowest", 0.0)])
def test_rewards_stand_at_the_ends_of_steps_and_sum_to_the_total(judge, form, weight):
    made = session("ppo", step_reward=form, outcome_weight=weight, kl_placement="off", **SCORED)
    assert made.spec.knobs["reward_model"] == "judge@4" and torch.equal(
        weights(made.models[SCORER]), weights(judge.models["process_reward_model"]))
    batch = collect(made)
    rewards, rollout, knobs = batch.batch.rewards, batch.rollout, made.in_force
    per_token = rewards_of_tokens(knobs, rollout)
    torch.testing.assert_close(per_token.sum(1), rewards.total.float())
    torch.testing.assert_close(total_rewards(knobs, rollout), rewards.total.float())
    scores, gold = rewards.step_scores, rewards.parts["gold"]
    lengths = batch.batch.completions.lengths
    for row, length in enumerate(lengths.tolist()):
        own = scores[row, :length]  # every token is a step
        assert own.isfinite().all() and scores[row, length:].isnan().all()
        expected = {"each_step": own, "min_form": ((1 - 2 * own) / 0.1).softmax(0) * (2 * own - 1),
                    "difference": own - torch.cat([own.new_zeros(1), own[:-1]]),
                    "lowest": torch.where(torch.arange(length) == length - 1, own.min(), 0.0)}[form].clone()
        expected[-1] += weight * gold[row]
        torch.testing.assert_close(per_token[row, :length], expected.float(), atol=1e-5, rtol=1e-5)
    assert torch.equal(ends_of_steps(rollout), rollout.completion_mask)
    assert {"step_score", "steps_right", "gold"} <= rewards.parts.keys()


def test_the_verifier_of_steps_rewards_each_step_that_can_still_be_right():
    made = session("grpo_process", reward_source="step_verifier")
    batch = collect(made)
    for row, answer in enumerate(answers_of(made, batch.batch.completions)):
        cut = bool(batch.batch.completions.truncated[row])
        expected = [float(made.task.can_become_right(None, answer.beginning(step)))
                    for step in range(len(answer.texts))]
        if not cut:
            expected[-1] = float(made.task.score(None, batch.batch.texts[row]).exact)
        assert batch.batch.rewards.step_scores[row, :len(expected)].tolist() == expected
    assert credit(made.in_force, batch.rollout).credited.abs().max() > 0


def test_a_resumed_run_needs_no_other_run(judge, tmp_path):
    expected = records(session("grpo_process", **SCORED))
    begun = session("grpo_process", **SCORED)
    next(record for record in begun.run() if record is not None)
    begun.save(tmp_path / "checkpoint")
    shutil.rmtree(home() / "judge")
    resumed = session("grpo_process", **SCORED | {"reward_model": "judge@4"}, resume=tmp_path / "checkpoint")
    assert [record.metrics for record in records(resumed)] == [record.metrics for record in expected[1:]]


def test_a_model_of_other_steps_is_refused_in_words(judge):
    with pytest.raises(LabError, match=r"learnt steps with `step_separator` '', and this run .* by '\\\\n'"):
        session("grpo", step_separator=r"\n", **SCORED)
    trained("lines", step_separator=r"\n")
    assert records(session("grpo", steps=1, step_separator=r"\n", **SCORED | {"reward_model": "lines"}))


def test_stored_completions_are_scored_by_their_lowest_step(judge):
    made = session("prm")
    scored = by_reward_model("judge@4")([Stored(1, 0, Problem("ab=", "ab"), "ab", 1.0, False),
                                         Stored(1, 1, Problem("c", "c"), "", 0.0, False)])
    model = judge.models["process_reward_model"]
    for text, prompt, found in (("ab", "ab=", scored[0]), ("", "c", scored[1])):
        answer = made.tokenizer(text)["input_ids"] + [made.tokenizer.eos_token_id]
        logits = model(input_ids=torch.tensor([made.tokenizer(prompt)["input_ids"] + answer])).logits[0]
        assert found == pytest.approx(logits.softmax(-1)[-len(answer):, 1].min().item(), abs=1e-5)


def test_models_of_steps_and_of_answers_are_told_apart(judge):
    trained("whole", "reward_model")
    with pytest.raises(LabError, match="judge@4 scores the steps of answers: set `reward_source=process_reward`"):
        session("grpo", reward_source="reward_model", reward_model="judge")
    with pytest.raises(LabError, match="whole@4 scores whole answers, not steps: set `reward_source=reward_model`"):
        session("grpo", reward_source="process_reward", reward_model="whole")


def test_a_verifier_of_whole_answers_is_refused_before_the_first_step():
    with pytest.raises(LabError, match="judges whole answers only: set `reward_source=verifier`"):
        session("grpo", letters=False, task="reviews", reward_source="step_verifier")
