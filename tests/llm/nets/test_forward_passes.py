"""Whichever way a batch is run, whole or with its logits in chunks, with all layers kept or computed again: what is
measured of each token, and every gradient, is that of the plain pass."""

from functools import partial

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, Qwen2Config, Qwen3Config

from labcore.errors import LabError
from labcore.llm.nets import compiled, forward, head, llama, packed, recompute
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.forward import at_tokens, causal, completion_outputs, plain, precision, shared
from labcore.llm.nets.table import build_table
from labcore.maths.logprobs import logprobs_and_entropy
from tests.every import now
from tests.llm.tools import CONFIGS, HEADS, LENGTHS, SIZE, VOCABULARY, completion_ids, model, prompts, shake

CONFIGS = {**CONFIGS, "qwen3": lambda vocabulary: Qwen3Config(
    vocab_size=vocabulary, num_key_value_heads=1, head_dim=8, **SIZE)}
PATHS = {"packed": packed.packed, "shared": shared, "causal": causal, "plain": plain}
MEASURE = partial(logprobs_and_entropy, temperature=0.7)
ROWS, LENGTH = 3 * len(LENGTHS), 5
EXACT = 1e-6  # rotary angles are float32 in every model


def network(kind: str, dtype=torch.float64, **settings):
    config = CONFIGS[kind](VOCABULARY)
    for name, value in settings.items():
        setattr(config, name, value)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = AutoModelForCausalLM.from_config(config).to(dtype).eval()
    shake(made)
    return made


def found(network, path, monkeypatch, chunks=False, again=False, dtype="fp32"):
    """Log-probs, entropies, the norms of the logits' gradients and every parameter's gradient, of a random weighing."""
    network.zero_grad(set_to_none=True)
    asked, ids = prompts(), completion_ids(ROWS, LENGTH)
    norms = torch.zeros(ids.shape)
    recompute.mark(network, again)
    with monkeypatch.context() as patched:
        patched.setattr(forward, "path_of", lambda *_: path)
        patched.setattr(head, "MAX_ELEMENTS", 7 * VOCABULARY if chunks else 2**26)
        with precision(network, dtype):
            logprobs, entropy = at_tokens(network, asked, ids, MEASURE, norms)
        weighing = torch.randn(2, *ids.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        (weighing.to(logprobs.dtype) * torch.stack([logprobs, entropy])).sum().backward()
    return logprobs, entropy, norms, {name: weight.grad for name, weight in network.named_parameters()}


def distance(one, other) -> float:
    return float((one.double() - other.double()).norm() / other.double().norm())


def alike(one, other, within):
    """That all that is `found` is the same up to `within` of its size."""
    for mine, theirs in zip(one[:3], other[:3], strict=True):
        assert distance(mine, theirs) < within
    for name, gradient in other[3].items():
        assert distance(one[3][name], gradient) < within, name


@pytest.mark.parametrize("kind", now(packed.KINDS, "llama", "gpt2"))
def test_every_pass_is_the_plain_one_in_float64(kind, monkeypatch):
    policy = network(kind)
    expected = found(policy, "plain", monkeypatch)
    assert expected[2].min() > 0.01 and all(gradient.norm() > 1e-3 for gradient in expected[3].values())
    for path in PATHS:
        for chunks in (False, True):
            for again in (False, True) if path != "shared" else (False,):
                alike(found(policy, path, monkeypatch, chunks, again), expected, EXACT)
    with monkeypatch.context() as patched:  # Llama by its classes, not by our equations
        patched.setattr(llama, "supported", lambda _: False)
        alike(found(policy, "packed", patched, chunks=True, again=True), expected, EXACT)


@pytest.mark.parametrize("kind", now(["llama", "qwen2"], "qwen2"))
@pytest.mark.parametrize("path", PATHS)
def test_and_in_float32_but_for_rounding(kind, path, monkeypatch):
    expected = found(network(kind), "plain", monkeypatch)
    alike(found(network(kind, torch.float32), path, monkeypatch, chunks=True, again=path != "shared"), expected, 1e-4)


@pytest.mark.parametrize("kind", packed.KINDS)
def test_a_critic_s_values_too(kind):
    critic = Critic(network(kind)).double()
    shake(critic)
    asked, ids = prompts(), completion_ids(ROWS, LENGTH)
    gradients = []
    for path, again in ((plain, False), (causal, False), (causal, True)):
        critic.zero_grad(set_to_none=True)
        recompute.mark(critic, again)
        with recompute.recomputing(critic):
            values = path(critic, asked, ids)
        values.square().sum().backward()
        gradients.append((values, {name: weight.grad for name, weight in critic.named_parameters()}))
    for values, own in gradients[1:]:
        assert distance(values, gradients[0][0]) < EXACT
        for name, gradient in gradients[0][1].items():
            assert distance(own[name], gradient) < EXACT, name


def test_padding_on_the_right_is_exact_with_a_sliding_window(monkeypatch):
    config = Qwen2Config(vocab_size=VOCABULARY, num_key_value_heads=1, use_sliding_window=True, sliding_window=3,
                         max_window_layers=0, **SIZE)
    monkeypatch.setitem(CONFIGS, "qwen2", lambda vocabulary: config)
    sliding = network("qwen2")
    assert sliding.config.layer_types == ["sliding_attention"] * 2
    alike(found(sliding, "causal", monkeypatch), found(sliding, "plain", monkeypatch), EXACT)


def test_padding_on_the_right_needs_no_mask(monkeypatch):
    policy, masks = network("qwen2"), []
    policy.model.register_forward_pre_hook(lambda module, args, kwargs: masks.append(kwargs.get("attention_mask")),
                                           with_kwargs=True)
    asked, ids = prompts(), completion_ids(ROWS, LENGTH)
    before = causal(policy, asked, ids)
    asked.ids[~asked.mask] = 5
    assert masks == [None] and torch.equal(causal(policy, asked, ids), before), "padding is not read"


def test_logits_are_never_whole(monkeypatch):
    policy, sizes, real = network("gpt2", torch.float32), [], head.watch
    monkeypatch.setattr(head, "watch", lambda logits, norms: sizes.append(logits.numel()) or real(logits, norms))
    found(policy, "packed", monkeypatch, chunks=True)
    # Once forward, once more in the backward pass.
    assert max(sizes) == 7 * VOCABULARY and sum(sizes) == 2 * ROWS * LENGTH * VOCABULARY
    assert isinstance(policy.lm_head, torch.nn.Linear), "the head is back"
    sizes.clear()
    with monkeypatch.context() as patched, torch.no_grad():
        patched.setattr(head, "MAX_ELEMENTS", 7 * VOCABULARY)
        at_tokens(policy, prompts(), completion_ids(ROWS, LENGTH), MEASURE)
    assert sum(sizes) == ROWS * LENGTH * VOCABULARY


def test_the_norms_are_those_of_the_gradient_that_autograd_has_of_the_logits(monkeypatch):
    policy, asked, ids = network("qwen2"), prompts(), completion_ids(ROWS, LENGTH)
    logits = plain(policy, asked, ids).detach().requires_grad_()
    weighing = torch.randn(2, *ids.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (weighing * torch.stack(MEASURE(logits, ids))).sum().backward()
    for chunks in (False, True):
        assert distance(found(policy, "plain", monkeypatch, chunks)[2], logits.grad.norm(dim=-1)) < EXACT


def test_other_heads_stay_whole(monkeypatch):
    monkeypatch.setattr(head, "MAX_ELEMENTS", 1)
    monkeypatch.setattr(head, "in_chunks", lambda *_: pytest.fail("logits are not only a matrix times hidden states"))
    mamba = model("mamba")
    assert not head.has_plain_head(mamba) and not head.has_plain_head(build_table(5, 4, 0, 0))
    assert at_tokens(mamba, prompts((4, 4, 4)), completion_ids(ROWS, LENGTH), MEASURE)[0].shape == (ROWS, LENGTH)


def test_in_bfloat16_the_backward_pass_has_the_rounded_weights_again(monkeypatch):
    """They are lent for the forward pass only; layers and chunks that are computed again need them once more."""
    for kind in ("llama", "qwen2"):
        policy = network(kind, torch.float32)
        exact = found(policy, "packed", monkeypatch)[3]
        usual = found(policy, "packed", monkeypatch, dtype="bf16")[3]
        gradients = found(policy, "packed", monkeypatch, chunks=True, again=True, dtype="bf16")[3]
        assert all(weight.dtype == torch.float32 for weight in policy.parameters())
        for name, gradient in exact.items():
            assert 0 < distance(gradients[name], gradient) < 2 * distance(usual[name], gradient) + 0.02, name


def test_dropout_stays_off_where_layers_are_computed_again(monkeypatch):
    config = GPT2Config(vocab_size=VOCABULARY, resid_pdrop=0.5, attn_pdrop=0.5, embd_pdrop=0.5, **HEADS)
    monkeypatch.setitem(CONFIGS, "gpt2", lambda vocabulary: config)
    policy = network("gpt2")
    expected = found(policy, "plain", monkeypatch)
    alike(found(policy, "causal", monkeypatch, again=True), expected, EXACT)


def kept(network, again) -> int:
    """Bytes that autograd keeps for the backward pass of a pass over long rows."""
    recompute.mark(network, again)
    sizes = {}

    def pack(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = completion_outputs(network, prompts(), completion_ids(ROWS, 20))
    weights = {weight.untyped_storage().data_ptr() for weight in network.parameters()}
    del outputs
    return sum(size for place, size in sizes.items() if place not in weights)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_layers_that_are_computed_again_keep_their_input_only(kind):
    policy = network(kind, torch.float32, num_hidden_layers=6, n_layer=6)
    assert kept(policy, True) < 0.35 * kept(policy, False)
    assert not any("forward" in vars(part) for part in policy.modules()), "and the layers are themselves again"


def test_a_network_without_layers_says_so():
    with pytest.raises(LabError, match=r"softmax_table model has no layers .* switch `gradient_checkpointing` off"):
        recompute.mark(build_table(5, 4, 0, 0), True)


def test_what_cannot_be_compiled_here_is_a_sentence(monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("No working C++ compiler found.\nSee the docs")
    monkeypatch.setattr(torch, "compile", refuse)
    with pytest.raises(LabError, match=r"Nothing can be compiled here \(no working C\+\+ compiler found\): switch"):
        compiled.check(torch.device("cpu"))
