"""What is shown of a step is true, is plain JSON, and changes nothing of what is learnt."""

import json
import math
from dataclasses import replace

import pytest
import torch

from labcore.catalog import choices
from labcore.llm import generation, objective
from labcore.llm.experience import collect
from labcore.llm.loops import online
from labcore.llm.nets import forward
from labcore.llm.nets.micro_batches import Room
from labcore.llm.probes import view
from labcore.llm.probes.token_records import StepTokens
from labcore.llm.rollout import credit
from labcore.llm.session import LlmSession
from labcore.maths.kl import k3
from labcore.maths.logprobs import logprobs_and_entropy
from labcore.maths.masked import masked_mean
from tests.every import now
from tests.llm.tools import records, session, shake, weights

ONLINE = ["grpo", "reinforce", "ppo"]
ALPHA_1 = view.ALPHAS.index(1.0)


def logprobs_of(started, rollout):
    logits = online.completion_outputs(started.policy, rollout.prompts, rollout.ids).detach()
    return logprobs_and_entropy(logits, rollout.ids, started.knobs["temperature"])[0].masked_fill(
        ~rollout.completion_mask, 0)


@pytest.fixture
def after():
    """(session, batch, rollout, the weights before): as the loop has them after an update."""
    def make(algorithm="grpo", **knobs):
        started = session(algorithm, prompts_per_step=8, **knobs)
        batch = collect(started)
        before = view.parameters(started.policy)
        shake(started.policy, by=0.02)
        started.step = 1
        return started, batch.batch, credit(started.knobs, batch.rollout), before
    return make


@pytest.mark.parametrize("algorithm", ONLINE)
def test_groups_are_json_and_their_tokens_make_the_text(algorithm, after):
    started, batch, rollout, _ = after(algorithm)
    shown = json.loads(json.dumps(view.groups(started, batch, rollout), allow_nan=False))
    assert shown["step"] == 1 and len(shown["groups"]) == 8
    assert shown["beta"] == started.knobs["beta"] and ("clip_low" in shown) == ("clip_low" in started.knobs)
    row = 0
    for group, problem in zip(shown["groups"], batch.problems, strict=True):
        assert (group["prompt"], group["answer"]) == (problem.prompt, problem.answer)
        assert len(group["completions"]) == rollout.group_size
        for completion in group["completions"]:
            check_completion(completion, row, batch, rollout, started)
            row += 1


def check_completion(completion, row, batch, rollout, started):
    length = int(rollout.completion_mask[row].sum())
    end = "" if completion["truncated"] else started.tokenizer.eos_token
    assert "".join(completion["tokens"]) == completion["text"] + end == batch.texts[row] + end
    assert (completion["reward"], completion["exact"]) == (batch.rewards.total[row], batch.rewards.exact[row])
    columns = ["logprobs", "old_logprobs", "ref_logprobs", "advantages", "entropy", "ratio"]
    columns += ["values"] if started.critic is not None else []
    assert all(len(completion[name]) == length for name in [*columns, "tokens"])
    new, old = logprobs_of(started, rollout)[row, :length], rollout.old_logprobs[row, :length]
    for name, expected in {"logprobs": new, "old_logprobs": old, "ref_logprobs": rollout.ref_logprobs[row, :length],
                           "ratio": (new - old).exp(), "advantages": rollout.advantages[row, :length]}.items():
        assert completion[name] == pytest.approx(expected.tolist(), abs=2e-5), name
    assert completion["advantage"] == pytest.approx(rollout.advantages[row, :length].mean().item(), abs=2e-5)


def side_of(key, ratio, advantage, knobs):
    """Where a token is cut off, by the rule of each algorithm's paper."""
    if key in ("grpo", "gspo"):
        above, below = 1 + knobs["clip_high"], 1 - knobs["clip_low"]
        return "high" if ratio > above and advantage > 0 else "low" if ratio < below and advantage < 0 else ""
    return "high" if key == "cispo" and ratio > knobs["ratio_cap"] and advantage > 0 else ""


@pytest.mark.parametrize("key, knobs, drawn", [
    ("grpo", {"clip_low": 0.02, "clip_high": 0.02}, True), ("gspo", {"clip_low": 0.004, "clip_high": 0.004}, True),
    ("cispo", {"ratio_cap": 1.01}, False), ("sapo", {}, True), ("reinforce", {}, False)])
def test_the_kl_the_cut_and_the_curve_are_those_of_the_algorithm(key, knobs, drawn, after):
    started, batch, rollout, _ = after(key, temperature=1.3, **knobs)
    shown = json.loads(json.dumps(view.groups(started, batch, rollout), allow_nan=False))
    found = set()
    new = logprobs_of(started, rollout)
    for row, completion in enumerate(each for group in shown["groups"] for each in group["completions"]):
        length = len(completion["tokens"])
        apart = (rollout.ref_logprobs - new)[row, :length]
        assert completion["kl"] == pytest.approx((apart.exp() - 1 - apart).tolist(), abs=2e-5)
        ratio = (new - rollout.old_logprobs)[row, :length].double()
        ratio = ratio.mean().exp().expand(length) if key == "gspo" else ratio.exp()
        assert ("own_ratio" in completion) == (key == "gspo")
        assert completion.get("own_ratio", completion["ratio"]) == pytest.approx(ratio.tolist(), abs=2e-5)
        sides = [side_of(key, *pair, started.knobs) for pair in zip(ratio.tolist(), rollout.advantages[
            row, :length].tolist(), strict=True)]
        assert completion["cut"] == sides
        found |= {*sides}
    assert found == {"grpo": {"", "low", "high"}, "gspo": {"", "low", "high"}, "cispo": {"", "high"}}.get(key, {""})
    assert ("surrogate" in shown) == drawn


def test_the_curve_of_a_mix_has_no_bounds_of_choices_that_it_did_not_take(after):
    """A mix has the knobs of every choice."""
    started, batch, rollout, _ = after("sapo")
    plain = view.groups(started, batch, rollout)["surrogate"]
    started.knobs |= {"clip_low": 0.2, "clip_high": 0.2}
    assert view.groups(started, batch, rollout)["surrogate"] == plain and plain["bounds"] == []


def test_at_most_eight_groups():
    started = session("grpo", prompts_per_step=10, steps=1)
    samples = records(started, pictures=True)[0].samples
    assert len(samples["groups"]) == view.GROUPS == 8 and samples["batch_groups"] == 10
    assert len(samples["wrong_lengths"]) > sum(not each["exact"] for group in samples["groups"]
                                               for each in group["completions"])


def test_the_groups_with_signal_are_kept_with_their_own_tokens():
    started = session("grpo", prompts_per_step=10)
    batch = collect(started)
    size = batch.rollout.group_size
    rewards = torch.zeros_like(batch.rollout.shaped)
    rewards[-1] = 1.0  # only the last of ten groups has signal
    rollout = credit(started.knobs, replace(batch.rollout, shaped=rewards))
    tokens = StepTokens(rollout)
    shape = rollout.old_logprobs.shape
    tokens.gap = tokens.logprobs = tokens.entropy = torch.arange(shape[0]).float()[:, None].expand(shape)
    groups = view.groups(started, batch.batch, rollout, tokens)["groups"]
    kept = [9, *range(7)]
    assert [group["prompt"] for group in groups] == [batch.batch.problems[place].prompt for place in kept]
    for group, place in zip(groups, kept, strict=True):
        for at, completion in enumerate(group["completions"]):
            row = place * size + at
            assert completion["text"] == batch.batch.texts[row]
            assert set(completion["met"]["gap"]) == {float(row)}
            assert completion["old_logprobs"] == pytest.approx(
                rollout.old_logprobs[row, :len(completion["tokens"])].tolist(), abs=2e-5)
    assert any(groups[0]["completions"][-1]["advantages"])


@pytest.mark.parametrize("algorithm", ONLINE)
def test_the_line_goes_through_the_old_and_the_new_policy(algorithm, after):
    started, _, rollout, before = after(algorithm)
    part = rollout.select(torch.arange(1))  # an eighth of the prompts
    mask, advantages = part.completion_mask, part.advantages
    shown = json.loads(json.dumps(view.line(started, rollout, before), allow_nan=False))
    at = {alpha: {name: shown[name][n] for name in ("kl", "cpi", "clip", "kl_penalised")}
          for n, alpha in enumerate(shown["alpha"])}
    assert shown["tokens"] == int(mask.sum()) and shown["step"] == 1 and len(at) == 12
    mean = masked_mean(advantages, mask).item()
    assert at[0.0] == {"kl": pytest.approx(0, abs=1e-6), **dict.fromkeys(
        ("cpi", "clip", "kl_penalised"), pytest.approx(mean, abs=1e-5))}
    new = logprobs_of(started, part)
    ratio = (new - part.old_logprobs).exp()
    kl = masked_mean(k3(part.old_logprobs, new), mask).item()
    low, high, beta = shown["clip_low"], shown["clip_high"], shown["beta"]
    clipped = torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)
    assert kl > 1e-3
    assert at[1.0] == {"kl": pytest.approx(kl, rel=1e-4), "cpi": pytest.approx(
        masked_mean(ratio * advantages, mask).item(), abs=1e-5), "clip": pytest.approx(
        masked_mean(clipped, mask).item(), abs=1e-5), "kl_penalised": pytest.approx(
        masked_mean(ratio * advantages, mask).item() - beta * kl, abs=1e-5)}
    assert all(kl >= -1e-6 for kl in shown["kl"]) and at[3.0]["kl"] > at[1.0]["kl"] > at[0.25]["kl"]
    assert all(clip <= cpi + 1e-6 for clip, cpi in zip(shown["clip"], shown["cpi"], strict=True))


@pytest.mark.parametrize("surrogate", now([choice.key for choice in choices.SURROGATE if choice.needs_ratio],
                                          "clip", "soft_gate", "tv_mask", "geometric_clip", "kl_cov"))
def test_the_line_of_every_surrogate_ends_in_what_an_update_would_log(surrogate, after):
    started, _, rollout, before = after(mix="own", surrogate=surrogate)
    part, shown = rollout.select(torch.arange(1)), view.line(started, rollout, before)
    new = logprobs_of(started, part)
    found = objective.measures(started.knobs, part, new, (new - part.old_logprobs).exp(), -new)
    assert shown[surrogate][ALPHA_1] == pytest.approx(found[f"surrogate/{surrogate}"], abs=1e-5)
    assert len({*shown[surrogate]}) == len(view.ALPHAS)


def test_the_line_is_drawn_from_what_the_updates_learn_from(after):
    started, _, rollout, before = after()
    kept = torch.zeros(len(rollout.ids), dtype=torch.bool)
    kept[rollout.group_size] = True  # one completion of the second prompt
    shown = view.line(started, replace(rollout, kept=kept), before)
    assert shown["tokens"] == int(rollout.completion_mask[rollout.group_size].sum())
    assert view.line(started, replace(rollout, kept=~kept & False), before)["tokens"] == 0


def test_the_line_leaves_the_policy_as_it_was(after):
    started, _, rollout, before = after()
    parameters = list(started.policy.parameters())
    places, values = [p.data_ptr() for p in parameters], weights(started.policy)
    view.line(started, rollout, before)
    assert torch.equal(weights(started.policy), values)
    assert [p.data_ptr() for p in parameters] == places  # the same memory: saving and speed stay as they were
    assert all(p.requires_grad and p.grad is None for p in parameters)


def test_the_pictures_come_by_a_fixed_schedule():
    assert [step for step in range(1, 16) if view.samples_due(step)] == [1, 5, 10, 15]
    assert [done + 1 for done in range(41) if view.line_due(done)] == [1, 20, 40]
    got = records(session("grpo", steps=5), pictures=True)
    assert [r.step for r in got if r.samples] == [1, 5] and [r.step for r in got if r.line] == [1]


@pytest.mark.parametrize("algorithm", ["sft", "dpo"])
def test_evaluation_groups(algorithm):
    started = session(algorithm, steps=1)
    record = records(started, pictures=True)[0]
    shown = json.loads(json.dumps(record.samples, allow_nan=False))
    assert shown["step"] == 1 and len(shown["groups"]) == 8
    for group in shown["groups"]:
        (completion,) = group["completions"]
        end = "" if completion["truncated"] else started.tokenizer.eos_token
        assert "".join(completion["tokens"]) == completion["text"] + end
        assert completion["advantage"] is None and len(completion["logprobs"]) == len(completion["tokens"])
        assert all(value < 0 for value in completion["logprobs"])


def test_pictures_are_made_in_parts_that_fit_in_memory(after, monkeypatch):
    started, batch, rollout, before = after("grpo")
    whole = view.groups(started, batch, rollout), view.line(started, rollout, before)
    monkeypatch.setattr(LlmSession, "room", Room(size=1))
    widths, path = [], forward.at_tokens
    monkeypatch.setattr(generation, "at_tokens",
                        lambda *given, **more: widths.append(len(given[2])) or path(*given, **more))
    parts = view.groups(started, batch, rollout), view.line(started, rollout, before)
    assert set(widths) == {rollout.group_size}
    for one, other in zip(whole, parts, strict=True):
        assert numbers(one) == pytest.approx(numbers(other), abs=1e-4)


def numbers(value) -> list[float]:
    """Every number of a nested picture, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for each in value for number in numbers(each)]
    return [float(value)] if isinstance(value, (int, float)) else []


def test_the_clip_along_gmpo_s_update_is_at_its_own_bounds():
    """Its ε bound the logarithm of the ratio: from e^−0.4 to e^0.4, not from 0.6 to 1.4."""
    drawn = records(session("gmpo", steps=1), pictures=True)[0].line
    assert 1 - drawn["clip_low"] == pytest.approx(math.exp(-0.4))
    assert 1 + drawn["clip_high"] == pytest.approx(math.exp(0.4))


def test_the_weight_of_a_token_is_that_of_its_update():
    """IcePop masks and weighs by the trainer's probability over the sampler's; the entropy's share is not in it."""
    started = session("icepop", steps=1)
    batch = collect(started)
    rollout = credit(started.in_force, replace(batch.rollout, sampler_logprobs=batch.rollout.old_logprobs - torch.where(
        batch.rollout.completion_mask.cumsum(1) == 1, 3.0, 0.1)))
    shown = view.groups(started, batch.batch, rollout)["groups"]
    for completion in (each for group in shown for each in group["completions"]):
        later = len(completion["tokens"]) - 1
        assert completion["weight"] == pytest.approx([0.0, *[math.exp(0.1)] * later], abs=1e-4)
    started.knobs["top_entropy_share"] = 0.5
    assert "weight" not in view.groups(started, batch.batch, rollout)["groups"][0]["completions"][0]
