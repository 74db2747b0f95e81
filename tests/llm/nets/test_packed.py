"""All completions of a prompt in one row give what every row run whole gives, with padding and with gradient."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen3Config

from labcore.llm.nets import forward, packed
from labcore.llm.nets.critic import Critic
from labcore.llm.nets.forward import completion_outputs, path_of, plain
from tests.every import now
from tests.llm.tools import CONFIGS, LENGTHS, SIZE, VOCABULARY, completion_ids, prompts

CONFIGS = {**CONFIGS, "qwen3": lambda vocabulary: Qwen3Config(
    vocab_size=vocabulary, num_key_value_heads=1, head_dim=8, **SIZE)}


def network(config):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).eval()


@pytest.fixture(params=packed.KINDS)
def model(request):
    return network(CONFIGS[request.param](VOCABULARY))


@pytest.mark.parametrize("implementation", now(["sdpa", "eager"], "sdpa"))
@pytest.mark.parametrize("length", now([1, 5], 5))
def test_packed_is_plain_with_its_gradient(model, implementation, length):
    model.set_attn_implementation(implementation)
    asked, ids = prompts(), completion_ids(len(LENGTHS) * 3, length)
    critic = Critic(model)
    torch.nn.init.normal_(critic.head.weight, generator=torch.Generator().manual_seed(3))
    for each in (model, critic):
        assert path_of(each, asked, ids) == "packed"
        outputs, gradients = [], []
        for path in (plain, packed.packed):
            each.zero_grad(set_to_none=True)
            outputs.append(path(each, asked, ids))
            outputs[-1].square().sum().backward()
            gradients.append(torch.cat([p.grad.flatten() for p in each.parameters() if p.grad is not None]))
        torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-5, atol=1e-5)
        assert (gradients[1] - gradients[0]).norm() < 1e-5 * gradients[0].norm()


def test_completions_do_not_see_each_other(model):
    asked, ids = prompts(), completion_ids(len(LENGTHS) * 3, 5)
    before = packed.packed(model, asked, ids)
    ids[1::3] = 2
    after = packed.packed(model, asked, ids)
    for member in (0, 2):
        torch.testing.assert_close(after[member::3], before[member::3], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(after[1::3], before[1::3])


def test_who_packs():
    llama, short = network(LlamaConfig(vocab_size=VOCABULARY, **SIZE)), completion_ids(len(LENGTHS) * 3, 5)
    assert path_of(llama, prompts(), short) == "packed"
    assert path_of(llama, prompts(), completion_ids(len(LENGTHS) * 3, 90)) == "shared"
    sliding = network(MistralConfig(vocab_size=VOCABULARY, sliding_window=2, **SIZE))
    assert path_of(sliding, prompts(), short) == "shared"


def test_it_is_the_path_of_short_rows(monkeypatch):
    qwen, ids = network(CONFIGS["qwen2"](VOCABULARY)), completion_ids(len(LENGTHS) * 3, 5)
    for other in ("plain", "shared"):
        monkeypatch.setattr(forward, other, lambda *_: pytest.fail("short rows run packed"))
    assert completion_outputs(qwen, prompts(), ids).shape == (len(ids), 5, VOCABULARY)


def test_bfloat16_weights_are_lent_for_the_pass_only():
    llama, ids = network(LlamaConfig(vocab_size=VOCABULARY, tie_word_embeddings=True, **SIZE)), completion_ids(9, 5)
    exact, before = completion_outputs(llama, prompts(), ids), dict(llama.named_parameters())
    with forward.precision(llama, "bf16"):
        outputs = completion_outputs(llama, prompts(), ids)
        assert outputs.dtype == torch.bfloat16 and llama.lm_head.weight is llama.model.embed_tokens.weight
    assert all(weight is before[name] for name, weight in llama.named_parameters())
    assert 0 < (outputs - exact).norm() < 0.05 * exact.norm()
    gradients = []
    for loss in (exact.square().sum(), outputs.float().square().sum()):
        llama.zero_grad(set_to_none=True)
        loss.backward()
        gradients.append(torch.cat([weight.grad.flatten() for weight in llama.parameters()]))
    assert gradients[1].dtype == torch.float32
    assert 0 < (gradients[1] - gradients[0]).norm() < 0.1 * gradients[0].norm()
