"""Numbers that a run keeps for each prompt: A*-PO's optimal values and SPO's tracked mean rewards."""

from dataclasses import replace
from unittest.mock import patch

import pytest
import torch

from labcore.llm import prompt_values
from labcore.llm.experience import collect
from labcore.llm.generation import Sampling
from labcore.llm.rewards import earned, reward
from labcore.llm.rollout import credit
from labcore.maths.schedules import tracked
from labcore.tasks.task import Problem, Turn
from tests.llm.tools import session

PROBLEMS = [Problem("a=", "a"), Problem("b=", "b"), Problem("a=", "a")]


@pytest.mark.parametrize("updates, keep", [(0, 0.96), (1, 2 ** (-1 / 8)), (100, 0.875)])
def test_a_tracker_by_hand(updates, keep):
    assert tracked(6.0, 10.0, [1.0, 0.0], updates, 8.0) == pytest.approx((keep * 6 + 1, keep * 10 + 2))


def test_a_new_prompt_has_the_mean_of_all_rewards_and_then_one_of_its_own():
    started = session("spo", tracker_half_life=8.0)
    started.past_rewards, started.updates = 0.25, 3
    assert prompt_values.tracked_values(started, PROBLEMS).tolist() == [0.25] * 3
    prompt_values.learn(started, PROBLEMS, torch.tensor([1.0, torch.nan, 0.0]))
    one = 0.96 * (0.96 * 2 + 1), 0.96 * (0.96 * 8 + 1) + 1  # its two visits in this batch
    other = 0.96 * 2, 0.96 * 8
    assert started.of_prompts == {"b=": [*map(pytest.approx, other), 3.0], "a=": [*map(pytest.approx, one), 3.0]}
    expected = [one[0] / one[1], 0.25, one[0] / one[1]]
    assert prompt_values.tracked_values(started, PROBLEMS).tolist() == pytest.approx(expected)


def test_the_advantage_is_against_the_value_before_the_batch():
    started = session("spo", steps=2, group_size=2, prompts_per_step=4, normalisation="none")
    started.past_rewards = 0.5
    rollout = collect(started).rollout
    assert rollout.prompt_values.tolist() == [0.5] * 8


def test_the_oldest_prompts_are_forgotten(monkeypatch):
    monkeypatch.setattr(prompt_values, "MOST", 2)
    started = session("spo")
    for name in "abac":
        prompt_values.remember(started, {name: [1.0]})
    assert [*started.of_prompts] == ["a", "c"]


def test_a_conversation_is_another_prompt():
    said = Problem("a=", "a", turns=(Turn("user", "hello"), Turn("user", "a=")))
    assert prompt_values.key(said) != prompt_values.key(PROBLEMS[0]) == "a="


def test_the_reference_answers_a_prompt_once(monkeypatch):
    started, asked = session("a_star_po", value_samples=3), []
    real = prompt_values.generate

    def counted(session, model, problems, samples, sampling):
        asked.append((len(problems), samples, model is started.reference))
        return real(session, model, problems, samples, sampling)
    monkeypatch.setattr(prompt_values, "generate", counted)
    problems = started.task.problems(2, started.rng)
    first = prompt_values.optimal_values(started, [*problems, problems[0]])
    again = prompt_values.optimal_values(started, problems)
    assert asked == [(2, 3, True)] and torch.equal(first, again[[0, 1, 0]])


def test_a_prompt_without_a_value_has_no_advantage(monkeypatch):
    started = session("a_star_po", prompts_per_step=2)
    monkeypatch.setattr(prompt_values, "soft_value", lambda rewards, beta: torch.tensor([0.5, torch.nan]))
    rollout = collect(started).rollout
    assert rollout.prompt_values.isnan().tolist() == [False] * 4 + [True] * 4
    found = credit(started.in_force, rollout).advantages
    assert found[:4].any() and not found[4:].any()


@pytest.mark.parametrize("changes, kept", [({}, True), ({"learning_rate": 0.5}, True), ({"shaping": "length_cost"},
                                                                                        False)])
def test_a_fork_keeps_them_where_rewards_are_made_as_before(changes, kept):
    started = session("spo")
    started.of_prompts = {"a=": [1.0, 2.0, 3.0]}
    forked = started.fork(replace(started.spec, knobs=started.spec.knobs | changes))
    assert bool(forked.of_prompts) == kept


def test_an_optimal_value_is_of_all_that_a_completion_earns_and_of_the_temperature_in_use():
    """Rewards of tokens count in V* as they do in the rewards that it is compared with; another β asks anew."""
    given = {"letters": False, "task": "add", "reward_source": "steps_and_outcome", "value_samples": 16}
    started = session("a_star_po", value_beta=100.0, **given)
    problems = [Problem("a=", "e" * 50)]
    with patch.object(prompt_values, "earned", lambda *of: torch.arange(16.0)):
        assert float(prompt_values.optimal_values(started, problems)) == pytest.approx(7.5, abs=0.2)  # near the mean
        started.knobs["value_beta"] = 1e-3
        assert float(prompt_values.optimal_values(started, problems)) == pytest.approx(15, abs=0.01)  # the best
    generated = prompt_values.generate(started, started.reference, started.task.problems(4, started.rng), 8,
                                       Sampling.of(started.knobs))
    asked = started.task.problems(4, started.rng)
    found = reward(started, asked, generated)
    assert torch.allclose(earned(started, asked, generated).double(), found.total + found.parts["steps"], atol=1e-6)
