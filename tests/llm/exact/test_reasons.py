"""The sentences on why a mean gradient is not ∇J: each choice has its own, and the enumeration agrees with them."""

import pytest

from labcore.llm.exact.reasons import reasons
from tests.every import now
from tests.llm.exact.small import off, session
from tests.llm.exact.test_draws_gradients import EXACT, PLAIN, mean_and_truth

# Rows without a bias, and what each choice adds to them.
PPO = {**PLAIN, "gae_lambda": 1.0}
ALONE = {"advantage": "leave_one_out", "beta": 0.0}
SUMMED = {**ALONE, "aggregation": "sequence_mean_token_sum"}
ONE_REASON = [
    ("ppo", {**PPO, "gamma": 0.5}, "γ < 1"),
    ("ppo", {**PPO, "whiten_rewards": True}, "rewards are whitened"),
    ("ppo", {**PPO, "whiten_advantages": True}, "advantages are whitened"),
    ("rloo", {"normalisation": "sequences"}, "advantages are whitened"),
    ("rloo", {"kl_estimator": "k2"}, "k2 in the reward"),
    ("rloo", {"entropy_coef": 0.1}, "the entropy bonus"),
    ("rloo", {"top_entropy_share": 0.5}, "only tokens with high entropy"),
    ("rloo", {"overlong_filter": True}, "completions that were cut"),
    ("grpo", {**SUMMED, "ratio": "sequence_sum"}, "the ratio of the whole sequence"),
    ("sapo", {**ALONE, "ratio": "sequence_sum", "aggregation": "constant_length"}, "the ratio of the whole sequence"),
    ("gmpo", {**ALONE, "ratio": "sequence_sum", "aggregation": "token_mean"}, "the number of tokens"),
]
NO_REASON = [
    ("ppo", PPO), ("rloo", {"kl_placement": "off", "beta": 1.0}), ("rloo", {"kl_estimator": "k2", "beta": 0.0}),
    ("grpo", {**ALONE, "ratio": "sequence_sum"}), ("gmpo", SUMMED), ("cispo", {**SUMMED, "ratio": "sequence_sum"}),
    # The advantage of a whole completion knows no γ, whatever the knob says.
    ("reinforce_pp", {**SUMMED, "group_size": 2, "prompts_per_step": 1, "gamma": 0.5}),
]


@pytest.mark.parametrize("algorithm, knobs, part", ONE_REASON)
def test_a_choice_that_turns_the_gradient_is_the_one_reason(algorithm, knobs, part):
    [said] = reasons(session(algorithm, **knobs).in_force)
    assert said.startswith(f"Direction: {part}")


@pytest.mark.parametrize("algorithm, knobs, part", now(ONE_REASON, *ONE_REASON[::4]))
def test_the_one_reason_turns_the_gradient(algorithm, knobs, part):
    assert off(*mean_and_truth(session(algorithm, **knobs)))[2] > 0.01


@pytest.mark.parametrize("algorithm, knobs", NO_REASON)
def test_a_choice_that_does_nothing_is_no_reason(algorithm, knobs):
    assert reasons(session(algorithm, **knobs).in_force) == []


@pytest.mark.parametrize("algorithm, knobs", now(NO_REASON, *NO_REASON[3::3]))
def test_without_a_reason_the_gradient_is_unbiased(algorithm, knobs):
    assert off(*mean_and_truth(session(algorithm, **knobs)))[0] < EXACT


@pytest.mark.parametrize("algorithm, knobs, parts", [
    ("rloo", {"updates_per_batch": 2}, ["from the second update on", "the clip cuts off"]),
    ("rloo", {"mini_batches": 2, "prompts_per_step": 2}, ["from the second update on", "the clip cuts off"]),
    ("sapo", {**SUMMED, "updates_per_batch": 2}, ["from the second update on"]),
    ("grpo", {**SUMMED, "beta": 1.0, "kl_estimator": "k1"}, ["k1 in the loss has no gradient"]),
    ("grpo", {**SUMMED, "beta": 1.0, "kl_estimator": "k1", "updates_per_batch": 2},
     ["k1 in the loss has no gradient", "from the second update on k1", "from the second update on the policy",
      "the clip cuts off"]),
    ("rloo", {"top_k": 2}, ["top-k and top-p"]), ("rloo", {"top_p": 0.7}, ["top-k and top-p"]),
    ("reinforce_pp", {"gamma": 0.5}, ["whitening divides", "γ < 1", "the number of tokens"]),
    ("grpo", {**SUMMED, "staleness": 1}, ["another policy sampled, and this ratio", "the clip cuts off"]),
    ("opd", {**PLAIN, "teacher_discount": 0.5, "whiten_advantages": True},
     ["Scale: the teacher is π*", "with a discount below 1", "advantages are whitened"]),
    ("ppo", {**PPO, "gae_lambda": 0.5}, ["λ < 1"])])
def test_every_reason_is_said_once(algorithm, knobs, parts):
    said = reasons(session(algorithm, **knobs).in_force)
    assert [sentence.removeprefix("Direction: ").startswith(part)
            for sentence, part in zip(said, parts, strict=True)] == [True] * len(parts)


def test_an_exact_critic_is_not_wrong():
    assert reasons(session("ppo", **{**PPO, "gae_lambda": 0.5}).in_force, exact_critic=True) == []
