"""A run on the scores of a trained reward model: it brings its own copy, and what does not fit is said in words."""

import shutil
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch

from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.llm.generation import Sampling, generate
from labcore.llm.nets.scorer import scores
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.llm.networks import SCORER
from labcore.llm.rewards import reward, verified
from labcore.llm.session import LlmSession
from labcore.runs.files.paths import home
from labcore.runs.spec.run_spec import make
from labcore.tasks.task import Score
from tests.every import now
from tests.llm.tools import TINIER, records, session, shake, spec, weights
from tests.words import saying


@pytest.fixture
def judge(tmp_path, monkeypatch):
    """The run `judge` with a reward model in the checkpoint of step 4."""
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path / "lab"))
    made = session("reward_model")
    shake(made.models["reward_model"])
    folder = home() / "judge" / "checkpoints" / "step-000004"
    folder.mkdir(parents=True)
    made.save(folder)
    (home() / "judge" / "spec.json").write_text(made.spec.to_json())
    return made


SCORED = {"reward_source": "reward_model", "reward_model": "judge"}


def test_the_reward_is_the_score_and_gold_the_task_s_own(judge):
    made = session("grpo", **SCORED)
    assert made.spec.knobs["reward_model"] == "judge@4", "what is the newest now is not for ever"
    assert torch.equal(weights(made.models[SCORER]), weights(judge.models["reward_model"]))
    assert SCORER not in made.optimizers and not any(p.requires_grad for p in made.models[SCORER].parameters())
    record = records(made)[0]
    plain = records(session("grpo"))[0]  # the same completions, rewarded by the task
    assert record.metrics["reward/gold"] == pytest.approx(plain.metrics["reward"])
    assert record.metrics["exact_match"] == plain.metrics["exact_match"] and "reward/gold" not in plain.metrics
    assert record.metrics["reward"] != pytest.approx(plain.metrics["reward"])


def test_what_is_measured_by_the_verifier_stays_so(judge):
    made = session("grpo", **SCORED)
    problems = made.task.problems(3, made.rng)
    generated = generate(made, made.policy, problems, 2, Sampling(max_new_tokens=5))
    assert torch.equal(verified(made, problems, generated).total, reward(made, problems, generated).parts["gold"])


def test_a_resumed_run_and_a_fork_need_no_other_run(judge, tmp_path):
    whole = session("grpo", **SCORED)
    expected = records(whole)
    begun = session("grpo", **SCORED)
    next(record for record in begun.run() if record is not None)
    begun.save(tmp_path / "checkpoint")
    shutil.rmtree(home() / "judge")
    resumed = session("grpo", **SCORED | {"reward_model": "judge@4"}, resume=tmp_path / "checkpoint")
    assert [record.metrics for record in records(resumed)] == [record.metrics for record in expected[1:]]
    forked = replace(begun.spec, parent=("parent", 1))
    begun.fork(forked).save(tmp_path / "fork")
    with patch.dict(MODELS, {"tiny": TINIER}):
        again = LlmSession.start(forked, resume=tmp_path / "fork")
    assert torch.equal(weights(again.models[SCORER]), weights(whole.models[SCORER]))


def refused(match, **knobs):
    with pytest.raises(LabError, match=match):
        make(algorithm_key="grpo", task_key="sort", knobs={"reward_source": "reward_model"} | knobs)


def test_a_reward_model_that_is_none_is_refused_before_the_start(judge):
    refused("needs a reward model: set `reward_model` to a run")
    refused("There is no reward model 'nobody' here", reward_model="nobody")
    refused("There is no reward model '../judge' here", reward_model="../judge")
    refused("There is no reward model 'base:judge' here", reward_model="base:judge")
    refused("has no checkpoint of step 7: take one of 4", reward_model="judge@7")
    refused(r"The folder .* has no config\.json: give the folder of a Hugging Face model", reward_model=str(home()))
    policy = home() / "policy" / "checkpoints" / "step-000001"
    policy.mkdir(parents=True)
    refused("The run policy trained no reward model", reward_model="policy")
    (home() / "young").mkdir()
    (home() / "young" / "spec.json").write_text("{}")
    refused("young has no checkpoint yet", reward_model="young")


def test_the_name_says_nothing_while_the_verifier_gives_the_rewards():
    assert spec("grpo", reward_model="nobody").knobs["reward_model"] == "nobody"


def test_a_reward_model_with_another_tokenizer_is_refused(judge):
    folder = home() / "judge" / "checkpoints" / "step-000004" / "policy"
    character_tokenizer("äöü").save_pretrained(folder)
    with pytest.raises(LabError, match=r"judge@4 has another tokenizer than the policy \(3 of 102 tokens differ\)"):
        session("grpo", **SCORED)


@pytest.mark.parametrize("broken", ["reward_model.safetensors", "policy/config.json"])
def test_a_broken_reward_model_is_said_in_words(judge, broken):
    (home() / "judge" / "checkpoints" / "step-000004" / broken).write_text("{")
    with pytest.raises(LabError, match="The reward model judge@4 cannot be read"):
        session("grpo", **SCORED)


@pytest.fixture
def judges(judge):
    """Three reward models, in runs of their own."""
    for place, name in enumerate(("second", "third"), 1):
        shake(judge.models["reward_model"], seed=place)
        folder = home() / name / "checkpoints" / "step-000004"
        folder.mkdir(parents=True)
        judge.save(folder)
    return "judge, second@4,third"


def test_scores_that_are_not_finite_stop_the_run(judge):
    made = session("grpo", **SCORED)
    with torch.no_grad():
        made.models[SCORER][0].head.bias.fill_(torch.nan)
    before = weights(made.policy)
    with pytest.raises(LabError, match=saying("judge@4", "not finite", "earlier checkpoint")):
        records(made)
    assert torch.equal(weights(made.policy), before)


def test_without_a_gold_score_there_is_none_beside_the_proxy(judge):
    """Of completions that the task could not score, and of a batch in which it could score none at all."""
    made = session("grpo", **SCORED)
    score = made.task.score
    made.task.score = lambda problem, completion: Score(float("nan"), False)
    metrics = records(made)[0].metrics
    assert "reward/gold" not in metrics and metrics["reward"] != 0 and made.recent_gold == []
    again, times = session("grpo", **SCORED), iter(range(10**6))
    again.task.score = lambda *asked: Score(float("nan"), False) if next(times) % 2 else score(*asked)
    assert 0 <= records(again)[0].metrics["reward/gold"] <= 1


@pytest.mark.parametrize("source, combine", now(
    [("reward_model", torch.Tensor.mean), ("worst_case_ensemble", torch.Tensor.amin)],
    ("worst_case_ensemble", torch.Tensor.amin)))
def test_an_ensemble_gives_one_reward_and_how_far_its_members_are_apart(judges, source, combine):
    made = session("grpo", reward_source=source, reward_model=judges)
    assert made.spec.knobs["reward_model"] == "judge@4,second@4,third@4"
    problems = made.task.problems(3, made.rng)
    generated = generate(made, made.policy, problems, 2, Sampling(max_new_tokens=5))
    given = torch.stack([scores(member, generated.prompts, generated.completions, "fp32").double()
                         for member in made.models[SCORER]])
    found = reward(made, problems, generated)
    assert torch.allclose(found.total, combine(given, 0)) and len(set(found.total.tolist())) > 1
    assert torch.allclose(found.parts["spread"], given.std(0, correction=0)) and found.parts["spread"].min() > 0
    metrics = records(session("grpo", steps=1, reward_source=source, reward_model=judges))[0].metrics
    assert metrics["reward/spread"] > 0 and "reward/gold" in metrics
    assert "reward/spread" not in records(session("grpo", steps=1, **SCORED))[0].metrics, "one model has no spread"


def test_the_weight_of_the_uncertainty_counts_and_may_move(judges):
    made = session("grpo", reward_source="uncertainty_weighted_ensemble", reward_model=judges, uncertainty_weight=0.0)
    problems = made.task.problems(3, made.rng)
    generated = generate(made, made.policy, problems, 2, Sampling(max_new_tokens=5))
    mean = reward(made, problems, generated)
    made.knobs["uncertainty_weight"] = 2.0
    assert torch.allclose(reward(made, problems, generated).total, mean.total - 2 * mean.parts["spread"] ** 2)


def test_an_ensemble_is_resumed_from_its_own_copies(judges, tmp_path):
    knobs = {"reward_source": "worst_case_ensemble", "reward_model": judges}
    expected = records(session("grpo", **knobs))
    begun = session("grpo", **knobs)
    next(record for record in begun.run() if record is not None)
    begun.save(tmp_path / "checkpoint")
    for name in ("judge", "second", "third"):
        shutil.rmtree(home() / name)
    pinned = knobs | {"reward_model": begun.spec.knobs["reward_model"]}
    resumed = session("grpo", **pinned, resume=tmp_path / "checkpoint")
    assert [record.metrics for record in records(resumed)] == [record.metrics for record in expected[1:]]


def test_an_ensemble_that_is_none_is_refused(judges):
    refused("compares several reward models, and judge@4 is one", reward_source="worst_case_ensemble",
            reward_model="judge")
    refused("judge@4 is named twice", reward_model="judge,judge@4")
    refused("There is no reward model 'nobody' here", reward_model="judge,nobody")
    refused("needs a reward model: set `reward_model` to a run", reward_model=" , ")


def test_a_fork_may_take_on_another_reward_model(judges):
    begun = session("grpo", **SCORED)
    records(begun)
    one = replace(begun.spec, parent=("parent", 2), steps=4)
    forked = begun.fork(replace(one, knobs={**one.knobs, "reward_model": "second@4,third@4"}))
    assert len(forked.models[SCORER]) == 2
    assert records(forked)[0].metrics["reward/spread"] > 0
    plain = session("grpo")
    records(plain)
    assert len(plain.fork(one).models[SCORER]) == 1, "from none"
