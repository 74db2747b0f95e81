"""Rollouts by vLLM: weights go in, tokens and log-probs come out, and what is missing is said.

With a stand-in for vLLM; the same with vLLM itself is `tests/cuda/test_vllm.py`.
"""

import copy
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open

from labcore.errors import LabError
from labcore.llm import vllm_sampler
from labcore.llm.experience import collect
from labcore.llm.nets import lora
from labcore.llm.nets.forward import completion_outputs
from labcore.llm.nets.lora import Lora
from labcore.llm.sampler import sample
from labcore.llm.vllm_sampler import VllmSampler, hub_weights, sampler_of
from labcore.runs.spec import vllm as rollouts
from labcore.runs.spec.run_spec import make
from tests.every import now
from tests.llm.nets.test_lora import begun, made, run_spec
from tests.llm.tools import model, prompts, records, session, shake
from tests.llm.vllm_stand_in import put_in_place
from tests.words import saying

EOS = 1


@pytest.fixture
def vllm(monkeypatch):
    return put_in_place(monkeypatch)


def drawn(sampler, network, group_size=4, seed=0, **settings):
    return sampler(network, prompts(), group_size, max_new_tokens=6, eos=EOS,
                   generator=torch.Generator().manual_seed(seed), **settings)


SETTINGS = [{}, {"temperature": 0.7}, {"temperature": 1.6, "top_k": 3, "top_p": 0.8}, {"min_p": 0.4},
            {"temperature": 0.7, "greedy": True}]


@pytest.mark.parametrize("settings", now(SETTINGS, *SETTINGS[2:]))
def test_log_probs_are_those_of_the_whole_distribution_at_the_temperature(vllm, settings):
    network, group_size = model(), 1 if settings.get("greedy") else 4
    found = drawn(VllmSampler("fp32"), network, group_size, **settings)
    logits = completion_outputs(network, prompts(), found.ids) / settings.get("temperature", 1.0)
    expected = logits.log_softmax(-1).gather(-1, found.ids[..., None])[..., 0]
    torch.testing.assert_close(found.logprobs, expected.masked_fill(~found.mask, 0), rtol=0, atol=1e-5)
    if settings.get("greedy"):
        assert torch.equal(found.ids[found.mask], logits.argmax(-1)[found.mask])
    if "min_p" in settings:
        share = (found.logprobs - logits.log_softmax(-1).amax(-1)).exp()[found.mask]
        assert share.min() >= settings["min_p"] > 0.2 and share.min() < 1
    if "top_k" in settings:
        rank = (logits > logits.gather(-1, found.ids[..., None])).sum(-1)
        assert rank[found.mask].max() < settings["top_k"]


def test_masks_end_with_the_end_token_and_what_was_cut_is_said(vllm):
    found = drawn(VllmSampler("fp32"), model(), 8)
    assert 0 < found.truncated.sum() < len(found)
    for ids, mask, cut in zip(found.ids, found.mask, found.truncated, strict=True):
        counted = ids[mask].tolist()
        assert (EOS not in counted) if cut else (counted.index(EOS) == len(counted) - 1)
        assert len(counted) == 6 or not cut


def test_the_run_s_random_numbers_decide_and_greedy_takes_none(vllm):
    network, sampler = model(), VllmSampler("fp32")
    one, again, other = (drawn(sampler, network, seed=seed).ids.tolist() for seed in (0, 0, 1))
    assert one == again != other
    seeds = [params.seed + index for params in vllm.made[0].asked[:3] for index in range(4)]
    assert len({*seeds}) == 12, "every completion has a seed of its own"
    generator = torch.Generator().manual_seed(5)
    before = generator.get_state()
    sampler(network, prompts(), 1, max_new_tokens=3, eos=EOS, generator=generator, greedy=True)
    assert torch.equal(generator.get_state(), before)


@pytest.mark.long
def test_it_samples_as_often_as_the_lab_s_own_sampler_does(vllm):
    network, asked = model(), replace(prompts(), ids=prompts().ids[:1], mask=prompts().mask[:1])
    shares = []
    for sampler in VllmSampler("fp32"), sample:
        first = sampler(network, asked, 2000, max_new_tokens=1, eos=EOS, temperature=0.8, top_k=4,
                        generator=torch.Generator().manual_seed(2)).ids[:, 0]
        shares.append(first.bincount(minlength=11) / 2000)
    torch.testing.assert_close(shares[0], shares[1], rtol=0, atol=0.04)


# ---------------------------------------------------------------------------- weights

@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen2", "gpt_neox"])
def test_weights_have_the_names_of_a_saved_folder(kind, tmp_path):
    network = model(kind)
    network.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as saved:
        assert {*hub_weights(network)} == {*saved.keys()}
        assert all(torch.equal(value, saved.get_tensor(name)) for name, value in hub_weights(network).items())


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_adapters_are_merged_on_the_way_and_stay_on_the_model(kind):
    network, plain = model(kind), {*hub_weights(model(kind))}
    Lora(2, 8, 0).put_on(network)
    shake(network)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    found, merged = hub_weights(network), copy.deepcopy(network)
    lora.merge(merged)
    assert {*found} == plain and any(not torch.equal(found[name], model(kind).state_dict()[name]) for name in found)
    for name, value in merged.state_dict().items():
        if name in found:
            torch.testing.assert_close(found[name], value)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


# ---------------------------------------------------------------------------- runs

HARD = {"learning_rate": 0.02, "updates_per_batch": 2}  # the policy moves so far that old weights would be noticed


def by_vllm(algorithm="grpo", steps=3, **knobs):
    return session(algorithm, steps=steps, rollouts="vllm", **{"prompts_per_step": 2, **knobs})


@pytest.mark.parametrize("algorithm, knobs", now(
    [("grpo", {}), ("grpo", {"temperature": 0.6, "top_k": 5, "top_p": 0.9}), ("ppo", {}), ("remax", {})],
    ("grpo", {"temperature": 0.6, "top_k": 5, "top_p": 0.9})))
def test_a_run_samples_with_the_policy_as_it_is(vllm, algorithm, knobs):
    started = by_vllm(algorithm, **HARD, **knobs)
    agree(records(started))
    assert started.sampler is None and [each.open for each in vllm.made] == [False]


@pytest.mark.long
def test_a_run_with_an_adapter_samples_with_it(vllm, tmp_path):
    agree(records(begun(run_spec("grpo", made("llama", tmp_path), steps=3, rollouts="vllm",
                                 prompts_per_step=2, **HARD))))


def agree(found):
    """Sampler and trainer had one policy at each of three steps."""
    assert len(found) == 3
    for record in found:
        assert record.metrics["sampling/logp_difference"] < 1e-5
        assert record.metrics["token_weight"] == pytest.approx(1, abs=1e-4)
    assert found[1].metrics["grad_norm"] > 0


def test_the_trainer_s_log_probs_are_the_old_ones_and_the_rest_is_corrected(vllm, monkeypatch):
    monkeypatch.setattr(vllm, "rounding", 0.3)
    started = by_vllm(updates_per_batch=1, importance_cap=1.1)
    with sampler_of(started):
        rollout = collect(started).rollout
    logits = completion_outputs(started.policy, rollout.prompts, rollout.ids)
    own = logits.log_softmax(-1).gather(-1, rollout.ids[..., None])[..., 0].masked_fill(~rollout.completion_mask, 0)
    torch.testing.assert_close(rollout.old_logprobs, own.detach())
    difference = float((rollout.sampler_logprobs - own.detach()).abs()[rollout.completion_mask].mean())
    metrics = records(by_vllm(updates_per_batch=1, importance_cap=1.1))[0].metrics
    assert metrics["sampling/logp_difference"] == pytest.approx(difference, rel=1e-3) and difference > 0.05
    assert metrics["ratio/max"] == pytest.approx(1, abs=1e-4), "the ratio compares the trainer with itself"
    weight = (own - rollout.sampler_logprobs).exp().clamp(max=1.1)[rollout.completion_mask].mean()
    assert metrics["token_weight"] == pytest.approx(weight.item(), rel=1e-3) and weight < 0.99


@pytest.mark.long
def test_equal_runs_are_equal(vllm):
    one, two = ([record.metrics for record in records(by_vllm(steps=2, **HARD))] for _ in range(2))
    assert one == two


@pytest.mark.long
def test_pictures_of_a_run_are_drawn_too(vllm):
    found = records(by_vllm(steps=1), pictures=True)
    assert found[0].samples["watched"]


def test_only_the_training_asks_vllm(vllm):
    started = by_vllm()
    collect(started)
    assert not vllm.made, "a session that somebody looks at samples with the lab's own engine"


def test_without_the_knob_vllm_is_never_asked(vllm):
    records(session("grpo", steps=1))
    assert not vllm.made


# ---------------------------------------------------------------------------- what is said

def test_a_missing_gpu_and_a_missing_vllm_are_said(monkeypatch):
    with pytest.raises(LabError, match=saying("NVIDIA GPU", "device cpu", "rollouts to engine")):
        records(by_vllm())
    monkeypatch.setattr(rollouts, "DEVICES", ("cpu",))
    monkeypatch.setattr(rollouts, "find_spec", lambda name: None)
    with pytest.raises(LabError, match=r"vLLM is not installed: install requirements-vllm\.txt"):
        records(by_vllm())
    assert rollouts.fault("cuda") and not rollouts.caution(make(algorithm_key="grpo", task_key="sort"))


def test_what_vllm_refuses_is_said_and_memory_is_given_back(vllm, monkeypatch):
    monkeypatch.setattr(vllm, "refuses", "Model architectures ['X'] are not supported.")
    started = by_vllm()
    with pytest.raises(LabError, match=r"cannot sample from this model \(model architectures .* not supported\): set"):
        records(started)
    assert started.sampler is None


def test_a_model_without_a_scale_of_its_logits_is_said(vllm):
    with pytest.raises(LabError, match="Linear does not scale its logits"):
        vllm_sampler._heads(torch.nn.Linear(1, 1))


def test_importance_is_corrected_unless_something_else_is_said():
    def cap(**knobs):
        return make(algorithm_key="grpo", task_key="sort", knobs=knobs).knobs["importance_cap"]
    assert (cap(), cap(rollouts="vllm"), cap(rollouts="vllm", importance_cap=0.0)) == (0.0, 2.0, 0.0)


def test_a_run_that_corrects_nothing_is_cautioned(vllm):
    def said(**knobs):
        return make(algorithm_key="grpo", task_key="sort", device="cpu", knobs={"rollouts": "vllm", **knobs}).caution()
    assert not said() and "`importance_cap` is 0" in said(importance_cap=0.0)


def test_exact_values_are_of_the_lab_s_own_sampler():
    with pytest.raises(LabError, match="rollouts"):
        make(kind="exact", algorithm_key="rloo", task_key="sorted", knobs={"rollouts": "vllm"})
