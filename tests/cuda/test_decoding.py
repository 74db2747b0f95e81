"""CUDA graphs of decoding steps: what they draw is the model's, they are recorded once, and freed."""

import gc

import pytest
import torch

from labcore.llm.batch import Prompts
from labcore.llm.graphs import CudaRecorder, Graphs, of_device
from labcore.llm.nets.forward import plain, precision
from labcore.llm.nets.lora import Lora
from labcore.llm.sampler import sample
from labcore.maths.logprobs import selective_log_softmax
from tests.llm.tools import model, prompts, shake

KINDS = ("llama", "qwen2", "qwen3", "gpt2", "gpt_neox")
EOS, GROUP = 1, 8
MUCH = 2**33


class Counting(CudaRecorder):
    """CUDA's graphs, counted."""

    count = 0

    def record(self, decoder, beside):
        self.count += 1
        return super().record(decoder, beside)


@pytest.fixture
def asked(gpu):
    given = prompts()
    return Prompts(given.ids.to(gpu), given.mask.to(gpu))


def given(seed=0, limit=20, **knobs):
    return {"max_new_tokens": limit, "eos": EOS, "generator": torch.Generator("cuda").manual_seed(seed),
            "temperature": 1.0, "top_k": 0, "top_p": 1.0, "greedy": False, **knobs}


@pytest.mark.parametrize("dtype, atol, mean, same", [("fp32", 1e-4, 1e-5, 0.9), ("bf16", 0.5, 0.03, 0.4)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_draws_what_the_model_says(asked, kind, dtype, atol, mean, same):
    """Three batches, the weights moved between them: log-probs of the tokens drawn are those of the plain forward pass
    and of the step-by-step path, whose draws they are but for rounding."""
    network, recorded = model(kind).cuda(), of_device(torch.device("cuda"))
    for seed in range(3):
        got = recorded.sample(network, asked, GROUP, dtype=dtype, **given(seed))
        assert got is not None and not recorded.notes
        with precision(network, dtype), torch.no_grad():
            expected = selective_log_softmax(plain(network, asked, got.ids), got.ids).masked_fill(~got.mask, 0)
            stepwise = sample(network, asked, GROUP, **given(seed))
        torch.testing.assert_close(got.logprobs, expected, rtol=0, atol=atol)
        assert (got.logprobs - expected).abs().mean() < mean
        width = min(got.ids.shape[1], stepwise.ids.shape[1])
        assert (got.ids[:, :width] == stepwise.ids[:, :width]).float().mean() >= same
        shake(network.cpu(), seed, by=0.1)
        network.cuda()


@pytest.mark.parametrize("knobs", [{"top_k": 3}, {"top_p": 0.7}, {"top_k": 5, "top_p": 0.8, "temperature": 0.6},
                                   {"greedy": True}])
def test_with_every_knob_of_sampling(asked, knobs):
    network, recorded = model("qwen2").cuda(), of_device(torch.device("cuda"))
    got = recorded.sample(network, asked, GROUP, dtype="fp32", **given(**knobs))
    stepwise = sample(network, asked, GROUP, **given(**knobs))
    width = min(got.ids.shape[1], stepwise.ids.shape[1])
    same = (got.ids[:, :width] == stepwise.ids[:, :width]).cumprod(1).bool()  # until rounding turns a draw
    assert same.float().mean() > 0.9
    torch.testing.assert_close(got.logprobs[:, :width][same], stepwise.logprobs[:, :width][same], rtol=0, atol=1e-4)


def test_a_turned_knob_needs_no_new_graph(asked):
    network, recorded = model().cuda(), Graphs(recorder := Counting(), MUCH)
    for knobs in ({}, {"temperature": 0.5}, {"limit": 9}):
        assert recorded.sample(network, asked, GROUP, dtype="bf16", **given(**knobs)) is not None
    assert recorder.count == 1
    for knobs in ({"top_k": 2}, {"top_k": 4, "top_p": 0.5}, {"top_p": 0.9}):
        assert recorded.sample(network, asked, GROUP, dtype="bf16", **given(**knobs)) is not None
    assert recorder.count == 2 and not recorded.notes


def test_equal_generators_draw_equally_whatever_is_kept(asked):
    """A graph that is there, one that is recorded for this batch, and one beside others: the same bits."""
    network, recorded, alone = model().cuda(), Graphs(CudaRecorder(), MUCH), Graphs(CudaRecorder(), MUCH)
    recorded.sample(network, asked, GROUP, dtype="bf16", **given(5, top_k=3))
    generators = [torch.Generator("cuda").manual_seed(3) for _ in range(2)]
    for _ in range(3):
        one, two = (each.sample(network, asked, GROUP, dtype="bf16", **given(generator=generator))
                    for each, generator in zip((recorded, alone), generators, strict=True))
        assert torch.equal(one.ids, two.ids) and torch.equal(one.logprobs, two.logprobs)
        assert torch.equal(generators[0].get_state(), generators[1].get_state())
        alone.free()
    assert alone.nbytes == 0 < recorded.nbytes


def test_adapters_are_decoded_too(asked):
    network, recorded = model("qwen2").cuda(), of_device(torch.device("cuda"))
    Lora(2, 4, 0).put_on(network)
    recorded.sample(network, asked, GROUP, dtype="fp32", **given())
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.2)
    got = recorded.sample(network, asked, GROUP, dtype="fp32", **given())
    expected = selective_log_softmax(plain(network, asked, got.ids).detach(), got.ids).masked_fill(~got.mask, 0)
    torch.testing.assert_close(got.logprobs, expected, rtol=0, atol=1e-4)
    assert not recorded.notes


def test_freed_it_leaves_no_memory_behind(asked):
    network, recorded = model().cuda(), Graphs(CudaRecorder(), MUCH)
    recorded.sample(network, asked, GROUP, dtype="bf16", **given())  # libraries keep what they allocate first
    recorded.free()
    gc.collect()
    before = torch.cuda.memory_allocated()
    wide = Prompts(asked.ids.repeat(50, 1), asked.mask.repeat(50, 1))
    for knobs in ({}, {"top_k": 3}, {"greedy": True}):
        recorded.sample(network, wide, GROUP, dtype="bf16", **given(**knobs))
    held = torch.cuda.memory_allocated() - before
    assert held >= recorded.nbytes > 10**6
    recorded.free()
    gc.collect()
    assert recorded.nbytes == 0 and torch.cuda.memory_allocated() - before < held / 20


def test_a_step_that_waits_for_the_gpu_is_not_recorded_and_nothing_else_suffers(asked):
    """The failure of a recording is a sentence; decoding, other recordings and the stream go on as before."""
    network, recorded, stream = model("gpt2").cuda(), Graphs(CudaRecorder(), MUCH), torch.cuda.current_stream()
    network.register_forward_hook(lambda _, __, output: output.logits.sum().item() and None)
    generator = torch.Generator("cuda").manual_seed(0)
    before = generator.get_state()
    assert recorded.sample(network, asked, GROUP, dtype="fp32", **given(generator=generator)) is None
    assert len(recorded.notes) == 1 and "it could not be recorded" in recorded.notes[0]
    assert torch.equal(generator.get_state(), before) and torch.cuda.current_stream() == stream
    assert sample(network, asked, GROUP, **given(generator=generator)).logprobs.isfinite().all()
    torch.cuda.empty_cache()  # raises while torch's allocator takes a recording to be under way
    other = model("qwen2").cuda()
    assert recorded.sample(other, asked, GROUP, dtype="fp32", **given(generator=generator)) is not None
    assert len(recorded.notes) == 1
