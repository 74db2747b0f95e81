"""AdamW with moments in float32 or in 8 bits: what a checkpoint holds continues the run bit for bit."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file

from labcore.errors import LabError
from labcore.jobs import held
from labcore.llm import optimizers
from labcore.llm.session import LlmSession, learnt
from labcore.spec.moments import EIGHT_BIT
from labcore.spec.run_spec import make
from tests.llm.tools import Letters, quietly, weights

with_library = pytest.mark.skipif(find_spec("bitsandbytes") is None,
                                  reason="bitsandbytes is not installed: pip install -r requirements-8bit.txt")
KNOBS = {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 6, "sft_steps": 0, "updates_per_batch": 1}


def started(optimizer: str, algorithm: str = "grpo", resume=None, **knobs) -> LlmSession:
    """A session of the smallest model whose matrices are large enough for 8 bits."""
    session = LlmSession.start(make(algorithm_key=algorithm, task_key="sort", steps=4, device="cpu",
                                    knobs={**KNOBS, "optimizer": optimizer, **knobs}), resume=resume)
    session.task = Letters()
    return session


@pytest.mark.parametrize("name", [optimizers.ADAMW, pytest.param(EIGHT_BIT, marks=with_library)])
@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_a_checkpoint_continues_bit_for_bit(name, algorithm, tmp_path):
    whole = started(name, algorithm)
    with quietly():
        run = (record for record in whole.run() if record is not None)
        next(record for record in run if record.step == 2)
        whole.save(tmp_path)
        rest = [record.metrics for record in run]
        resumed = started(name, algorithm, tmp_path)
        assert [record.metrics for record in resumed.run() if record is not None] == rest
    for network in whole.optimizers:
        assert torch.equal(weights(whole.models[network]), weights(resumed.models[network]))


@with_library
def test_eight_bits_are_a_quarter_and_their_updates_near_those_of_float32(tmp_path):
    plain, small = started(optimizers.ADAMW), started(EIGHT_BIT)
    before = weights(plain.policy)
    for session in plain, small:
        for weight in learnt(session.policy):
            weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
        session.optimise("policy", 1e-3, 0.0)
    moved = [weights(session.policy) - before for session in (plain, small)]
    assert 0 < (moved[1] - moved[0]).norm() < 0.05 * moved[0].norm()
    small.save(tmp_path)
    tensors = load_file(tmp_path / "optimizer_policy.safetensors")
    moments = sum(each.nbytes for name, each in tensors.items() if "state" in name or "absmax" in name)
    count = sum(weight.numel() for weight in learnt(small.policy))
    assert any(each.dtype == torch.uint8 for each in tensors.values())
    assert moments == pytest.approx(held.optimizer(count, "adamw_8bit"), rel=0.05)


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
def test_weights_do_not_decay(name):
    weight = torch.nn.Parameter(torch.ones(64, 128))
    optimizer = optimizers.make(name, [weight], 0.1)
    weight.grad = torch.zeros_like(weight)
    optimizer.step()
    assert torch.equal(weight, torch.ones(64, 128))


def test_a_missing_library_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(LabError, match=r"needs the package bitsandbytes: .*requirements-8bit\.txt, or set optimizer"):
        started(EIGHT_BIT)
