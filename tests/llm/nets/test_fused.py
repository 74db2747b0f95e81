"""The lab's layers for a GPU, on a processor by torch: rows side by side are the plain pass, and which models they fit.
Their steps of decoding are tested with `StaticDecoder`, their kernels in `tests/cuda`."""

import functools
import itertools
import operator
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config

from labcore.llm.batch import Prompts, padded_prompts
from labcore.llm.nets import fused, recompute
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.forward import completion_outputs, plain
from labcore.llm.nets.lora import Lora
from labcore.maths import gpu
from tests.every import now
from tests.llm.tools import CACHELESS, SIZE, completion_ids, model, prompts
from tests.maths.gpu_twins import Twins, attend_apart

KINDS = ("llama", "qwen2", "qwen3")


@pytest.fixture(params=[False, True], ids=["by modules", "by kernels"])
def apart(monkeypatch, request):
    """Attention of one row after the other, in place of torch's for CUDA; and what the kernels compute, by torch."""
    attend_apart(monkeypatch)
    if request.param:
        monkeypatch.setattr(gpu, "kernels", lambda x: Twins)


@pytest.mark.parametrize("recomputed, kind", now(
    [(recomputed, kind) for recomputed in (False, True) for kind in KINDS],
    *((False, kind) for kind in KINDS), (True, "llama")))
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


def test_weights_that_do_not_learn_get_no_gradient(apart):
    """And those that do, the same one."""
    asked, ids, found = prompts(), completion_ids(12, 9), []
    for run in (fused.outputs, plain):
        network = model("qwen2")
        for name, weight in network.named_parameters():
            weight.requires_grad_("layers.1" in name and any(part in name for part in ("k_proj", "up_proj", "norm")))
        run(network, asked, ids).square().sum().backward()
        found.append({name: weight.grad for name, weight in network.named_parameters() if weight.grad is not None})
    assert found[0].keys() == found[1].keys() and found[0]
    for name, theirs in found[1].items():
        torch.testing.assert_close(found[0][name], theirs, rtol=1e-4, atol=1e-4)


def test_an_adapter_and_a_critic_run_side_by_side_too(apart):
    network, asked, ids = model("qwen2"), prompts(), completion_ids(12, 9)
    critic = Critic(network)
    torch.nn.init.normal_(critic.head.weight)
    torch.testing.assert_close(fused.outputs(critic, asked, ids), completion_outputs(critic, asked, ids), rtol=1e-4,
                               atol=1e-4)
    Lora(2, 4, 0).put_on(network)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.2)
    torch.testing.assert_close(fused.outputs(network, asked, ids), plain(network, asked, ids), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lengths, group, width", [((3, 1), 2, 5), ((40, 300, 7), 8, 100)])
def test_no_padding_and_no_last_token_is_computed_and_shapes_are_few(lengths, group, width):
    asked, ids = prompts(lengths), completion_ids(len(lengths) * group, width)
    tokens, places, bounds, longest = fused.side_by_side(asked, ids)
    rows = [[*asked.ids[row // group][asked.mask[row // group]].tolist(), *ids[row, :-1].tolist()]
            for row in range(len(ids))]
    sizes, count = [*map(len, rows)], sum(map(len, rows))
    filled = len(tokens) - count
    assert 0 < filled <= max(fused.FILLED, count / 8) and len(tokens) % fused.FILLED == 0
    assert longest == max(sizes)
    while filled > longest:
        sizes, filled = [*sizes, longest], filled - longest
    sizes.append(filled)
    assert bounds.tolist() == [0, *itertools.accumulate(sizes)]
    assert tokens.tolist() == [*functools.reduce(operator.iadd, rows, []), *[0] * (len(tokens) - count)]
    assert places.tolist() == [place for length in sizes for place in range(length)]


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
