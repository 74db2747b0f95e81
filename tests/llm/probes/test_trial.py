"""What one optimizer step does to reward and KL, by the two estimates of `labcore.llm.probes.trial`."""

import copy
import math

import pytest
import torch

from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.llm.experience import collect
from labcore.llm.graphs import Graphs
from labcore.llm.loops import online
from labcore.llm.nets.forward import plain
from labcore.llm.probes.one_batch import as_of, cosines, inspect, spec_for, take
from labcore.llm.probes.trial import KL_OF_A_STEP, Trial, moved
from labcore.llm.rollout import credit
from tests.llm import tools
from tests.llm.recorders import TapeRecorder


@pytest.fixture
def trial():
    session = tools.session("grpo")
    tools.shake(session.policy, by=0.3)
    return Trial.of(session, 400, 0)


def test_its_networks_are_not_recorded():
    """Each answers once, a recording would keep it in memory, and what a GPU has recorded cannot be copied."""
    class OfGpu(TapeRecorder):
        def __deepcopy__(self, memo):
            raise TypeError("cannot pickle 'Stream' object")
    session = tools.session("grpo")
    session.graphs = Graphs(recorder := OfGpu(), 2**40)
    trial = Trial.of(session, 16, 0)
    gradient = torch.ones(sum(each.numel() for each in session.policy.parameters()))
    assert trial.along(gradient, 0.1)["kl"]["mean"] > 0
    assert trial.measure(lambda copied: copied)["length"] == 0
    assert not recorder.made and session.graphs is not None


def test_no_step_has_no_effect(trial):
    found = trial.effect(copy.deepcopy(trial.session.policy))
    for key in ("resampled", "weighted", "kl"):
        assert found[key] == {"mean": 0.0, "se": 0.0}
    assert found["reward"] == trial.before["reward"]


def test_both_estimates_agree_on_a_step_that_pays(trial):
    """Along the gradient of the expected reward itself the reward rises, by either estimate."""
    session = trial.session
    spec = spec_for(session, ALGORITHMS["rloo"], 0, {"prompts_per_step": 64, "group_size": 8})
    rollout = collect(as_of(session, spec)).rollout
    seen = inspect(session, spec, rollout, None)
    length = trial.step_length([seen.gradient])
    found = trial.along(seen.gradient, length)
    assert found["kl"]["mean"] == pytest.approx(KL_OF_A_STEP, rel=0.5) and found["kl"]["mean"] > 0
    assert found["weighted"]["mean"] > 3 * found["weighted"]["se"] > 0 and found["resampled"]["mean"] > 0
    assert found["reward"]["mean"] - trial.before["reward"]["mean"] == pytest.approx(
        found["resampled"]["mean"], abs=1e-5)
    apart = abs(found["weighted"]["mean"] - found["resampled"]["mean"])
    assert apart < 4 * math.hypot(found["weighted"]["se"], found["resampled"]["se"])
    back = trial.along(-seen.gradient, length)
    assert back["weighted"]["mean"] < 0


def test_the_kl_is_that_from_before_to_after(trial):
    """k3 of the old policy's own samples, e^d − 1 − d with d = new − old; its mean is the sum over all tokens."""
    after = copy.deepcopy(trial.session.policy)
    tools.shake(after, seed=3, by=0.1)
    with torch.no_grad():
        old, new = (plain(model, trial.prompts, trial.completions.ids).log_softmax(-1)
                    for model in (trial.session.policy, after))
    mask, found = trial.completions.mask, trial.effect(after)["kl"]
    d = (new - old).gather(-1, trial.completions.ids[..., None])[..., 0][mask]
    assert found["mean"] == pytest.approx(float((d.exp() - 1 - d).mean()), rel=1e-3)
    exact = float((old.exp() * (old - new)).sum(-1)[mask].mean())
    assert abs(found["mean"] - exact) < 4 * found["se"] and 0 < found["se"] < 0.2 * exact


def test_a_step_is_as_long_as_it_says(trial):
    gradient = torch.randn(sum(p.numel() for p in trial.session.policy.parameters()))
    after = tools.weights(moved(trial.session.policy, gradient, 0.25))
    step = after - tools.weights(trial.session.policy)
    assert float(step.norm()) == pytest.approx(0.25, rel=1e-4)
    assert cosines([step, gradient])[0][1] == pytest.approx(-1.0, abs=1e-4)  # against the gradient: the loss falls
    assert trial.step_length([torch.zeros(3)]) is None and trial.along(torch.zeros(3), 0.1) is None


def test_the_common_step_is_the_longest_that_all_can_afford(trial):
    steep = torch.randn(sum(p.numel() for p in trial.session.policy.parameters()))
    flat = torch.zeros_like(steep)
    flat[:5] = 1.0  # a few rows of the embedding, which few prompts use
    both = trial.step_length([flat, steep])
    assert both == pytest.approx(min(trial.step_length([flat]), trial.step_length([steep])), rel=0.1)


def test_the_own_step_is_the_training_loop_s(trial):
    """Clip of the norm, AdamW and its moments included; the session itself stays where it is."""
    session = trial.session
    spec = spec_for(session, ALGORITHMS["grpo"], 0, {"prompts_per_step": 4, "group_size": 4})
    rollout = collect(as_of(session, spec)).rollout
    before = tools.weights(session.policy)
    found = trial.measure(lambda copied: take(copied, spec, rollout, None, 1))
    assert torch.equal(tools.weights(session.policy), before)
    trained = copy.deepcopy(session).fork(spec)
    online.update(trained, credit(trained.knobs, rollout))
    assert found["length"] == pytest.approx(float((tools.weights(trained.policy) - before).norm()), rel=1e-5)
    assert found["kl"] == trial.effect(trained.policy)["kl"]
