"""A pool of prompts: what is drawn, what is noted of each, and that a resumed run goes on with it."""

import numpy as np
import pytest
import torch

from labcore.errors import LabError
from labcore.llm import prompt_pool
from labcore.llm.experience import collect
from tests.llm.tools import records, session

SIZE = {"prompts_per_step": 4, "group_size": 2, "max_new_tokens": 3}


def drawn(started, count, steps):
    return [problem.prompt for step in range(steps)
            for problem in prompt_pool.next_problems(started, count, np.random.default_rng(step))]


def test_a_pool_has_so_many_different_prompts_and_no_others_are_drawn():
    started = session("grpo", letters=False, prompt_pool=12, **SIZE)
    found = drawn(started, 4, 40)
    assert len(set(found)) == 12 and all(len(set(found[at:at + 4])) == 4 for at in range(0, len(found), 4))
    assert set(found) == set(drawn(session("grpo", letters=False, prompt_pool=12, **SIZE), 4, 40)), "by the seed alone"
    assert len(prompt_pool.next_problems(started, 20, np.random.default_rng(0))) == 20  # more than there are: repeated
    few = session("grpo", prompt_pool=12, **SIZE)  # on a task of four prompts
    assert sorted(problem.prompt for problem in prompt_pool._pool(few)) == ["a", "ab", "abc", "abc="]


def test_the_pass_rate_is_that_of_the_groups_that_were_sampled():
    """Groups of 2: one of two right, then both, then none: 0.5, 0.75, 0.375."""
    started = session("grpo", letters=False, prompt_pool=8, **SIZE)
    some = prompt_pool.next_problems(started, 2, np.random.default_rng(0))
    place = prompt_pool._pool(started).index(some[1])
    for right, rate in (([True, False], 0.5), ([True, True], 0.75), ([False, False], 0.375)):
        before = started.pass_rates
        prompt_pool.take_note(started, some, torch.tensor([False, False, *right]))
        assert prompt_pool.rates_of(started)[place] == rate and started.pass_rates is not before
    found = prompt_pool.metrics(started)
    assert found == {"pool/tried_frac": 0.25, "pool/drawn_frac": 1.0, "pool/pass_rate": 0.1875}


def test_prompts_outside_the_band_are_drawn_to_be_measured_again_alone():
    started = session("grpo", letters=False, prompt_pool=10, prompt_choice="band", explore_share=0.25, **SIZE)
    prompts = [problem.prompt for problem in prompt_pool._pool(started)]
    started.pass_rates = [0.5] * 5 + [1.0] * 5
    found = drawn(started, 4, 200)
    assert all(len(set(found[at:at + 4])) == 4 for at in range(0, len(found), 4))
    share = sum(prompts.index(prompt) >= 5 for prompt in found) / len(found)
    assert share == pytest.approx(0.25 * 5 / 7, abs=0.05)  # of about 7 that are left, 5 are outside
    started.knobs["explore_share"] = 0.0
    assert {prompts.index(prompt) for prompt in drawn(started, 4, 20)} == set(range(5))
    started.pass_rates = [0.5] + [1.0] * 9  # one prompt is left in the band: the others of a batch are from outside
    assert all(found.count(prompts[0]) == 1 for found in (drawn(started, 4, 1),))
    assert prompt_pool.metrics(started)["pool/drawn_frac"] == 0.1


def test_a_pool_below_the_batch_is_drawn_by_the_choice_of_prompts_too():
    started = session("grpo", letters=False, prompt_pool=4, prompt_choice="band", explore_share=0.25, **SIZE)
    prompts = [problem.prompt for problem in prompt_pool._pool(started)]
    started.pass_rates = [0.5, 0.5, 1.0, 0.0]
    found = drawn(started, 400, 4)
    inside = sum(prompts.index(prompt) < 2 for prompt in found) / len(found)
    assert inside == pytest.approx(0.75 + 0.25 / 2, abs=0.04)
    started.knobs["explore_share"] = 0.0
    assert set(drawn(started, 8, 4)) == set(prompts[:2])
    started.pass_rates = [1.0] * 4  # none is inside: all alike
    assert set(drawn(started, 40, 4)) == set(prompts)


def test_a_curriculum_by_level_goes_up_with_the_steps():
    given = {"prompt_pool": 150, "prompt_choice": "by_level", "curriculum_steps": 4, "explore_share": 0.0, "easiest": 2}
    started = session("grpo", letters=False, **given, **SIZE | {"prompts_per_step": 16})
    highest = []
    for step in range(5):
        started.step = step
        highest.append(max(problem.level for problem in collect(started).batch.problems))
    assert highest[0] == 2 and highest == sorted(highest) and highest[-1] == 6
    started = session("grpo", letters=False, **given | {"easiest": 0}, **SIZE)
    with pytest.raises(LabError, match="have no levels: set `easiest`"):
        collect(started)


def test_the_reward_of_each_level_and_groups_without_a_success_are_logged():
    metrics = records(session("grpo", letters=False, steps=1, easiest=2, **{**SIZE, "prompts_per_step": 16}))[0].metrics
    levels = [key for key in metrics if key.startswith("reward_at_level/")]
    assert len(levels) > 2 and metrics["groups/solve_none_frac"] + metrics["groups/solve_all_frac"] <= 1
    assert "groups/solve_none_frac" not in records(session("ppo", steps=1, group_size=1))[0].metrics


def test_episodes_that_begin_with_the_same_words_are_different_prompts():
    """Every number of `guess` begins with "1-7?": the pool has all 7, whatever the player wrote as their answers, and
    the pass rate of each is its own."""
    started = session("grpo", letters=False, task="guess", prompt_pool=7, **SIZE | {"max_new_tokens": 20})
    pool = prompt_pool._pool(started)
    assert sorted(problem.columns["secret"] for problem in pool) == [1, 2, 3, 4, 5, 6, 7]
    prompt_pool.take_note(started, pool[:1], torch.tensor([True, True]))
    assert started.pass_rates == [1.0] + [None] * 6
