"""A policy measured by sampling, and numbers of sampled completions worked by hand."""

import pytest
import torch

from labcore.llm.batch import Completions
from labcore.llm.evaluation import episode_metrics, evaluate, kl_metrics, score_metrics, signal_first, zero_variance
from labcore.llm.generation import token_logprobs
from labcore.llm.rewards import Rewards
from labcore.tasks.environment import Episode, Move
from tests.llm.tools import session, shake


def test_the_kl_is_that_of_the_policy_to_its_reference():
    started = session("dpo", eval_prompts=10)
    shake(started.policy, by=0.3)
    got = evaluate(started)
    completions = got.generated.completions
    ref_logprobs = token_logprobs(started, started.reference, got.generated.prompts, completions)
    k1 = (completions.logprobs - ref_logprobs)[completions.mask].mean().item()
    assert got.metrics["kl/k1"] == pytest.approx(k1, rel=1e-4) and abs(k1) > 0.01


def test_turns_and_their_rewards_by_hand():
    """Two episodes of two turns and one: 1.5 turns each; 0.5 + 1 − 0.25 of reward over three turns."""
    ended = Episode([Move("4", "higher", 0.5), Move("6", "correct", 1.0)], True)
    assert episode_metrics([ended, Episode([Move("1", "higher", -0.25)], False)]) == {
        "episodes/mean_turns": 1.5, "episodes/reward_per_turn": pytest.approx(1.25 / 3), "episodes/unended_frac": 0.5}
    assert episode_metrics(["4"]) == {}


MASK = torch.tensor([[True, True], [True, False], [True, False], [True, True]])
NAN = float("nan")


def rewards(*total: float) -> Rewards:
    given = torch.tensor(total, dtype=torch.float64)
    return Rewards(given, given == 1)


def completions(count: int = 4) -> Completions:
    return Completions(torch.zeros(count, 2), MASK[:count], torch.tensor([True, False, False, False])[:count])


def test_metrics_of_a_batch_by_hand():
    assert score_metrics(rewards(1.0, 0.0, 0.5, 0.5), completions()) == {
        "reward": 0.5, "reward_std": pytest.approx((1 / 6) ** 0.5), "exact_match": 0.25,
        "completions/mean_length": 1.5, "completions/truncated_frac": 0.25}
    assert score_metrics(rewards(1.0), completions(1))["reward_std"] == 0


def test_what_could_not_be_scored_is_left_out():
    got = score_metrics(rewards(1.0, NAN, 0.0, NAN), completions())
    assert got["reward"] == 0.5 and got["reward_std"] == pytest.approx(0.5 ** 0.5) and got["exact_match"] == 0.25
    assert "reward" not in score_metrics(rewards(NAN, NAN), completions(2))


def test_three_estimates_of_the_kl_by_hand():
    got = kl_metrics(torch.tensor([[-1.0, -9.0]]), torch.tensor([[-1.5, 0.0]]), torch.tensor([[True, False]]))
    assert got == {"kl": pytest.approx(0.1065307), "kl/k1": 0.5, "kl/k2": 0.125, "kl/k3": pytest.approx(0.1065307)}


def test_zero_variance_groups_by_hand():
    """Equal, different, equal where scored, nothing scored: three of four."""
    assert zero_variance(torch.tensor([[1.0, 1.0], [0.0, 1.0], [NAN, 0.5], [NAN, NAN]])) == 0.75


def test_an_exact_match_is_what_the_verifier_calls_one():
    """Whatever it was rewarded with: three of four earn more than a half, one of them is right."""
    given = Rewards(torch.tensor([0.9, 0.8, 0.7, 0.0]), torch.tensor([True, False, False, False]))
    assert score_metrics(given, completions())["exact_match"] == 0.25


def test_groups_with_signal_come_first_and_each_kind_in_its_order():
    scored = torch.tensor([[1.0, 1.0], [0.0, NAN], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    assert signal_first(scored) == [2, 4, 0, 1, 3]
