"""Our own equations of Llama give what transformers' classes give: outputs, gradients and samples."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config

from labcore.llm import sampler
from labcore.llm.nets import forward, llama
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.forward import completion_outputs, plain, precision, shared
from labcore.llm.sampler import sample
from tests.every import now
from tests.llm.tools import LENGTHS, SIZE, VOCABULARY, completion_ids, prompts, shake

SCALED = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0}
SHAPES = {
    "as many key heads as heads": {"num_attention_heads": 2},
    "two heads a key head": {"num_attention_heads": 4, "num_key_value_heads": 2},
    "one key head": {"num_attention_heads": 4, "num_key_value_heads": 1},
    "heads wider than the model": {"num_attention_heads": 2, "head_dim": 12},
    "tied": {"tie_word_embeddings": True},
    "a large vocabulary": {"vocab_size": llama.SMALL + 1},
    "other constants": {"rms_norm_eps": 0.1, "rope_parameters": {"rope_type": "default", "rope_theta": 10.0}},
}
VARIANTS = {
    "attention bias": {"attention_bias": True}, "mlp bias": {"mlp_bias": True}, "activation": {"hidden_act": "gelu"},
    "scaled rope": {"rope_parameters": SCALED}}


def network(seed: int = 0, **shape) -> LlamaForCausalLM:
    """A Llama whose every weight counts: a fresh one's norms scale by one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**{**SIZE, "vocab_size": VOCABULARY, **shape})).eval()
    shake(model, by=0.2)
    return model


def critic_of(model: LlamaForCausalLM) -> Critic:
    critic = Critic(model)
    shake(critic, by=0.2)
    return critic


def output_and_gradients(path, model, asked, ids):
    """The output, and the gradient of a random weighing of it for every parameter by name."""
    model.zero_grad(set_to_none=True)
    output = path(model, asked, ids)
    (output * torch.randn(output.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
    return output.detach(), {name: weight.grad for name, weight in model.named_parameters()}


@pytest.mark.parametrize("group_size, length", now([(3, 5), (1, 5), (3, 1), (1, 1)], (3, 5)))
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_outputs_and_every_gradient(shape, group_size, length):
    asked, ids = prompts(), completion_ids(len(LENGTHS) * group_size, length)
    policy = network(**shape)
    for model in (policy, critic_of(policy)):
        assert llama.supported(model)
        expected, gradients = output_and_gradients(plain, model, asked, ids)
        assert expected.std() > 0.1
        output, ours = output_and_gradients(llama.outputs, model, asked, ids)
        assert (output - expected).norm() <= 1e-5 * expected.norm()
        assert ours.keys() == gradients.keys()
        for name, gradient in gradients.items():
            assert (ours[name] - gradient).norm() <= 2e-5 * gradient.norm(), name


def samples(model, asked, group_size=4, **given):
    return sample(model, asked, group_size, **{"max_new_tokens": 6, "eos": 1,
                                               "generator": torch.Generator().manual_seed(0), **given})


@pytest.mark.parametrize("lengths", now([[*LENGTHS], [4, 4, 4]], [*LENGTHS]), ids=["padded", "unpadded"])
@pytest.mark.parametrize("shape", now(SHAPES.values(), SHAPES["two heads a key head"], SHAPES["tied"]), ids=SHAPES)
def test_the_same_chance_draws_the_same_tokens(shape, lengths, monkeypatch):
    model, asked = network(**shape), prompts(lengths)
    for group_size, given in ((4, {}), (1, {}), (4, {"max_new_tokens": 1}), (4, {"temperature": 0.7, "top_k": 3})):
        with monkeypatch.context() as patched:
            patched.setattr(sampler, "_cached_steps", lambda *_: pytest.fail("this model speaks Llama"))
            ours = samples(model, asked, group_size, **given)
        with monkeypatch.context() as patched:
            patched.setattr(llama, "supported", lambda _: False)
            theirs = samples(model, asked, group_size, **given)
        assert torch.equal(ours.ids, theirs.ids) and torch.equal(ours.mask, theirs.mask)
        torch.testing.assert_close(ours.logprobs, theirs.logprobs, rtol=1e-5, atol=1e-5)


def test_what_is_under_the_padding_is_not_read():
    model, asked = network(), prompts()
    outputs, drawn = llama.outputs(model, asked, completion_ids(9, 5)), samples(model, asked)
    asked.ids[~asked.mask] = 5
    assert torch.equal(llama.outputs(model, asked, completion_ids(9, 5)), outputs)
    assert torch.equal(samples(model, asked).logprobs, drawn.logprobs)


def test_bfloat16_is_as_near_as_transformers_own():
    """Rounding, which every path does in its own places, is all that may be between them."""
    model, asked, ids = network(), prompts(), completion_ids(9, 5)
    exact, exact_gradients = output_and_gradients(plain, model, asked, ids)

    def rounded(path):
        def run(*given):
            with precision(model, "bf16"):
                return path(*given).float()
        output, gradients = output_and_gradients(run, model, asked, ids)
        return ((output - exact).norm() / exact.norm(),
                *((gradients[name] - each).norm() / each.norm() for name, each in exact_gradients.items()))
    for ours, theirs in zip(rounded(llama.outputs), rounded(plain), strict=True):
        assert 0 < ours < 2 * theirs + 0.01 and theirs < 0.2
    with precision(model, "bf16"):
        drawn = samples(model, asked)
        logits = completion_outputs(model, asked, drawn.ids).float().detach()
    again = logits.log_softmax(-1).gather(-1, drawn.ids[..., None])[..., 0]
    assert (again - drawn.logprobs)[drawn.mask].abs().mean() < 0.05


@pytest.mark.parametrize("vocabulary, rows", [(VOCABULARY, VOCABULARY), (llama.SMALL + 1, 63)], ids=["small", "large"])
def test_the_first_layer_multiplies_each_word_of_a_small_vocabulary_once(vocabulary, rows, monkeypatch):
    seen, real = [], llama.product

    def product(x, *others):
        seen.append(len(x))
        return real(x, *others)
    monkeypatch.setattr(llama, "product", product)
    llama.outputs(network(vocab_size=vocabulary), prompts(), completion_ids(9, 6))
    assert seen[:3] == 3 * [rows] and min(seen[3:]) > VOCABULARY


def test_what_a_word_learns_at_many_places_is_not_rounded_in_between():
    words = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    llama._of(words, torch.tensor([[0] * 1000 + [1]])).sum().backward()
    assert words.grad.tolist() == [[1000], [1]], "bfloat16 cannot represent 257"


def test_double_precision():
    model, asked, ids = network().double(), prompts(), completion_ids(9, 5)
    torch.testing.assert_close(llama.outputs(model, asked, ids), plain(model, asked, ids), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_variants_are_left_to_their_own_code(variant, monkeypatch):
    model, asked, ids = network(**variant), prompts(), completion_ids(9, 5)
    assert not llama.supported(model) and not llama.supported(Critic(model))
    monkeypatch.setattr(llama, "_run", lambda *_, **__: pytest.fail("these are not its equations"))
    torch.testing.assert_close(completion_outputs(model, asked, ids), plain(model, asked, ids), rtol=1e-5, atol=1e-5)
    assert len(samples(model, asked)) == 12


def test_who_else_does_not_speak_it():
    qwen = AutoModelForCausalLM.from_config(Qwen2Config(vocab_size=VOCABULARY, **SIZE))
    assert not llama.supported(qwen) and not llama.supported(Critic(qwen))
    dropping = network(attention_dropout=0.1)
    assert llama.supported(dropping) and not llama.supported(dropping.train())
    adapted = network()
    adapted.model.layers[0].mlp.up_proj = torch.nn.Sequential(adapted.model.layers[0].mlp.up_proj)
    assert not llama.supported(adapted)


@pytest.mark.parametrize("group_size", [1, 3])
def test_short_rows_run_it_and_long_ones_the_cache(group_size, monkeypatch):
    model, called = network(), []
    for name, path in (("shared", shared), ("plain", plain)):
        monkeypatch.setattr(forward, name, lambda *given, name=name, path=path: called.append(name) or path(*given))
    for length in (5, 300):
        ids = completion_ids(len(LENGTHS) * group_size, length)
        assert completion_outputs(model, prompts(), ids).shape == (*ids.shape, VOCABULARY)
        assert called == ([] if length == 5 else ["plain" if group_size == 1 else "shared"])
