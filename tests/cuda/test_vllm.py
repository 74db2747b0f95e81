"""Rollouts by vLLM itself: on an NVIDIA GPU, or on a processor with vLLM's build for it. Skipped where neither is."""

import dataclasses
from inspect import signature

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from labcore.llm.batch import padded_prompts
from labcore.llm.nets.forward import completion_outputs, precision
from labcore.llm.session import LlmSession
from labcore.llm.vllm_sampler import VllmSampler
from labcore.runs.spec import vllm as rollouts
from labcore.runs.spec.run_spec import make
from tests.llm import vllm_stand_in
from tests.llm.nets.test_lora import IDS, LORA, TOKENIZER
from tests.llm.tools import Letters, records, shake

vllm = pytest.importorskip("vllm", reason="vLLM is not installed: requirements-vllm.txt")
pytestmark = pytest.mark.timeout(600)  # vLLM compiles the model when it starts
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# A prompt of more tokens than a block of the prefix cache has, which is 128 on a processor.
TEXTS = ["sort: cba =", "b", "abc=" * 40]


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """vLLM's build for the processor computes the same: there only the guard is lifted."""
    from vllm.platforms import current_platform

    if DEVICE == "cpu":
        if not current_platform.is_cpu():
            pytest.skip("there is no NVIDIA GPU, and this vLLM is not the one for processors")
        monkeypatch.setattr(rollouts, "DEVICES", ("cuda", "cpu"))
        monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")


def network(tied=False):
    """A Llama with heads of 32, the least that vLLM's attention takes on a processor; with weights far from zero.

    Tied weights are for the GPU: on a processor vLLM keeps packed copies, and refreshes only one of two tied layers.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=len(TOKENIZER), hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                             num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512,
                             initializer_range=0.2, tie_word_embeddings=tied, **IDS)
        return AutoModelForCausalLM.from_config(config).eval().to(DEVICE)


def drawn(sampler, model, dtype="fp32", group_size=4, seed=0, **settings):
    """Completions, and how far their log-probs are from the trainer's: the largest difference, and the mean one."""
    asked = padded_prompts(TOKENIZER(TEXTS)["input_ids"], TOKENIZER.pad_token_id, torch.device(DEVICE))
    with precision(model, dtype), torch.no_grad():
        found = sampler(model, asked, group_size, max_new_tokens=8, eos=TOKENIZER.eos_token_id,
                        generator=torch.Generator(DEVICE).manual_seed(seed), **settings)
        logits = completion_outputs(model, asked, found.ids).float() / settings.get("temperature", 1.0)
    expected = logits.log_softmax(-1).gather(-1, found.ids[..., None])[..., 0]
    gap = (found.logprobs - expected).abs()[found.mask]
    return found, float(gap.max()), float(gap.mean())


@pytest.fixture(scope="module")
def sampler():
    started = VllmSampler("fp32")
    yield started
    started.close()


SETTINGS = [{}, {"temperature": 0.7}, {"temperature": 1.6, "top_k": 3, "top_p": 0.8},
            {"temperature": 0.7, "greedy": True, "group_size": 1}]


@pytest.mark.parametrize("settings", SETTINGS)
def test_log_probs_are_the_trainer_s(sampler, settings):
    _, worst, _ = drawn(sampler, network(), **settings)
    assert worst < 1e-3


def test_weights_go_in_before_each_batch(sampler):
    model = network()
    before, _, _ = drawn(sampler, model)
    shake(model, by=0.3)
    after, worst, _ = drawn(sampler, model)
    assert worst < 1e-3 and not torch.equal(before.ids, after.ids)


def test_equal_random_numbers_draw_equal_tokens(sampler):
    one, again, other = (drawn(sampler, network(), seed=seed)[0].ids for seed in (0, 0, 1))
    assert torch.equal(one, again) and not torch.equal(one, other)


def test_what_ends_and_what_is_cut(sampler):
    model, end = network(), TOKENIZER.eos_token_id
    with torch.no_grad():
        model.lm_head.weight[end] *= 2  # so that some completions end
    found, worst, _ = drawn(sampler, model, group_size=16)
    assert worst < 1e-3 and 0 < found.truncated.sum() < len(found)
    for ids, mask, cut in zip(found.ids, found.mask, found.truncated, strict=True):
        counted = ids[mask].tolist()
        assert (end not in counted and len(counted) == 8) if cut else counted.index(end) == len(counted) - 1


@pytest.mark.skipif(DEVICE == "cpu", reason="there is no NVIDIA GPU")
def test_tied_weights_go_in_too():
    started, model = VllmSampler("fp32"), network(tied=True)
    try:
        drawn(started, model)
        shake(model, by=0.3)
        assert drawn(started, model)[1] < 1e-3
    finally:
        started.close()


@pytest.mark.parametrize("knobs, apart", [({}, 1e-3), ({"temperature": 0.7, "top_k": 5, **LORA}, 1e-3),
                                          ({"dtype": "bf16"}, 0.1)])
def test_a_run_learns_from_what_vllm_sampled(tmp_path, knobs, apart):
    network().save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    spec = make(algorithm_key="grpo", task_key="sort", model=str(tmp_path), steps=3, device=DEVICE, knobs={
        "rollouts": "vllm", "prompts_per_step": 4, "group_size": 4, "max_new_tokens": 6, "learning_rate": 0.01,
        **knobs})
    started = LlmSession.start(spec)
    started.task = Letters()
    found = records(started)
    assert len(found) == 3 and max(record.metrics["sampling/logp_difference"] for record in found) < apart
    assert all(0.5 < record.metrics["token_weight"] < 2 for record in found)


def test_the_stand_in_of_the_other_tests_has_vllm_s_names():
    from vllm.engine.arg_utils import EngineArgs

    known = {*signature(vllm.LLM.__init__).parameters} | {each.name for each in dataclasses.fields(EngineArgs)}
    assert {*signature(vllm_stand_in.LLM.__init__).parameters} <= known
    asked = {*signature(vllm_stand_in.SamplingParams).parameters}
    assert asked <= {*signature(vllm.SamplingParams).parameters}
    for name in ("generate", "apply_model", "reset_prefix_cache", "collective_rpc"):
        there = {*signature(getattr(vllm.LLM, name)).parameters}
        assert {*signature(getattr(vllm_stand_in.LLM, name)).parameters} <= there, name
