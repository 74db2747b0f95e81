"""A sampler with rounded weights: the completions and their log-probs are its own, and the trainer's weights stay."""

import pytest
import torch

from labcore.llm.generation import token_logprobs
from labcore.llm.group_queue import collect
from labcore.llm.sampler_weights import sampling_weights
from labcore.maths.rounding import rounded
from tests.llm.tools import records, session, weights


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
def test_the_sampler_has_the_rounded_weights_and_the_trainer_its_own(dtype):
    started = session("grpo", sampler_dtype=dtype)
    before = weights(started.policy)
    expected = torch.cat([rounded(weight.detach(), dtype).flatten() for weight in started.policy.parameters()])
    with pytest.raises(KeyError), sampling_weights(started):
        assert torch.equal(weights(started.policy), expected) and started.moved
        raise KeyError
    assert torch.equal(weights(started.policy), before) and started.moved


def test_the_old_log_probs_are_the_sampler_s_and_those_of_the_reference_its_own():
    """At the first step the policy is the reference: only the sampler is another one."""
    started = session("grpo", sampler_dtype="int8")
    rollout = collect(started).rollout
    batch = rollout.prompts, rollout
    with sampling_weights(started):
        sampled = token_logprobs(started, started.policy, batch[0], _completions(rollout))
    own = token_logprobs(started, started.policy, batch[0], _completions(rollout))
    torch.testing.assert_close(rollout.old_logprobs, sampled, atol=1e-5, rtol=0)
    torch.testing.assert_close(rollout.ref_logprobs, own, atol=1e-5, rtol=0)
    assert (sampled - own).abs().max() > 1e-4 and rollout.apart.all() and not rollout.age.any()
    assert torch.equal(rollout.met_by_sampler(own).old_logprobs, rollout.old_logprobs)


def test_a_rounded_sampler_is_measured_and_can_be_corrected():
    """The log-probs that the trainer recomputes are those of its own weights: then every ratio is 1."""
    found = {name: records(session("grpo", steps=1, sampler_dtype="int8", **knobs))[0].metrics for name, knobs in {
        "plain": {}, "recomputed": {"recompute_logprobs": True}, "bounded": {"importance_cap": 1.0}}.items()}
    assert found["plain"]["ratio/max"] > 1 and found["recomputed"]["ratio/max"] == 1
    assert {each["sampling/kl"] for each in found.values()} == {found["plain"]["sampling/kl"]}
    assert 0 < found["plain"]["sampling/kl"] < 0.01 and 0.9 < found["plain"]["sampling/effective_frac"] < 1
    assert 0.1 < found["bounded"]["sampling/outside_frac"] < 0.9 and "sampling/outside_frac" not in found["plain"]


def _completions(rollout):
    from labcore.llm.batch import Completions
    return Completions(rollout.ids, rollout.completion_mask, rollout.truncated)
