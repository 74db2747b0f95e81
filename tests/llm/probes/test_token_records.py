"""What a step's samples say of its updates: true to hand numbers and to autograd, and of the update it claims."""

import json

import pytest
import torch

from labcore.llm.loops import online
from labcore.llm.nets.forward import completion_outputs
from labcore.llm.probes import view
from labcore.maths.surrogates import clip
from tests.llm.tools import records, session


def completions(samples):
    return [each for group in samples["groups"] for each in group["completions"]]


def closed_form(started, rollout, temperature):
    """|∂L/∂log π| ‖onehot − π‖/τ of each token at the session's policy: the norm by hand. (B, T)"""
    logits = completion_outputs(started.policy, rollout.prompts, rollout.ids).detach()
    chances = (logits / temperature).softmax(-1)
    apart = torch.nn.functional.one_hot(rollout.ids, logits.shape[-1]) - chances
    # On policy, at ratio 1: ∂L/∂log π = −Â/(B T_i), as GRPO's aggregation weighs it; β is 0.
    weights = rollout.advantages / rollout.completion_mask.sum(1, keepdim=True)
    return weights.abs() * apart.norm(dim=-1) / temperature * rollout.completion_mask


def test_the_share_of_the_gradient_is_the_closed_form_s(monkeypatch):
    started, seen, real = session("grpo", steps=1, beta=0.0, temperature=1.3), [], online.gradients

    def gradients(session, rollout, *others):
        seen.append(closed_form(session, rollout, 1.3))
        return real(session, rollout, *others)
    monkeypatch.setattr(online, "gradients", gradients)
    shown = completions(records(started, pictures=True)[0].samples)
    expected = seen[0] / seen[0].sum()
    assert len(seen) == 1 and expected.max() > 0
    for row, each in enumerate(shown):
        assert each["met"]["share"] == pytest.approx(expected[row, :len(each["tokens"])].tolist(), abs=1e-6)


def test_in_the_first_update_sampler_and_trainer_agree_and_each_half_of_the_batch_has_its_own():
    started = session("grpo", steps=1, mini_batches=2, updates_per_batch=2, learning_rate=0.02)
    record = records(started, pictures=True)[0]
    found = [each["met"] for each in completions(json.loads(json.dumps(record.samples, allow_nan=False)))]
    assert record.metrics["sampling/logp_difference"] < 1e-6
    with_gap = [met for met in found if "gap" in met]
    assert len(with_gap) == len(found) / 2  # the second mini-batch met a policy that had moved
    assert max(abs(gap) for met in with_gap for gap in met["gap"]) < 1e-5
    assert sum(share for met in found for share in met["share"]) == pytest.approx(2, abs=1e-3)  # of two updates
    assert any(abs(ratio - 1) > 1e-3 for met in found for ratio in met["own_ratio"])  # of the second pass


def test_half_precision_leaves_a_gap_that_is_logged_and_seen():
    record = records(session("grpo", steps=1, dtype="bf16"), pictures=True)[0]
    gaps = [gap for each in completions(record.samples) for gap in each["met"]["gap"]]
    mean = sum(map(abs, gaps)) / len(gaps)
    assert mean > 1e-5 and record.metrics["sampling/logp_difference"] == pytest.approx(mean, rel=1e-3)


def test_with_truncated_importance_the_gap_is_to_the_sampler_s_own():
    each = completions(records(session("grpo", steps=1, importance_cap=2.0), pictures=True)[0].samples)[0]
    assert len(each["sampler_logprobs"]) == len(each["tokens"]) and max(map(abs, each["met"]["gap"])) < 1e-5


def test_surrogate_and_slope_are_the_function_s_and_a_clipped_token_has_none():
    started = session("grpo", steps=1, updates_per_batch=3, learning_rate=0.02, clip_low=0.01, clip_high=0.01)
    found, cut = completions(records(started, pictures=True)[0].samples), 0
    for each in found:
        for moment in (each, each["met"]):
            ratios = torch.tensor(moment.get("own_ratio") or moment["ratio"])
            expected = clip(ratios, torch.tensor(each["advantages"]), 0.01, 0.01)
            assert moment["objective"] == pytest.approx(expected.tolist(), abs=1e-4)
            for side, slope, ratio, advantage in zip(moment["cut"], moment["slope"], ratios.tolist(),
                                                     each["advantages"], strict=True):
                cut += bool(side)
                assert slope == pytest.approx(0 if side else ratio * advantage, abs=1e-4)
    assert cut


def test_a_critic_s_run_has_token_rewards_values_and_returns_that_fit():
    started = session("ppo", steps=1, whiten_advantages=False, group_size=2)
    for each in completions(records(started, pictures=True)[0].samples):
        made = [r - v for r, v in zip(each["returns"], each["values"], strict=True)]
        assert each["advantages"] == pytest.approx(made, abs=3e-5)
        assert sum(each["rewards"]) == pytest.approx(each["earned"], abs=1e-4)


def test_pairs_and_examples_have_their_tokens():
    pairs = records(session("dpo", steps=1), pictures=True)[0].samples["pairs"]
    sides = [pair[role] for pair in pairs for role in ("chosen", "rejected")]
    for side in sides:
        assert sum(side["logprobs"]) == pytest.approx(side["logprob"], abs=1e-3)
        assert sum(side["ref_logprobs"]) == pytest.approx(side["ref_logprob"], abs=1e-3)
        assert "".join(side["tokens"]).startswith(side["text"])
    assert sum(share for side in sides for share in side["share"]) == pytest.approx(1, abs=1e-3)
    record = records(session("sft", steps=1), pictures=True)[0]
    examples = record.samples["examples"]
    losses = [-logprob for each in examples for logprob in each["logprobs"]]
    assert len(examples) == view.GROUPS and sum(losses) / len(losses) == pytest.approx(record.metrics["loss"], abs=1e-3)


def test_stale_samples_say_how_old_they_are_and_how_far_from_the_policy():
    """One update a step, k = 1: at step 5 the batch is 1 update old. KL and sample size by hand, from the gaps."""
    record = records(session("grpo", letters=False, steps=5, staleness=1, easiest=3, learning_rate=0.02),
                     pictures=True)[4]
    groups = record.samples["groups"]
    assert {group["age"] for group in groups} == {1} and all(3 <= group["level"] <= 6 for group in groups)
    gaps = torch.tensor([gap for each in completions(record.samples) for gap in each["met"]["gap"]]).double()
    assert record.metrics["sampling/kl"] == pytest.approx(float((gaps.exp() - 1 - gaps).mean()), rel=1e-3)
    weights = gaps.exp()
    expected = weights.sum() ** 2 / (len(weights) * (weights**2).sum())
    assert record.metrics["sampling/effective_frac"] == pytest.approx(float(expected), rel=1e-4)
    assert record.metrics["sampling/kl"] > 0 and float(expected) < 1
