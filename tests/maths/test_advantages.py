from math import isnan

import pytest
import torch

from labcore.catalog.choices import ADVANTAGE
from labcore.maths import advantages, returns
from labcore.maths.call import member
from labcore.maths.logprobs import selective_log_softmax
from labcore.maths.masked import masked_sum

GROUP = ("leave_one_out", "group_mean", "group_standardised", "batch_standardised")
BY_SEQUENCE = ("batch_mean", *GROUP)
REWARDS = torch.tensor([[1.0, 2.0, 6.0], [0.0, 4.0, 8.0]], dtype=torch.float64)


def test_by_hand(close):
    close(advantages.batch_mean(REWARDS), [[-2.5, -1.5, 2.5], [-3.5, 0.5, 4.5]])
    close(advantages.leave_one_out(REWARDS), [[-3, -1.5, 4.5], [-6, 0, 6]])
    close(advantages.group_mean(REWARDS), [[-2, -1, 3], [-4, 0, 4]])
    close(advantages.group_standardised(REWARDS[1:], eps=1.0), [[-0.8, 0, 0.8]])  # std 4
    close(advantages.group_standardised(REWARDS[1:], eps=0.0, ddof=0)[0, 2], 1.5**0.5)
    close(advantages.batch_standardised(REWARDS, eps=0.0), advantages.group_mean(REWARDS) / REWARDS.std())


@pytest.mark.parametrize("name", ["reinforce_batch_mean", "rloo"])
def test_worked_example(golden, close, name):
    example = golden("worked_examples")[name]
    logprobs, ref_logprobs, scores = (torch.tensor(example[key], dtype=torch.float64)
                                      for key in ("logprobs", "ref_logprobs", "scores"))
    rewards = scores - example["beta"] * (logprobs - ref_logprobs).sum(-1)
    close(rewards, example["sequence_rewards"])
    estimate = advantages.leave_one_out(rewards) if name == "rloo" else advantages.batch_mean(rewards[None])[0]
    close(estimate, example["advantages"])


@pytest.mark.parametrize("scored", ["all", "some"])
def test_loop_twin(close, generator, scored):
    rewards = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    if scored == "some":
        rewards[0, 2] = rewards[1, 0] = rewards[1, 4] = torch.nan
    everyone = [r for r in rewards.flatten().tolist() if not isnan(r)]

    def mean(numbers):
        return sum(numbers) / len(numbers)

    def std(numbers):
        return (sum((number - mean(numbers)) ** 2 for number in numbers) / (len(numbers) - 1)) ** 0.5

    for p in range(4):
        group = [r for r in rewards[p].tolist() if not isnan(r)]
        for i, r in enumerate(rewards[p].tolist()):
            others = [q for j, q in enumerate(rewards[p].tolist()) if not isnan(q) and j != i]
            expected = {"batch_mean": r - mean(everyone), "leave_one_out": r - mean(others),
                        "group_mean": r - mean(group), "group_standardised": (r - mean(group)) / (std(group) + 1e-4),
                        "batch_standardised": (r - mean(group)) / (std(everyone) + 1e-4)}
            for name in BY_SEQUENCE:
                close(getattr(advantages, name)(rewards)[p, i], 0 if isnan(r) else expected[name])


@pytest.mark.parametrize("name", BY_SEQUENCE)
@pytest.mark.parametrize("constant", [8.1, 0.1, 1e6, -3.3])
def test_equal_rewards_give_exactly_0(name, constant):
    """In float32 the mean of six times 8.1 is not 8.1; over a spread of 0 + eps the miss would not be small."""
    rewards = torch.full((1, 6), constant)
    assert (getattr(advantages, name)(rewards) == 0).all()


def test_equal_rewards_give_exactly_0_beside_other_groups():
    rewards = torch.tensor([[8.1] * 6, [0.0, 1.0] * 3])
    for name in GROUP:
        estimate = getattr(advantages, name)(rewards)
        assert (estimate[0] == 0).all() and (estimate[1] != 0).all()


def test_the_float32_trap_is_real():
    """The naive formula, for the record: without the guard this group would be trained on noise."""
    rewards = torch.full((1, 6), 8.1)
    naive = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    assert naive.abs().max() > 1e-3


@pytest.mark.parametrize("name", BY_SEQUENCE)
def test_what_cannot_be_scored_gets_0(name):
    rewards = torch.tensor([[torch.nan] * 3, [torch.nan, torch.nan, 2.0], [1.0, torch.nan, 2.0]])
    estimate = getattr(advantages, name)(rewards)
    assert estimate.isfinite().all() and (estimate[rewards.isnan()] == 0).all() and estimate[2, 0] < 0


def test_leave_one_out_of_one_is_0():
    assert (advantages.leave_one_out(torch.tensor([[3.0], [1.0]])) == 0).all()


@pytest.mark.parametrize("name", BY_SEQUENCE)
def test_better_rewards_have_greater_advantages(name):
    """A sign turned round fails here."""
    estimate = getattr(advantages, name)(torch.arange(6.0)[None])
    assert (estimate.diff() > 0).all() and estimate[0, 0] < 0 < estimate[0, -1]


@pytest.mark.parametrize("rewards", ["plain", "with_nan", "one_scored"])
@pytest.mark.parametrize(("scale", "name"), [("group", "group_standardised"), ("batch", "batch_standardised"),
                                             ("none", "group_mean")])
def test_matches_trl_grpo(golden, close, rewards, scale, name):
    reference = golden("trl_grpo_advantages")
    case = next(case for case in reference["cases"] if case["rewards"] == rewards and case["scale_rewards"] == scale
                and case["multi_objective_aggregation"] == "sum_then_normalize")
    per_function = torch.tensor(reference["rewards_per_func"][rewards])
    # A function that gave no score counts nothing; a row without any score is NaN.
    weighted = (per_function * torch.tensor(reference["reward_weights"])).nansum(1)
    weighted[per_function.isnan().all(1)] = torch.nan
    close(getattr(advantages, name)(weighted.view(4, 4)).flatten(), case["advantages"])


@pytest.mark.parametrize("rewards", ["plain", "with_nan", "one_scored"])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_gdpo_matches_trl(golden, close, rewards, scale):
    """TRL's scale_rewards says nothing about it: each reward is always scaled by its group, the sum by the batch."""
    reference = golden("trl_grpo_advantages")
    case = next(case for case in reference["cases"] if case["rewards"] == rewards and case["scale_rewards"] == scale
                and case["multi_objective_aggregation"] == "normalize_then_sum")
    parts = torch.tensor(reference["rewards_per_func"][rewards]).T.reshape(2, 4, 4)
    got = advantages.parts_standardised(parts, torch.tensor(reference["reward_weights"]))
    close(got.flatten(), case["advantages"])


def test_dr_grpo_is_rloo_scaled(close, generator):
    """A_RLOO = G/(G − 1) A_DrGRPO."""
    for group in (2, 3, 8):
        rewards = torch.randn(4, group, generator=generator, dtype=torch.float64)
        close(advantages.leave_one_out(rewards), group / (group - 1) * advantages.group_mean(rewards))


def test_greedy_baseline_by_hand(close):
    rewards = torch.tensor([[1.0, 2.0, torch.nan], [0.0, 4.0, 8.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    greedy = torch.tensor([[1.5], [-1.0], [torch.nan]], dtype=torch.float64)
    close(advantages.greedy_baseline(rewards, greedy), [[-0.5, 0.5, 0], [1, 5, 9], [0, 0, 0]])


def test_one_by_hand(close):
    close(advantages.one(torch.tensor([[3.0, torch.nan], [-1.0, 0.0]])), [[1, 0], [1, 1]])


# The gradient of J = E[R] on a policy small enough to enumerate: every batch of completions with its probability.

def exact_gradients(policy, estimator, group):
    """E[(1/B) Σ_i A_i ∇ log π(y_i)] over all batches of `group` completions of one prompt, and ∇J."""
    logits, tokens, completion_mask, prefixes = policy
    logits = logits.clone().requires_grad_()
    logprobs = masked_sum(selective_log_softmax(logits[prefixes], tokens), completion_mask, dim=1)
    rewards = torch.tensor([0.3, -1.0, 2.0, 0.5, 1.5, -0.2, 0.9], dtype=torch.float64)
    true_gradient = torch.autograd.grad((logprobs.exp() * rewards).sum(), logits, retain_graph=True)[0]
    batches = torch.cartesian_prod(*[torch.arange(7)] * group).view(-1, group)
    probabilities = logprobs[batches].sum(1).exp().detach()
    estimates = torch.stack([estimator(rewards[batch][None])[0] for batch in batches])
    sampled = (probabilities * (estimates * logprobs[batches]).mean(1)).sum()
    return torch.autograd.grad(sampled, logits)[0], true_gradient


@pytest.mark.parametrize("group", [2, 3])
def test_leave_one_out_gives_the_policy_gradient_exactly(close, policy, group):
    sampled, true = exact_gradients(policy, advantages.leave_one_out, group)
    close(sampled, true)
    with pytest.raises(AssertionError):
        close(-sampled, true)


@pytest.mark.parametrize("name", ["batch_mean", "group_mean"])
def test_a_mean_that_holds_the_sample_itself_shrinks_it(close, policy, name):
    """(B−1)/B ∇J: the direction is right, the length short by the sample's own share of the mean."""
    sampled, true = exact_gradients(policy, getattr(advantages, name), 3)
    close(sampled, 2 / 3 * true)


def test_any_constant_baseline_gives_the_policy_gradient(close, policy):
    for baseline in (0.0, 5.0):
        sampled, true = exact_gradients(policy, lambda rewards, b=baseline: rewards - b, 1)
        close(sampled, true)


def test_remax_gives_the_policy_gradient_exactly(close, policy):
    """The greedy completion's reward does not depend on what was sampled: no bias."""
    greedy = torch.tensor([[2.0]])
    sampled, true = exact_gradients(policy, lambda rewards: advantages.greedy_baseline(rewards, greedy), 1)
    close(sampled, true)
    with pytest.raises(AssertionError):
        close(-sampled, true)


def test_gae_is_a_member():
    assert member(ADVANTAGE, "gae") is returns.gae


# Further baselines and scales.


def test_moving_average_by_hand(close):
    rewards = torch.tensor([[1.0, 0.0], [torch.nan, 2.0]], dtype=torch.float64)
    past = torch.full((2, 1), 0.25, dtype=torch.float64)
    close(advantages.moving_average(rewards, past), [[0.75, -0.25], [0, 1.75]])


def test_beta_normalised_by_hand(close):
    """p = 1/4 and 1/2: m = 3/8, v = 1/32, so a + b = 6.5, a = 39/16 and b = 65/16."""
    rewards = torch.tensor([[1.0, 0, 0, 0], [1, 1, 0, 0]], dtype=torch.float64)
    beta = torch.distributions.Beta(*(torch.tensor(1 + value / 48, dtype=torch.float64) for value in (39, 65)))
    density = [beta.log_prob(torch.tensor(p, dtype=torch.float64)).exp().item() for p in (0.25, 0.5)]
    close(advantages.beta_normalised(rewards), [[value / density[0] for value in (0.75, -0.25, -0.25, -0.25)],
                                                [value / density[1] for value in (0.5, 0.5, -0.5, -0.5)]])


def test_beta_normalised_without_a_spread_to_fit(close):
    """One group, or groups that are all right or all wrong but one: the density is 1, or the advantages are 0."""
    one_group = torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64)
    close(advantages.beta_normalised(one_group), advantages.group_mean(one_group))
    all_alike = torch.tensor([[1.0, 0], [1, 0], [0, 1]], dtype=torch.float64)
    assert advantages.beta_normalised(all_alike).isfinite().all()
    extremes = torch.tensor([[1.0, 1], [0, 0], [torch.nan, 1]], dtype=torch.float64)
    close(advantages.beta_normalised(extremes), torch.zeros(3, 2))


def test_gdpo_keeps_a_reward_that_drowns_in_a_sum(generator):
    """A reward that is 100 times as large says no more than the other."""
    parts = torch.rand(2, 6, 8, generator=generator, dtype=torch.float64)
    large = torch.stack([100 * parts[0], parts[1]])
    even = torch.ones(2, dtype=torch.float64)
    same, grown = (advantages.parts_standardised(each, even) for each in (parts, large))
    torch.testing.assert_close(same, grown, rtol=0, atol=1e-2)
    alone = advantages.parts_standardised(parts, torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert (alone - same).abs().max() > 0.5
