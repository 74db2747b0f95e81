"""Completions: drawn apart from the session's knobs; their log-probs are those that they were drawn by."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from labcore.errors import Diverged, LabError
from labcore.llm import generation
from labcore.llm.generation import Sampling, generate, token_logprobs, token_values
from labcore.tasks.task import Problem
from tests.llm.tools import session, shake

PROBLEMS = [Problem("abc=", "abc"), Problem("b=", "b"), Problem("dcba=", "abcd")]


def test_sampling_is_what_the_knobs_say():
    knobs = session("grpo", temperature=0.7, top_k=3, top_p=0.9).knobs
    assert Sampling.of(knobs) == Sampling(0.7, 3, 0.9, 6, greedy=False)


def test_completions_come_group_by_group_with_their_texts():
    started = session("grpo")
    got = generate(started, started.policy, PROBLEMS, 4, Sampling(max_new_tokens=5))
    assert len(got.prompts) == 3 and got.completions.ids.shape == (12, 5) and len(got.texts) == 12
    end = started.tokenizer.eos_token_id
    for row, text in enumerate(got.texts):
        tokens = got.completions.ids[row, : got.completions.lengths[row]].tolist()
        assert text == started.tokenizer.decode([token for token in tokens if token != end])
        assert got.completions.truncated[row] == (end not in tokens)


def test_the_context_bounds_the_length():
    started = session("grpo")
    got = generate(started, started.policy, [Problem("a" * 60, "b")], 2, Sampling(max_new_tokens=50))
    assert got.completions.ids.shape[1] <= started.context - 60 == 4


def test_greedy_takes_the_likeliest_and_draws_no_number():
    started = session("grpo")
    shake(started.policy, by=0.3)
    before = started.generator.get_state()
    got = generate(started, started.policy, PROBLEMS, 1, Sampling(greedy=True, temperature=3.0))
    assert torch.equal(started.generator.get_state(), before)
    for row, problem in enumerate(PROBLEMS):
        ids = torch.tensor([started.tokenizer(problem.prompt)["input_ids"]])
        for token in got.completions.ids[row, : got.completions.lengths[row]].tolist():
            assert int(started.policy(input_ids=ids).logits[0, -1].argmax()) == token
            ids = torch.cat([ids, torch.tensor([[token]])], 1)
    generate(started, started.policy, PROBLEMS, 1, Sampling())
    assert not torch.equal(started.generator.get_state(), before)


@pytest.mark.parametrize("algorithm, sizes", [
    ("grpo", "`prompts_per_step` is 4, `group_size` is 4, `max_new_tokens` is 6"),
    ("sft", "`eval_prompts` is 256, `max_new_tokens` is 6"),
    ("dpo", "`pair_prompts` is 8, `eval_prompts` is 256, `group_size` is 4, `max_new_tokens` is 6")])
@pytest.mark.parametrize("error", [
    torch.OutOfMemoryError("CUDA out of memory"), MemoryError(),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")], ids=type)
def test_memory_that_runs_out_as_completions_are_drawn_says_what_to_lower(error, algorithm, sizes, monkeypatch):
    def full(*_, **__):
        raise error
    started = session(algorithm)
    monkeypatch.setattr(generation, "sample", full)
    with pytest.raises(LabError, match=rf"while 3 × 2 completions of up to 5 tokens were drawn: .*: {sizes}\."):
        generate(started, started.policy, PROBLEMS, 2, Sampling(max_new_tokens=5))
    assert started.halvings == 0


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_log_probs_are_those_of_the_sampler_at_its_temperature(temperature):
    started = session("grpo", temperature=temperature)
    shake(started.policy, by=0.3)
    got = generate(started, started.policy, PROBLEMS, 4, Sampling.of(started.knobs))
    again = token_logprobs(started, started.policy, got.prompts, got.completions)
    torch.testing.assert_close(again, got.completions.logprobs, rtol=1e-4, atol=1e-5)
    assert (again[~got.completions.mask] == 0).all() and not again.requires_grad


def test_values_are_the_critic_s_before_each_token():
    started = session("ppo")
    shake(started.critic, by=0.3)
    got = generate(started, started.policy, PROBLEMS, 2, Sampling())
    values = token_values(started, got.prompts, got.completions)
    row, prompt = 3, got.prompts.ids[1][got.prompts.mask[1]]
    whole = torch.cat([prompt, got.completions.ids[row]])[None]
    alone = started.critic(input_ids=whole).logits[0, len(prompt) - 1: -1, 0] * got.completions.mask[row]
    torch.testing.assert_close(values[row], alone.detach(), rtol=1e-4, atol=1e-5)
    assert values.abs().max() > 0.01


def test_a_distribution_that_is_no_number_is_said():
    started = session("grpo")
    with torch.no_grad():
        next(started.policy.parameters()).fill_(float("nan"))
    with pytest.raises(Diverged, match=r"sampling distribution .* step 1"):
        generate(started, started.policy, PROBLEMS, 2, Sampling())


def test_what_does_not_count_has_no_log_prob_and_no_value():
    started = session("ppo")
    shake(started.critic, by=0.3)
    got = generate(started, started.policy, PROBLEMS, 2, Sampling())
    mask = torch.arange(got.completions.ids.shape[1]) < torch.tensor([[1], [2], [3], [1], [4], [2]])
    ragged = replace(got.completions, mask=mask)
    for numbers in (partial(token_logprobs, started, started.policy), partial(token_values, started)):
        found, whole = numbers(got.prompts, ragged), numbers(got.prompts, got.completions)
        assert (found[~mask] == 0).all() and (found[mask] != 0).all()
        there = mask & got.completions.mask
        torch.testing.assert_close(found[there], whole[there], rtol=1e-4, atol=1e-5)
