"""A policy measured by sampling: the KL is from the policy to its reference."""

from __future__ import annotations

import pytest

from labcore.llm.evaluation import episode_metrics, evaluate
from labcore.llm.generation import token_logprobs
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
