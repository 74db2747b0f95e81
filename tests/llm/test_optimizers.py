"""AdamW with moments in float32 or in 8 bits: what a checkpoint holds continues the run bit for bit."""

import sys
from dataclasses import replace
from importlib.util import find_spec
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file
from transformers import Trainer, get_scheduler

from labcore.errors import LabError
from labcore.llm import optimizers
from labcore.llm.nets.critic import Critic
from labcore.llm.networks import learnt
from labcore.llm.session import LlmSession
from labcore.llm.sizing import passes
from labcore.runs.spec.eight_bit import EIGHT_BIT
from labcore.runs.spec.run_spec import make
from tests.every import now
from tests.llm.tools import CONFIGS, Letters, model, quietly, records, session, weights

with_library = pytest.mark.skipif(find_spec("bitsandbytes") is None,
                                  reason="bitsandbytes is not installed: pip install -r requirements-8bit.txt")
KNOBS = {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 6, "sft_steps": 0, "updates_per_batch": 1,
         "mini_batches": 1}


def started(optimizer: str, algorithm: str = "grpo", resume=None, **knobs) -> LlmSession:
    """A session of the smallest model whose matrices are large enough for 8 bits."""
    session = LlmSession.start(make(algorithm_key=algorithm, task_key="sort", steps=2, device="cpu",
                                    knobs={**KNOBS, "optimizer": optimizer, **knobs}), resume=resume)
    session.task = Letters()
    return session


MOVED = {"schedule": "cosine", "warmup_steps": 1, "weight_decay": 0.1, "adam_beta2": 0.95}


@pytest.mark.parametrize("name", [optimizers.ADAMW, pytest.param(EIGHT_BIT, marks=with_library)])
@pytest.mark.parametrize("algorithm, knobs", now([("grpo", {}), ("ppo", {}), ("ppo", MOVED)], ("ppo", MOVED)))
def test_a_checkpoint_continues_bit_for_bit(name, algorithm, knobs, tmp_path):
    whole = started(name, algorithm, **knobs)
    with quietly():
        run = (record for record in whole.run() if record is not None)
        next(run)
        whole.save(tmp_path)
        rest = [record.metrics for record in run]
        resumed = started(name, algorithm, tmp_path, **knobs)
        assert [record.metrics for record in resumed.run() if record is not None] == rest
    for network in whole.optimizers:
        assert torch.equal(weights(whole.models[network]), weights(resumed.models[network]))


@with_library
def test_eight_bits_are_a_quarter_and_their_updates_near_those_of_float32(tmp_path):
    plain, small = started(optimizers.ADAMW), started(EIGHT_BIT)
    before = weights(plain.policy)
    for each in plain, small:
        for weight in learnt(each.policy):
            weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
        each.optimise("policy", 1e-3, 0.0)
    moved = [weights(each.policy) - before for each in (plain, small)]
    assert 0 < (moved[1] - moved[0]).norm() < 0.05 * moved[0].norm()
    small.save(tmp_path)
    tensors = load_file(tmp_path / "optimizer_policy.safetensors")
    moments = sum(each.nbytes for name, each in tensors.items() if "state" in name or "absmax" in name)
    count = sum(weight.numel() for weight in learnt(small.policy))
    assert any(each.dtype == torch.uint8 for each in tensors.values())
    assert moments == pytest.approx(passes.optimizer(count, "adamw_8bit"), rel=0.05)


@with_library
def test_a_fork_goes_on_with_its_parent_s_moments(tmp_path):
    parent = started(EIGHT_BIT)
    with quietly():
        next(record for record in parent.run() if record is not None)
    state = optimizers.tensors_of(parent.optimizers["policy"])
    forked = parent.fork(replace(parent.spec, parent=("a-run", 1)))
    again = optimizers.tensors_of(forked.optimizers["policy"])
    assert state.keys() == again.keys() and all(torch.equal(each, again[name]) for name, each in state.items())


@with_library
@pytest.mark.parametrize("before, after", [(EIGHT_BIT, optimizers.ADAMW), (optimizers.ADAMW, EIGHT_BIT)])
def test_a_fork_with_another_optimizer_begins_its_moments_anew_and_can_be_resumed(before, after, tmp_path):
    parent = started(before)
    with quietly():
        next(record for record in parent.run() if record is not None)
    spec = replace(parent.spec, parent=("a-run", 1), knobs={**parent.spec.knobs, "optimizer": after})
    forked = parent.fork(spec)
    assert not optimizers.tensors_of(forked.optimizers["policy"])
    with quietly():
        next(record for record in forked.run() if record is not None)
    forked.save(tmp_path)
    again = LlmSession.start(spec, resume=tmp_path)
    assert optimizers.tensors_of(again.optimizers["policy"]).keys() == optimizers.tensors_of(
        forked.optimizers["policy"]).keys()


@pytest.mark.parametrize("name", [optimizers.ADAMW, pytest.param(EIGHT_BIT, marks=with_library)])
def test_weights_decay_only_where_the_knob_says_so(name):
    model = torch.nn.Linear(64, 128)
    before = model.weight.detach().clone()
    optimizer = optimizers.make(name, model.parameters(), 0.1)
    for knobs, left in ({}, 1.0), ({"weight_decay": 0.5}, 0.95):
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        optimizers.step(optimizer, model, 0.1, knobs)
        assert torch.equal(model.weight, left * before), knobs


@pytest.mark.parametrize("kind", [*CONFIGS])
def test_what_decays_is_what_transformers_trainer_decays(kind):
    policy = model(kind)
    for each in policy, Critic(policy):
        own = {id(weight) for weight in optimizers.decaying(each)}
        wanted = Trainer.get_decay_parameter_names(None, each)
        names = [name for name, weight in each.named_parameters() if id(weight) in own]
        assert {*names} == {*wanted} & {name for name, _ in each.named_parameters()} and len(names) > 2
        assert len(names) < len([*each.parameters()]), "norms do not"


def test_a_step_is_that_of_torchs_adamw_in_the_two_groups_of_a_trainer():
    ours, theirs = model("gpt2"), model("gpt2")
    numbers = {"weight_decay": 0.1, "adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-6}
    names = {*Trainer.get_decay_parameter_names(None, theirs)}
    parts = [[weight for name, weight in theirs.named_parameters() if (name in names) == decays]
             for decays in (True, False)]
    reference = torch.optim.AdamW([{"params": parts[0], "weight_decay": 0.1}, {"params": parts[1], "weight_decay": 0}],
                                  betas=(0.8, 0.95), eps=1e-6)
    optimizer = optimizers.make(optimizers.ADAMW, ours.parameters(), 1.0)
    for number, rate in enumerate((1e-2, 3e-3, 1e-2)):
        for each in ours, theirs:
            for place, weight in enumerate(each.parameters()):
                weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(100 * number + place))
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
        optimizers.step(optimizer, ours, rate, numbers)
    assert torch.allclose(weights(ours), weights(theirs), rtol=1e-6, atol=1e-7)
    assert not torch.allclose(weights(ours), weights(model("gpt2")), atol=1e-3)


SCHEDULED = [("grpo", {"updates_per_batch": 2, "mini_batches": 2}), ("ppo", {"mini_batches": 2}), ("dpo", {}),
             ("reward_model", {}), ("sft", {"eval_every": 9})]


@pytest.mark.parametrize("algorithm, updates", now(SCHEDULED, *SCHEDULED[:2]))
def test_every_loop_follows_the_schedule_of_transformers(algorithm, updates):
    """Each update of each network that learns, where a step of the lab has several of them."""
    knobs = {"schedule": "cosine", "warmup_steps": 2, "learning_rate": 1e-3, **updates}
    run, each = session(algorithm, steps=5, **knobs), 1
    for knob in ("updates_per_batch", "mini_batches"):
        each *= int(run.knobs.get(knob, 1))
    seen: dict[str, list[float]] = {name: [] for name in run.optimizers}

    def step(optimizer, network, rate, given):
        seen[next(name for name in run.optimizers if run.models[name] is network)].append(rate)
        real(optimizer, network, rate, given)

    real = optimizers.step
    with patch.object(optimizers, "step", step), patch.object(LlmSession, "learns_from", lambda *_: True):
        logged = [record.metrics["learning_rate"] for record in records(run)]
    for name, rates in seen.items():
        top = run.knobs["critic_learning_rate" if name == "critic" else "learning_rate"]
        scheduled = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=top)
        schedule = get_scheduler("cosine", scheduled, 2 * each, 5 * each)
        wanted = []
        for _ in range(5 * each):
            wanted.append(schedule.get_last_lr()[0])
            scheduled.step()
            schedule.step()
        assert rates == pytest.approx(wanted, rel=1e-12), name
        if name != "critic":
            assert logged == pytest.approx([sum(wanted[each * n: each * n + each]) / each for n in range(5)])


def test_the_schedule_of_a_fork_is_that_of_its_own_length():
    parent = session("grpo", steps=4, schedule="linear", learning_rate=1e-3)
    at_end = [record.metrics["learning_rate"] for record in records(parent)]
    assert at_end == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4])
    forked = parent.fork(replace(parent.spec, parent=("a-run", 4), steps=8))
    assert [record.metrics["learning_rate"] for record in records(forked)] == pytest.approx(
        [5e-4, 3.75e-4, 2.5e-4, 1.25e-4])


def test_a_schedule_that_changes_live_counts_from_the_next_update():
    run = session("grpo", steps=4, learning_rate=1e-3)
    rates = []
    with quietly():
        for record in run.run():
            rates.append(record.metrics["learning_rate"])
            run.knobs["schedule"] = "linear" if record.step == 2 else run.knobs["schedule"]
    assert rates == pytest.approx([1e-3, 1e-3, 5e-4, 2.5e-4])


def test_a_missing_library_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(LabError, match=r"needs the package bitsandbytes: .*requirements-8bit\.txt, or set optimizer"):
        started(EIGHT_BIT)
