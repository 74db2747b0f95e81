"""A step over static buffers draws what the sampler draws, by the same operations on the same addresses each time."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, MistralConfig

from labcore.llm import sampler
from labcore.llm.batch import Prompts
from labcore.llm.nets.forward import completion_outputs, plain, precision
from labcore.llm.nets.table import SoftmaxTableConfig
from labcore.llm.static_decoder import LOOK_EVERY, Shape, StaticDecoder, keep_top, rounded_width, unfit
from labcore.maths.logprobs import selective_log_softmax
from tests.every import now
from tests.llm.recorders import taped
from tests.llm.tools import CACHELESS, SIZE, VOCABULARY, model, prompts
from tests.words import says

KINDS = ("llama", "qwen2", "qwen3", "gpt2", "gpt_neox")
EOS, GROUP, LIMIT = 1, 4, 9


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def decoded(network, asked, limit=LIMIT, eos=EOS, temperature=1.0, top_k=0, top_p=1.0, greedy=False, decoder=None):
    """The decoder and the completions that it draws."""
    shape = Shape.of(asked, GROUP, limit, top_k, top_p, greedy)
    decoder = decoder or StaticDecoder(network, shape, seeded())
    assert decoder.shape == shape
    decoder.begin(asked, temperature, top_k, top_p)
    return decoder, decoder.run(decoder.step, limit, eos)


def sampled(network, asked, limit=LIMIT, eos=EOS, **given):
    return sampler.sample(network, asked, GROUP, max_new_tokens=limit, eos=eos, generator=seeded(), **given)


def assert_alike(got, expected):
    assert torch.equal(got.ids, expected.ids) and torch.equal(got.mask, expected.mask)
    assert torch.equal(got.truncated, expected.truncated)
    torch.testing.assert_close(got.logprobs, expected.logprobs, rtol=0, atol=2e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_it_draws_what_the_sampler_draws(kind):
    network = model(kind, dtype=torch.float64)
    got, expected = decoded(network, prompts())[1], sampled(network, prompts())
    assert_alike(got, expected)
    assert len({tuple(row) for row in got.ids.tolist()}) > GROUP and not got.mask.all()


@pytest.mark.parametrize("given", [
    {"temperature": 0.6}, {"top_k": 3}, {"top_p": 0.8}, {"temperature": 1.7, "top_k": 5, "top_p": 0.6},
    {"top_k": VOCABULARY + 5}, {"greedy": True}, {"greedy": True, "top_k": 2}])
def test_with_every_knob_of_sampling(given):
    network = model("qwen2", dtype=torch.float64)
    assert_alike(decoded(network, prompts(), **given)[1], sampled(network, prompts(), **given))


@pytest.mark.parametrize("kind", KINDS)
def test_its_logits_are_the_models(kind):
    """In float64, of every token drawn, to the last digits: no prompt's padding and no masked column is seen."""
    network, asked = model(kind, dtype=torch.float64), prompts()
    seen = []
    head = network.get_output_embeddings()
    hook = head.register_forward_hook(lambda _, __, logits: seen.append(logits.view(len(logits), VOCABULARY)))
    _, got = decoded(network, asked, eos=-1)
    hook.remove()
    seen[0] = seen[0].repeat_interleave(GROUP, 0)
    torch.testing.assert_close(torch.stack(seen, 1), plain(network, asked, got.ids).detach(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype, atol, kind", now(
    [(*dtype, kind) for dtype in (("fp32", 1e-5), ("bf16", 0.2)) for kind in KINDS],
    *(("fp32", 1e-5, kind) for kind in KINDS), ("bf16", 0.2, "qwen3")))
def test_its_log_probs_are_the_trainers(kind, dtype, atol):
    network, asked = model(kind), prompts()
    with precision(network, dtype):
        got = decoded(network, asked, temperature=0.7)[1]
        logits = completion_outputs(network, asked, got.ids).detach()
    expected = selective_log_softmax(logits, got.ids, 0.7).masked_fill(~got.mask, 0)
    torch.testing.assert_close(got.logprobs, expected, rtol=0, atol=atol)
    assert (got.logprobs - selective_log_softmax(logits, got.ids, 1.0) * got.mask).abs().max() > 2 * atol


@pytest.mark.parametrize("kind", KINDS)
def test_wider_columns_change_nothing(kind):
    network, asked = model(kind, dtype=torch.float64), prompts()
    _, narrow = decoded(network, asked)
    with torch.no_grad():
        wide = StaticDecoder(network, Shape(len(asked), len(asked) * GROUP, 96, 64, False, False), seeded())
        wide.begin(asked, 1.0, 0, 1.0)
        assert_alike(wide.run(wide.step, LIMIT, EOS), narrow)


def test_a_batch_leaves_nothing_for_the_next_one():
    """Longer completions and longer prompts before, other ones now: the same as with new buffers."""
    network, longer, shorter = model(dtype=torch.float64), prompts((9, 12, 3)), prompts((2, 4, 1), seed=5)
    used, _ = decoded(network, longer, limit=20, eos=-1, temperature=2.0)
    used.generator.manual_seed(0)
    assert_alike(decoded(network, shorter, decoder=used)[1], decoded(network, shorter)[1])


def test_completions_are_not_the_buffers():
    network, asked = model(), Prompts(torch.tensor([[3, 4]]), torch.ones(1, 2, dtype=torch.bool))
    shape = Shape.of(asked, 1, 5, 0, 1.0, False)
    with torch.no_grad():
        decoder = StaticDecoder(network, shape, seeded())
        decoder.begin(asked, 1.0, 0, 1.0)
        got = decoder.run(decoder.step, 5, -1)
    before = replace(got, ids=got.ids.clone(), logprobs=got.logprobs.clone())
    decoder.ids.zero_(), decoder.logprobs.zero_()
    assert torch.equal(got.ids, before.ids) and torch.equal(got.logprobs, before.logprobs)


@pytest.mark.parametrize("limit, ends, steps", [(50, 0, 0), (50, 3, LOOK_EVERY), (50, 20, 2 * LOOK_EVERY),
                                                (20, None, 19), (1, None, 0)])
def test_it_looks_for_the_end_now_and_then(limit, ends, steps):
    """Completions are cut where the longest ends, whenever that is seen."""
    network, asked = model(), prompts()
    decoder = StaticDecoder(network, Shape.of(asked, GROUP, limit, 0, 1.0, False), seeded())
    with torch.no_grad():
        decoder.begin(asked, 1.0, 0, 1.0)
        drawn, taken = torch.full((51, len(asked) * GROUP), 5), []
        if ends is not None:
            drawn[ends] = EOS

        def advance():
            decoder.step()
            taken.append(None)
            decoder.ids[: len(taken) + 1] = drawn[: len(taken) + 1]
        decoder.ids[0] = drawn[0]
        got = decoder.run(advance, limit, EOS)
    assert len(taken) == steps
    assert got.ids.shape == (len(asked) * GROUP, limit if ends is None else ends + 1)
    assert got.mask.all() and bool(got.truncated.all()) == bool(got.truncated.any()) == (ends is None)


@pytest.mark.parametrize("kind, filtered", now([(kind, filtered) for kind in KINDS for filtered in (False, True)],
                                               ("llama", False), ("gpt2", True)))
def test_every_step_is_the_same_operations_on_the_same_addresses(kind, filtered):
    """Nothing in it depends on a number: not on how many tokens there are, nor on a knob."""
    network, asked = model(kind), prompts()
    decoder = StaticDecoder(network, Shape(len(asked), len(asked) * GROUP, 32, 32, filtered, False), seeded())
    knobs = ((1.0, 3, 0.9), (0.5, 0, 0.7), (2.0, 7, 1.0)) if filtered else ((1.0, 0, 1.0), (0.5, 0, 1.0))
    with torch.no_grad():
        first, *rest = (operations for knob in knobs for asks in (asked, prompts((2, 2, 5), seed=3))
                        for operations in [decoder.begin(asks, *knob), taped(decoder), taped(decoder)] if operations)
    assert len(first) > 40 and len(rest) == 4 * len(knobs) - 1
    assert all(operations == first for operations in rest)


@pytest.mark.parametrize("top_k", [0, 1, 3, 8, VOCABULARY, VOCABULARY + 3])
@pytest.mark.parametrize("top_p", [1.0, 0.95, 0.5, 1e-6])
def test_the_filter_is_the_samplers(top_k, top_p):
    logits = torch.randn(200, VOCABULARY, generator=seeded()) * 3
    logits[100:] = logits[100:].round()  # many alike
    logprobs = logits.log_softmax(-1)
    got = keep_top(logprobs, torch.tensor(top_k), torch.tensor(top_p))
    assert torch.equal(got, sampler.keep_top(logprobs, top_k, top_p))
    assert (got == -torch.inf).any() == (top_p < 1 or 0 < top_k < VOCABULARY)


def test_few_shapes():
    assert sorted({rounded_width(width) for width in range(1, 400)}) == [32, 48, 64, 96, 128, 192, 256, 384, 512]
    assert all(rounded_width(width) >= width for width in range(1, 400))

    def shape(width=40, limit=30, top_k=0, top_p=1.0, greedy=False):
        return Shape.of(prompts((width, 2)), 4, limit, top_k, top_p, greedy)
    assert shape() == shape(width=48, limit=32) == Shape(2, 8, 48, 32, False, False)
    assert shape(top_k=3) == shape(top_k=9, top_p=0.3) == shape(top_p=0.9) != shape()
    assert shape(greedy=True, top_k=3) == shape(greedy=True) != shape()


@pytest.mark.parametrize("kind", [*KINDS, *CACHELESS])
def test_which_models_it_can_decode(kind):
    assert bool(unfit(model(kind))) == (kind in CACHELESS)


def test_what_it_cannot_decode_it_says():
    window = AutoModelForCausalLM.from_config(MistralConfig(vocab_size=9, sliding_window=4, **SIZE))
    table = AutoModelForCausalLM.from_config(SoftmaxTableConfig())
    other = model()
    other.config._attn_implementation = "flash_attention_2"
    assert [says(unfit(each), fact) for each, fact in (
        (window, "whole text"), (table, "no cache"), (other, "flash_attention_2"))] == [True] * 3
