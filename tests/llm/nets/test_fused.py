"""The lab's layers for a GPU, on a processor by torch: rows side by side are the plain pass, and which models they fit.
Their steps of decoding are tested with `StaticDecoder`, their kernels in `tests/cuda`."""

from __future__ import annotations

import functools
import operator
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config

from labcore.llm.batch import Prompts, padded_prompts
from labcore.llm.nets import fused, recompute
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.forward import completion_outputs, plain
from labcore.llm.nets.lora import Lora
from labcore.maths import gpu
from tests.llm.tools import CACHELESS, SIZE, completion_ids, model, prompts

KINDS = ("llama", "qwen2", "qwen3")


@pytest.fixture
def apart(monkeypatch):
    """Attention of one row after the other, in place of torch's for CUDA."""
    def attend(q, k, v, bounds, longest, scale):
        ends = bounds.tolist()
        assert longest == max(stop - start for start, stop in pairwise(ends))
        return torch.cat([F.scaled_dot_product_attention(
            *(each[start:stop].transpose(0, 1) for each in (q, k, v)), is_causal=True, scale=scale,
            enable_gqa=True).transpose(0, 1) for start, stop in pairwise(ends)])
    monkeypatch.setattr(fused, "rows_attend", attend)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recomputed", [False, True])
def test_rows_side_by_side_are_the_plain_pass(kind, recomputed, apart):
    """Outputs and gradients."""
    network, asked, ids = model(kind), prompts(), completion_ids(12, 9)
    recompute.mark(network, recomputed)
    found = []
    for run in (fused.outputs, plain):
        outputs = run(network, asked, ids)
        outputs.log_softmax(-1).gather(-1, ids[..., None]).sum().backward()
        found.append((outputs.detach(), torch.cat([each.grad.flatten() for each in network.parameters()])))
        network.zero_grad(set_to_none=True)
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_an_adapter_and_a_critic_run_side_by_side_too(apart):
    network, asked, ids = model("qwen2"), prompts(), completion_ids(12, 9)
    critic = Critic(network)
    torch.nn.init.normal_(critic.head.weight)
    torch.testing.assert_close(fused.outputs(critic, asked, ids), completion_outputs(critic, asked, ids))
    Lora(2, 4, 0).put_on(network)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.2)
    torch.testing.assert_close(fused.outputs(network, asked, ids), plain(network, asked, ids), rtol=1e-4, atol=1e-5)


def test_no_padding_and_no_last_token_is_computed_and_shapes_are_few():
    asked, ids = prompts((3, 1)), completion_ids(4, 5)
    tokens, places, bounds, longest = fused.side_by_side(asked, ids)
    rows = [[*asked.ids[row // 2][asked.mask[row // 2]].tolist(), *ids[row, :-1].tolist()] for row in range(4)]
    assert bounds.tolist() == [0, 7, 14, 19, 24, fused.FILLED] and longest == fused.FILLED - 24
    assert tokens.tolist() == [*functools.reduce(operator.iadd, rows, []), *[0] * (fused.FILLED - 24)]
    assert places.tolist() == [place for length in (7, 7, 5, 5, fused.FILLED - 24) for place in range(length)]


def test_lengths_that_are_known_are_not_looked_up():
    asked = padded_prompts([[5, 6, 7], [8], [2, 3]], 0, torch.device("cpu"))
    assert asked.known == (3, 1, 2) == Prompts(asked.ids, asked.mask).lengths
    assert asked[1:].lengths == (1, 2) and asked[torch.tensor([2, 0])].lengths == (2, 3)
    fused.side_by_side(replace(asked, mask=asked.mask.to("meta"), ids=asked.ids.to("meta")), completion_ids(
        6, 4).to("meta"))  # where no number can be read


@pytest.mark.parametrize("kind", [*KINDS, "gpt2", "gpt_neox", *CACHELESS])
def test_which_models_they_fit(kind):
    assert fused.fits(model(kind)) == (kind in KINDS) and not fused.serves(model(kind))


def test_what_is_left_to_the_model_s_own_code():
    sizes = {"vocab_size": 11, **SIZE}
    longer = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    window = Qwen2Config(**sizes, use_sliding_window=True, sliding_window=4, max_window_layers=0)
    for config in (MistralConfig(**sizes), window, LlamaConfig(**sizes, hidden_act="gelu"),
                   LlamaConfig(**sizes, rope_parameters=longer), LlamaConfig(**sizes, head_dim=12)):
        assert not fused.fits(AutoModelForCausalLM.from_config(config))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_multiplied_as_one_stand_side_by_side(kind):
    network = model(kind)
    room = fused.room(network)
    attention = network.model.layers[1].self_attn
    parts = [attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]
    for number, part in enumerate(parts):
        room[part].fill_(number)
    joined = gpu.joined([room[part] for part in parts])
    assert joined[:, 0].tolist() == [0] * 16 + [1] * 8 + [2] * 8
    assert gpu.joined(parts) is None and room.keys() == {*network.parameters()}
    assert all(copy.shape == weight.shape and copy.dtype == torch.bfloat16 for weight, copy in room.items())


def test_rounded_weights_send_their_gradient_back_in_float32():
    weights = [torch.randn(3, 4, requires_grad=True), torch.randn(2, requires_grad=True), torch.randn(5)]
    first, second, third = gpu.rounded(weights, [torch.empty_like(each, dtype=torch.bfloat16) for each in weights])
    assert all(torch.equal(copy, weight.to(torch.bfloat16)) for copy, weight in zip(
        (first, second, third), weights, strict=True))
    (2 * first.float().sum() + third.sum()).backward()
    assert weights[0].grad.dtype == torch.float32 and (weights[0].grad == 2).all()
    assert weights[1].grad is None or not weights[1].grad.any()
