"""One batch, many algorithms: exactly what the training loop makes of it, for every online row of the catalog."""

import copy
import json
from dataclasses import replace
from functools import cache
from unittest.mock import patch

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from labcore.catalog.choice import Surrogate
from labcore.catalog.choices import SURROGATE
from labcore.catalog.families.surrogates import CLIP_HIGH, CLIP_LOW
from labcore.catalog.knob import Knob
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.catalog.llm.models import MODELS
from labcore.errors import LabError
from labcore.llm.experience import collect, seen_by
from labcore.llm.loops import online
from labcore.llm.nets.forward import plain
from labcore.llm.probes.answer import learner
from labcore.llm.probes.one_batch import (
    as_of,
    cosines,
    credited,
    critic_values,
    inspect,
    one_batch,
    spec_for,
    take,
    token_gradients,
)
from labcore.llm.rollout import credit
from labcore.llm.session import LlmSession
from labcore.maths import surrogates
from labcore.maths.logprobs import selective_log_softmax
from labcore.runs import jobs
from tests.every import every, now
from tests.llm import tools
from tests.llm.runs_on_disk import saved

ONLINE = [key for key, row in ALGORITHMS.items() if row.loop == "online"]
WAYS = tools.with_each()
SIZE = {"prompts_per_step": 4, "group_size": 4}
FEW = ["grpo", "ppo", "rloo"]  # with a clip, with a critic, and with neither
ASKED = {"prompts": 4, "group_size": 4, "updates": 0, "seed": 0, "eval_prompts": 16}


@pytest.fixture(autouse=True)
def tiny():
    with patch.dict(MODELS, {"tiny": tools.TINIER}):
        yield


def gradient_of_the_loop(session: LlmSession, rollout) -> torch.Tensor:
    """The policy's gradient at the moment the training loop takes its step."""
    found = {}

    def optimise(self, name, rate, loss):
        found[name] = parameters_to_vector([p.grad for p in self.models[name].parameters()]).clone()
        self.models[name].zero_grad(set_to_none=True)
        return 0.0
    with patch.object(LlmSession, "optimise", optimise):
        online.update(session, credit(session.in_force, rollout))
    return found["policy"]


@pytest.fixture
def batch():
    """A GRPO session off its reference, and a ragged batch of it with rewards that all differ: a copy of one."""
    return copy.deepcopy(sampled_once())


@cache
def sampled_once():
    session = tools.session("grpo")
    tools.shake(session.policy, by=0.3)
    found = collect(session)
    rollout = tools.ragged(found.rollout)
    completions = replace(found.batch.completions, mask=rollout.completion_mask)
    rewards = replace(found.batch.rewards, total=rollout.shaped.double())
    return session, replace(found, batch=replace(found.batch, completions=completions, rewards=rewards),
                            rollout=rollout)


@pytest.mark.parametrize("off_policy, key", now(
    [(off_policy, key) for off_policy in (True, False) for key in ONLINE],
    *((True, key) for key in ("grpo", "ppo", "remax", "raft", "nash_md", "sdpo", "chord")), (False, "ppo")))
def test_each_gradient_is_the_one_that_training_would_step_along(batch, key, off_policy):
    session, sampled = batch
    spec = spec_for(session, ALGORITHMS[key], 0, SIZE)
    rollout = seen_by(as_of(session, spec), sampled)
    if off_policy:
        tools.shake(session.policy, seed=1, by=0.05)
    values = torch.randn(rollout.ids.shape, generator=torch.Generator().manual_seed(5)) * rollout.completion_mask
    seen = inspect(session, spec, rollout, values)
    trained = copy.deepcopy(session).fork(spec)  # what a fork by this algorithm would train with
    theirs = replace(rollout, old_values=None if trained.critic is None else values)
    assert torch.equal(seen.gradient, gradient_of_the_loop(trained, theirs))
    unseen = rollout.in_context is not None and not rollout.in_context.any()  # the teacher has nothing to show
    assert (float(seen.gradient.norm()) > 0) == (not unseen)


@pytest.mark.parametrize("key", now(
    ONLINE, "grpo", "ppo", "gspo", "gmpo", "cispo", "vespo", "dppo", "clip_cov", "real"))
def test_token_gradients_are_the_gradient_s_first_half(batch, key):
    """g = Σ ∂L/∂log π_t ∇ log π_t: by the chain rule, with a forward pass of its own."""
    session, sampled = batch
    spec = spec_for(session, ALGORITHMS[key], 0, {**SIZE, "sft_weight": 0.0})  # demonstrations have tokens of their own
    if spec.knobs.get("single_step"):  # whose term has the distribution of a token, not the token that was sampled
        spec = replace(spec, knobs=spec.knobs | {"single_step": False})
    rollout = seen_by(as_of(session, spec), sampled)
    tools.shake(session.policy, seed=1, by=0.05)
    seen = inspect(session, spec, rollout, torch.zeros_like(rollout.old_logprobs))
    logprobs = selective_log_softmax(plain(session.policy, rollout.prompts, rollout.ids), rollout.ids)
    (seen.push * logprobs).sum().backward()
    whole = parameters_to_vector([p.grad for p in session.policy.parameters()])
    assert torch.allclose(-whole, seen.gradient, rtol=1e-3, atol=1e-6)
    assert (seen.push[~rollout.counted] == 0).all()


@pytest.mark.parametrize("key, switch, same", [
    ("grpo", {"beta": 0.5, "adaptive_kl_target": 0.01}, {"beta": 1.5}),
    ("rloo", {"beta": 0.5, "adaptive_kl_target": 0.01}, {"beta": 1.5}),
    ("grpo", {"top_entropy_share": 0.3}, None)])
def test_under_a_switch_it_is_what_training_does_too(batch, key, switch, same):
    """A β that a controller has moved by 3, in the loss and in the reward; tokens left out by their entropy."""
    session, sampled = batch
    session.kl_factor = 3.0
    plain_spec = spec_for(session, ALGORITHMS[key], 0, SIZE)
    rollout = seen_by(as_of(session, plain_spec), sampled)
    spec, other = (replace(plain_spec, knobs=plain_spec.knobs | knobs) for knobs in (switch, same or {}))
    seen, beside = inspect(session, spec, rollout, None), inspect(session, other, rollout, None)
    assert torch.equal(seen.gradient, gradient_of_the_loop(copy.deepcopy(session).fork(spec), rollout))
    logprobs = selective_log_softmax(plain(session.policy, rollout.prompts, rollout.ids), rollout.ids)
    (seen.push * logprobs).sum().backward()
    whole = parameters_to_vector([p.grad for p in session.policy.parameters()])
    assert torch.allclose(-whole, seen.gradient, rtol=1e-3, atol=1e-6)
    assert torch.equal(seen.push, beside.push) == torch.equal(seen.gradient, beside.gradient) == (same is not None)


def test_without_its_clip_gmpo_is_cut_nowhere(batch):
    """The lowest ε_low that a run may have still cuts ratios below 1/e, where ε bounds their logarithm."""
    session, sampled = batch
    spec = spec_for(session, ALGORITHMS["gmpo"], 0, SIZE)
    far = replace(sampled.rollout, old_logprobs=sampled.rollout.old_logprobs + 2.0 * sampled.rollout.completion_mask)
    seen = inspect(session, spec, far, None)
    free = replace(spec, knobs=spec.knobs | {"clip_low": 50.0, "clip_high": 50.0})
    assert seen.unclipped == pytest.approx(cosines([seen.gradient, inspect(session, free, far, None).gradient])[0][1])
    assert seen.unclipped < 0.99


def test_without_a_clip_only_its_bounds_are_moved(batch, monkeypatch):
    """A surrogate may have other knobs beside them."""
    bent = Knob("bend", "Bend", 0.5, "Higher: a. Lower: b.")
    own = Surrogate("bent_clip", "bent", "S", needs_ratio=True, cut="clip_cut", knobs=(CLIP_LOW, CLIP_HIGH, bent))
    monkeypatch.setitem(vars(SURROGATE), "members", (*SURROGATE.members, own))
    monkeypatch.setattr(surrogates, "bent_clip", lambda ratio, advantages, clip_low, clip_high, bend: bend * (
        surrogates.clip(ratio, advantages, clip_low, clip_high)), raising=False)
    session, sampled = batch
    spec = spec_for(session, ALGORITHMS["grpo"], 0, SIZE)
    far = replace(sampled.rollout, old_logprobs=sampled.rollout.old_logprobs + 2.0 * sampled.rollout.completion_mask)
    usual = inspect(session, replace(spec, knobs=spec.knobs | {"beta": 0.5}), far, None)
    mine = {**spec.knobs, "surrogate": own.key, "bend": 1.0, "beta": 0.5}
    assert inspect(session, replace(spec, knobs=mine), far, None).unclipped == pytest.approx(usual.unclipped)


def test_token_gradients_worked_by_hand(batch):
    """REINFORCE without a KL coefficient: A_i / B for every token. GRPO clipped: nothing where ρ > 1 + ε and A > 0."""
    session, rollout = batch[0], batch[1].rollout
    spec = spec_for(session, ALGORITHMS["reinforce"], 0, SIZE)
    held = as_of(session, replace(spec, knobs=spec.knobs | {"beta": 0.0}))
    push = token_gradients(held, credited(held, rollout, None))
    wanted = (rollout.shaped - rollout.shaped.mean())[:, None] / 16 * rollout.completion_mask
    assert torch.allclose(push, wanted, atol=1e-6)
    spec = spec_for(session, ALGORITHMS["grpo"], 0, SIZE)
    held = as_of(session, replace(spec, knobs=spec.knobs | {"beta": 0.0}))
    far = credited(held, replace(rollout, old_logprobs=rollout.old_logprobs - 1.0 * rollout.completion_mask), None)
    push = token_gradients(held, far)  # all ratios near e
    up = (far.advantages > 0) & far.completion_mask
    assert up.any() and (push[up] == 0).all() and (push[(far.advantages < 0) & far.completion_mask] < 0).all()


def test_cosines_by_hand():
    a, b, zero = torch.tensor([3.0, 4.0]), torch.tensor([4.0, -3.0]), torch.zeros(2)
    table = cosines([a, b, -2 * a, zero])
    assert table[0] == pytest.approx([1.0, 0.0, -1.0, None]) and table[3] == [None] * 4
    assert table[1][2] == pytest.approx(0.0) and table[2][2] == pytest.approx(1.0)


def test_clips_do_nothing_at_ratio_1_and_cut_after_updates():
    session = tools.session("grpo")
    tools.shake(session.policy, by=0.3)
    batch = collect(session)
    rows = ["grpo", "ppo", "remax", "gspo", "gmpo", "cispo", "dppo", "kl_cov"]
    specs = {key: spec_for(session, ALGORITHMS[key], 0, SIZE) for key in rows}
    specs["cispo"] = replace(specs["cispo"], knobs=specs["cispo"].knobs | {"ratio_cap": 1.2})  # 5 is seldom reached
    rollouts = {key: seen_by(as_of(session, spec), batch) for key, spec in specs.items()}
    with_clip = [key for key in rows if SURROGATE[specs[key].knobs["surrogate"]].cut]
    values = torch.zeros_like(batch.rollout.old_logprobs)
    for key in rows:
        seen = inspect(session, specs[key], rollouts[key], values)
        assert (seen.unclipped is not None) == (key in with_clip)
        assert seen.unclipped is None or seen.unclipped == pytest.approx(1.0, abs=1e-6)
    spec = specs["grpo"]
    take(session, replace(spec, knobs=spec.knobs | {"learning_rate": 0.05}), rollouts["grpo"], values, 3)
    cut = [inspect(session, specs[key], rollouts[key], values) for key in with_clip]
    assert all(seen.measured["clip_frac/region"] > 0 for seen in cut)
    assert any(seen.unclipped < 0.99 for seen in cut)


def test_looking_changes_nothing(batch):
    session, sampled = batch
    before = tools.weights(session.policy)
    for key in FEW:
        spec = spec_for(session, ALGORITHMS[key], 0, SIZE)
        rollout = seen_by(as_of(session, spec), sampled)
        inspect(session, spec, rollout, torch.zeros_like(rollout.old_logprobs))
    assert torch.equal(tools.weights(session.policy), before)
    assert all(p.grad is None for p in session.policy.parameters())
    assert session.spec.algorithm == "grpo" and session.critic is None


def test_the_run_s_own_algorithm_keeps_its_knobs_and_all_sample_as_it_does():
    session = tools.session("grpo", beta=0.3, temperature=0.7, learning_rate=0.01)
    session.knobs["clip_low"] = 0.11  # moved while it ran
    specs = {key: spec_for(session, ALGORITHMS[key], 0, SIZE) for key in ONLINE}
    assert (specs["grpo"].knobs["beta"], specs["grpo"].knobs["clip_low"]) == (0.3, 0.11)
    for key, spec in specs.items():
        assert spec.knobs["temperature"] == 0.7 and spec.knobs["max_new_tokens"] == 6
        assert {spec.knobs[name] for name in ("mini_batches", "updates_per_batch") if name in spec.knobs} <= {1}
        assert (spec.knobs["prompts_per_step"], spec.knobs["group_size"]) == (4, 4)
        assert spec.knobs["advantage"] == ALGORITHMS[key].knob("advantage").default


def test_a_mix_stands_in_the_place_of_the_row_that_it_began_from():
    session = tools.session("grpo", mix="mine", surrogate="soft_gate")
    own, other = (spec_for(session, ALGORITHMS[key], 0, SIZE) for key in ("grpo", "sapo"))
    assert (own.row.label, own.knobs["surrogate"], other.mix) == ("mine", "soft_gate", "")


# ---------------------------------------------------------------- the critic


def test_a_run_s_own_critic_gives_the_values():
    session = tools.session("ppo")
    session.updates = 1
    tools.shake(session.critic, by=0.5)
    sampled = collect(session)
    values, about = critic_values(session, [spec_for(session, ALGORITHMS["ppo"], 0, SIZE)], sampled)
    assert torch.equal(values, sampled.rollout.old_values) and about["fitted"] is False


@pytest.mark.parametrize("algorithm", now(["grpo", "ppo"], "ppo"))
def test_where_none_has_learnt_one_is_fitted_to_other_batches(algorithm):
    session = tools.session(algorithm)
    sampled = collect(session)
    before = tools.weights(session.policy)
    values, about = critic_values(session, [spec_for(session, ALGORITHMS[key], 0, SIZE) for key in ONLINE], sampled)
    assert about["fitted"] and session.critic is not None
    assert torch.equal(tools.weights(session.policy), before)  # only the critic has learnt
    mask = sampled.rollout.completion_mask
    rewards = sampled.rollout.shaped[:, None].expand_as(values)[mask]
    assert float(((values[mask] - rewards) ** 2).mean()) < float((rewards ** 2).mean())
    assert (values[~mask] == 0).all()


@pytest.mark.parametrize("of_file", [False, True])
def test_the_critic_never_sees_the_batch_that_it_values(tmp_path, of_file):
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps({"prompt": f"{n}+1=", "answer": str(n + 1)}) + "\n"
                                                 for n in range(64)))
    file = {"task": "prompts", "data": str(tmp_path / "sums.jsonl")} if of_file else {}
    session = tools.session("grpo", letters=False, **file)
    spec, seen = spec_for(session, ALGORITHMS["ppo"], 0, SIZE), []

    def collected(learner):
        batch = collect(learner)
        seen.append(batch.batch.problems)
        return batch
    sampled = collect(as_of(session, spec))
    with patch("labcore.llm.probes.one_batch.collect", collected), \
            patch("labcore.llm.probes.one_batch.CRITIC_BATCHES", 3):
        critic_values(session, [spec], sampled)
    assert len(seen) > 1 and sampled.batch.problems not in seen
    assert all(problems not in seen[:place] for place, problems in enumerate(seen))


def test_an_algorithm_that_would_sample_otherwise_gets_the_same_batch():
    row = ALGORITHMS["rloo"]
    cool = replace(row, knobs=tuple(knob.with_default(0.5) if knob.key == "temperature" else knob
                                    for knob in row.knobs))
    with patch.dict(ALGORITHMS, {"rloo": cool}):
        assert spec_for(tools.session("grpo"), cool, 0, SIZE).knobs["temperature"] == 1.0


# ---------------------------------------------------------------- the job


@pytest.fixture
def letters():
    """A task that pays random models, and a critic that is soon fitted."""
    with patch("labcore.llm.session.make_task", lambda *_: tools.Letters()), \
            patch("labcore.llm.probes.one_batch.CRITIC_BATCHES", 1):
        yield


@pytest.fixture
def few():
    """Of all online rows a few: each costs a step and three measurements."""
    with patch("labcore.llm.probes.one_batch.ONLINE", tuple(ALGORITHMS[key] for key in FEW)):
        yield


@pytest.mark.long
@pytest.mark.parametrize("algorithm, updates", [("dpo", 0), ("sft", 2), ("grpo", 0)])
def test_any_language_model_gives_a_batch(letters, few, algorithm, updates):
    assert_a_batch(algorithm, updates, FEW)


@pytest.mark.parametrize("rows", now([FEW, WAYS, ONLINE], FEW), ids=["few", "each way", "all"])
def test_every_online_row_has_its_place_in_it(letters, rows):
    with patch("labcore.llm.probes.one_batch.ONLINE", tuple(ALGORITHMS[key] for key in rows)):
        assert_a_batch("ppo", 2, [key for key in rows if "teacher_context" not in {
            knob.key for knob in ALGORITHMS[key].knobs if knob.default != "nothing"}])


def assert_a_batch(algorithm, updates, rows):
    name = saved(f"{algorithm}-sort-aaaa", algorithm)
    found = one_batch({**ASKED, "model": name, "updates": updates})
    json.dumps(found, allow_nan=False)
    keys = [each["key"] for each in found["algorithms"]]
    assert keys == rows and found["model"] == f"{name}@2"
    assert found["own"] == (algorithm if algorithm in rows else rows[0])
    assert [len(row) for row in found["cosines"]] == [len(rows)] * len(rows)
    assert len(found["completions"]) == 16
    for each in found["algorithms"]:
        for push, completion in zip(each["push"], found["completions"], strict=True):
            assert len(push) == len(completion["tokens"]) == len(completion["ratio"])
    ones = [ratio for completion in found["completions"] for ratio in completion["ratio"]]
    assert (max(ones) - 1 < 1e-3) == (updates == 0)


def test_the_chosen_algorithms_are_compared_and_another_one_may_step(letters):
    """Whom an algorithm is compared with changes nothing of its gradient."""
    name = saved("grpo-sort-aaaa")
    asked = {**ASKED, "model": name, "updates": 1, "stepper": "grpo"}
    two, three = (one_batch({**asked, "algorithms": [*first, "rloo", "dr_grpo"]}) for first in ([], ["grpo"]))
    assert [row["key"] for row in two["algorithms"]] == ["rloo", "dr_grpo"] and two["critic"] == {}
    assert two["algorithms"] == three["algorithms"][1:] and two["cosines"][0] == three["cosines"][1][1:]
    assert two["stepper"] == two["own"] == "grpo"


def test_it_is_the_same_for_the_same_seed(letters):
    asked = {**ASKED, "model": saved("grpo-sort-aaaa"), "algorithms": ["rloo"]}
    first, other = (one_batch({**asked, "seed": seed}) for seed in (0, 1))
    assert first["completions"] != other["completions"]
    assert jobs.compute({"job": "one_batch", **asked}) == json.loads(json.dumps(first))


def test_equal_rewards_leave_only_the_price_of_the_kl():
    """At the base itself with random weights nothing is right: no advantage, no gradient, and that is no error."""
    name = saved("grpo-sort-aaaa", by=0.0)
    found = one_batch({**ASKED, "model": f"base:{name}", "algorithms": ["grpo", "rloo"]})
    assert found["batch"]["reward"] == 0 and found["batch"]["flat_groups"] == 1.0
    assert found["cosines"][0][0] is None or found["algorithms"][0]["norm"] > 0
    json.dumps(found, allow_nan=False)


@every("change, words", [
    ({"model": "nobody"}, "run nobody has no model"), ({"prompts": 1}, "prompts must be a whole number from 2 to 256"),
    ({"group_size": 64}, "group_size must be"), ({"updates": -1}, "updates must be"),
    ({"stepper": "dpo"}, "There is no online algorithm 'dpo'"),
    ({"algorithms": ["grpo", "sft"]}, "There is no online algorithm 'sft': did you mean ")])
def test_what_cannot_be_is_one_sentence(change, words):
    name = saved("grpo-sort-aaaa")
    with pytest.raises(LabError, match=words):
        one_batch({**ASKED, "model": name, **change})


def test_a_model_too_large_for_the_memory_of_its_device_is_told():
    name, asked = saved("grpo-sort-aaaa"), []
    with patch("labcore.machine.free_memory", lambda device: asked.append(device) or 1000), \
            pytest.raises(LabError, match="Choose fewer algorithms, or a smaller model"):
        one_batch({**ASKED, "model": name})
    assert asked == ["cpu"]
    assert learner(name).step == 2
