"""Runs on a CUDA GPU: every loop steps in both precisions, equal specs are equal, a resumed run is the whole one."""

from contextlib import nullcontext
from dataclasses import replace
from math import isfinite

import pytest
import torch
from transformers import AutoModelForCausalLM

from labcore import machine
from labcore.catalog.cartpole import ALGORITHMS as METHODS
from labcore.classic.deep.session import DeepSession
from labcore.llm import memory
from labcore.llm.nets import fused, recompute
from labcore.llm.nets.forward import completion_outputs, plain, precision
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.classic.deep.conftest import SMALL
from tests.llm.tools import CONFIGS, VOCABULARY, WIDE, completion_ids, model, prompts, records, spec, weights


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("algorithm", ["grpo", "ppo", "dpo", "sft"])
def test_a_step_of_every_loop(started, algorithm, dtype):
    session = started(algorithm, steps=1, dtype=dtype)
    before = weights(session.policy)
    record, = records(session, pictures=True)
    assert all(isfinite(value) for value in record.metrics.values())
    assert not torch.equal(weights(session.policy), before) and before.is_cuda
    assert all(parameter.dtype == torch.float32 for parameter in session.policy.parameters())
    assert not record.notes


@pytest.mark.parametrize("algorithm, knobs", [("grpo", {"dtype": "bf16"}), ("ppo", {"top_k": 5}), ("remax", {})])
def test_equal_specs_are_equal_and_a_resumed_run_is_the_whole_one(started, algorithm, knobs, tmp_path):
    """Bit for bit, decoded by graphs."""
    whole, again = (started(algorithm, steps=4, **knobs) for _ in range(2))
    run = (record for record in whole.run() if record is not None)
    expected = [next(run), next(run)]
    assert whole.graphs.nbytes
    whole.save(tmp_path)
    expected += [*run]
    assert [each.metrics for each in records(again, pictures=True)] == [each.metrics for each in expected]
    resumed = started(algorithm, steps=4, resume=tmp_path, **knobs)
    assert [each.metrics for each in records(resumed, pictures=True)] == [each.metrics for each in expected[2:]]
    assert torch.equal(weights(resumed.policy), weights(whole.policy))
    assert torch.equal(resumed.generator.get_state(), whole.generator.get_state())
    assert not any(each.notes for each in expected) and not whole.graphs.nbytes


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "gpt_neox"])
def test_a_forward_pass_is_the_processors(gpu, kind):
    """Outputs and the gradients of the weights, in float32."""
    ids, found = completion_ids(12, 9), []
    for device in ("cpu", gpu):
        network, asked = model(kind).to(device), prompts()
        asked = replace(asked, ids=asked.ids.to(device), mask=asked.mask.to(device))
        outputs = completion_outputs(network, asked, ids.to(device))
        outputs.log_softmax(-1).gather(-1, ids.to(device)[..., None]).sum().backward()
        gradients = torch.cat([each.grad.flatten() for each in network.parameters() if each.grad is not None])
        found.append((outputs.detach().cpu(), gradients.cpu()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * float(one.abs().max()))


@pytest.mark.parametrize("method", METHODS)
def test_cartpole_on_the_gpu(gpu, method):
    given = {**SMALL[method], "eval_episodes": 2, "eval_every": 2}
    first, again = ([record.metrics for record in DeepSession.start(make(
        kind="cartpole", algorithm_key=method, task_key="CartPole-v1", knobs=given, seed=1, steps=2,
        device="cuda")).run() if record is not None] for _ in range(2))
    assert first == again and len(first) == 2


def test_memory_that_runs_out_is_said_in_words(gpu, monkeypatch):
    torch.zeros(1, device=gpu)
    monkeypatch.setattr(memory, "limit", lambda device, spec: None)  # which would allow the run more
    total = torch.cuda.get_device_properties(gpu).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**23) / total)
    try:
        store = Store()
        run_id = store.create(replace(spec("grpo", steps=2, sft_steps=0, prompts_per_step=512, group_size=64),
                                      device="cuda"))
        assert drive(store, run_id) == "failed"
        assert store.run(run_id).message.startswith(
            "Memory ran out while 512 × 64 completions of up to 6 tokens were drawn: lower one of these: "
            "`prompts_per_step`")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_a_run_takes_no_more_than_its_share(started):
    """Two runs fit on a GPU, and a run that needs more than its share ends in words."""
    session = started("grpo", gpu_share=0.05)
    total = torch.cuda.get_device_properties(session.device).total_memory
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(int(0.06 * total), dtype=torch.uint8, device=session.device)
    assert torch.empty(int(0.03 * total), dtype=torch.uint8, device=session.device).numel()
    started("grpo", gpu_share=1.0)
    assert torch.empty(int(0.06 * total), dtype=torch.uint8, device=session.device).numel()


def test_the_bf16_hint_is_what_torch_says(gpu):
    machine.bf16.cache_clear()
    found = machine.bf16("cuda")
    names = {torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())}
    assert any(name in found.where for name in names)
    if len(names) == 1:
        assert found.able is torch.cuda.is_bf16_supported(including_emulation=False)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("recomputed", [False, True])
def test_rows_side_by_side_are_the_plain_pass(gpu, kind, recomputed):
    """Outputs and gradients in bf16 are as near to those in float32 as those of the model's own code."""
    ids, asked = completion_ids(12, 9).to(gpu), prompts()
    asked = replace(asked, ids=asked.ids.to(gpu), mask=asked.mask.to(gpu))
    found = []
    for dtype, run in (("fp32", plain), ("bf16", plain), ("bf16", fused.outputs)):
        network = wide(kind).to(gpu)
        recompute.mark(network, recomputed)
        with precision(network, dtype):
            assert fused.serves(network) == (dtype == "bf16")
            with recompute.recomputing(network) if run is plain else nullcontext():
                outputs = run(network, asked, ids).float()
        outputs.log_softmax(-1).gather(-1, ids[..., None]).sum().backward()
        found.append((outputs.detach(), torch.cat([each.grad.flatten() for each in network.parameters()])))
    (exact, slopes), own, ours = found
    for truth, theirs, mine in ((exact, own[0], ours[0]), (slopes, own[1], ours[1])):
        assert (mine - truth).norm() < 1.5 * (theirs - truth).norm() + 1e-3 * truth.norm()


def wide(kind):
    """A model with heads of 16, the least that the pass takes."""
    size = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, **WIDE, "initializer_range": 0.1}
    made = CONFIGS[kind](VOCABULARY)
    made.update(size | ({"head_dim": 16}))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(made).eval()
