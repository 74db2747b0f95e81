"""What a run costs: what is counted without memory is what a session holds, and what is measured is what it makes."""

from unittest.mock import patch

import pytest
import torch

from labcore.catalog.llm.models import MODELS
from labcore.llm import measured_cost
from labcore.llm.networks import learning
from labcore.llm.session import LlmSession
from labcore.runs.spec.run_spec import make
from tests.every import now
from tests.llm.tools import TINIER, spec


@pytest.fixture(autouse=True)
def tiny():
    with patch.dict(MODELS, {"tiny": TINIER}):
        yield


HELD = {"ppo": ["policy", "reference", "critic"], "grpo": ["policy", "reference"], "simpo": ["policy"],
        "reward_model": ["policy", "reward_model"], "sft": ["policy"]}


@pytest.mark.parametrize("algorithm, lora", [*((key, 0) for key in HELD), ("ppo", 2), ("reward_model", 2)])
def test_what_is_counted_is_what_a_session_holds(algorithm, lora):
    wanted = spec(algorithm, **({"lora_rank": lora} if lora else {}))
    found = {each.name: each for each in measured_cost.count(wanted)}
    assert list(found) == HELD[algorithm]
    models = LlmSession.start(wanted).models
    weights = {id(weight): weight for model in models.values() for weight in model.parameters()}
    assert sum(each.parameters for each in found.values()) == sum(weight.numel() for weight in weights.values())
    assert [each.learnt > 0 for each in found.values()] == [name in learning(wanted, wanted.knobs) for name in found]
    if lora:
        assert all(each.learnt < 1000 for each in found.values()), "the adapters and a head"
        assert "reference" not in found or found["reference"].parameters == 0, "it is the policy's own weights"


@pytest.mark.parametrize("algorithm", now(["ppo", "dpo", "reward_model"], "ppo"))
def test_what_is_measured_are_the_bytes_that_were_counted_and_the_time_of_some_steps(algorithm):
    wanted = spec(algorithm)
    held, found = measured_cost.count(wanted), measured_cost.measure({"spec": wanted.to_json()})
    learnt = sum(each.learnt for each in held)
    assert found["weights"] == 4 * sum(each.parameters for each in held)
    assert found["gradients"] == 4 * learnt
    assert 0 <= found["optimizer"] - 8 * learnt < 500, "a few numbers more: each tensor's own count of updates"
    assert 0 < len(found["seconds"]) <= measured_cost.STEPS and min(found["seconds"]) > 0 and found["activations"] > 0


def test_activations_are_what_is_kept_at_its_most_each_tensor_once_and_no_weight():
    layer = torch.nn.Linear(8, 8, bias=False)
    kept = measured_cost._Kept([layer])
    with kept.counting():
        for _ in range(3):
            layer(torch.randn(4, 8, requires_grad=True)).exp().sum().backward()  # the input and the output of exp
    assert kept.most == 2 * 4 * 8 * 4


def test_a_model_that_cannot_be_used_is_a_sentence_beside_the_others(tmp_path):
    (tmp_path / "model").mkdir()
    broken = make(algorithm_key="grpo", task_key="sort", model=str(tmp_path / "model"))
    found = measured_cost.models_held({"specs": [broken.to_json(), spec("sft").to_json()]})["held"]
    assert "config.json" in found[0] and found[1][0]["name"] == "policy"
