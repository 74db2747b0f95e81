"""MaxRL, pass@k, OPO and GPG: against verl, against a slow loop, at their limits, and what their gradients estimate."""

import itertools

import pytest
import torch

from labcore.maths import advantages
from tests.references import golden

GOLDEN = golden("verl_rows")
NAMES = ("mean_scaled", "best_over_rest", "length_weighted", "group_mean_active")
LENGTHS = torch.tensor([[1, 2, 3, 4, 5, 6]])


def of(name, rewards):
    """The advantages; lengths are 1, 2, 3 …"""
    more = (LENGTHS[:, : rewards.shape[1]].expand_as(rewards),) if name == "length_weighted" else ()
    return getattr(advantages, name)(rewards, *more)


@pytest.mark.parametrize("name, theirs", [("length_weighted", "compute_opo_outcome_advantage"),
                                          ("best_over_rest", "compute_grpo_passk_outcome_advantage")])
def test_matches_verl(close, name, theirs):
    rewards = torch.tensor(GOLDEN["inputs"]["rewards"], dtype=torch.float64)
    lengths = torch.tensor(GOLDEN["inputs"]["completion_mask"]).sum(1).view(2, 3)
    more = (lengths,) if name == "length_weighted" else ()
    expected = GOLDEN["advantages"][theirs]
    close(getattr(advantages, name)(rewards, *more), expected)
    with pytest.raises(AssertionError):
        close(-getattr(advantages, name)(rewards, *more), expected)


def test_by_hand(close):
    rewards = torch.tensor([[1.0, 0, 0, 1], [0, 0, 0, 0], [0, 3, 0, 1]], dtype=torch.float64)
    close(of("mean_scaled", rewards), [[1, -1, -1, 1], [0] * 4, [-1, 2, -1, 0]])
    close(of("best_over_rest", rewards), [[0] * 4, [0] * 4, [0, 2, 0, 0]])
    close(of("length_weighted", rewards), [[.5, -.5, -.5, .5], [0] * 4, [-1, 2, -1, 0]])  # (1 + 4)/10, (6 + 4)/10
    close(of("group_mean_active", rewards), [[.75, -.75, -.75, .75], [0] * 4, [-1.5, 3, -1.5, 0]])  # over 2/3


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_scored_gets_0_and_is_in_no_baseline(name):
    rewards = torch.tensor([[torch.nan] * 3, [torch.nan, torch.nan, 2.0], [1.0, torch.nan, 2.0]])
    found = of(name, rewards)
    assert found.isfinite().all() and (found[rewards.isnan()] == 0).all() and (found[1] == 0).all()
    assert found[2, 2] > 0 >= found[2, 0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("constant", [8.1, 0.1, 1e6, 0.0])
def test_equal_rewards_give_exactly_0(name, constant):
    assert (of(name, torch.full((2, 6), constant)) == 0).all()
    beside = of(name, torch.stack([torch.full((6,), constant), torch.arange(6.0)]))
    assert (beside[0] == 0).all() and beside[1].any()


def test_a_group_of_negative_mean_has_no_maxrl_advantage():
    assert (of("mean_scaled", torch.tensor([[-1.0, 0.0], [-1.0, 1.0]])) == 0).all()


def over_groups(policy, size, rewards, name):
    """The exact mean of Σ_i A_i ∇ log π(y_i) over all groups, and the probability of each group's completions."""
    logits, tokens, mask, prefixes = policy
    logits = logits.clone().requires_grad_()
    steps = logits.log_softmax(-1)[prefixes, tokens]
    logp = (steps * mask).sum(1)
    total, everyone = torch.zeros((), dtype=torch.float64), []
    for members in itertools.product(range(len(tokens)), repeat=size):
        chosen = torch.tensor(members)
        likely = logp[chosen].sum().exp()
        everyone.append((likely, rewards[chosen]))
        total = total + likely.detach() * (of(name, rewards[chosen][None])[0] * logp[chosen]).sum()
    return torch.autograd.grad(total, logits, retain_graph=True)[0], everyone, logits, logp


@pytest.mark.parametrize("size", [2, 3])
def test_pass_at_k_is_the_gradient_of_the_best_reward(close, policy, size):
    """Without bias, whatever the rewards: Σ over all groups of their probability × max R."""
    rewards = torch.tensor([0.0, 1.0, 0.25, 1.0, 0.0, 0.5, 2.0], dtype=torch.float64)
    estimate, groups, logits, _ = over_groups(policy, size, rewards, "best_over_rest")
    best = sum(likely * earned.max() for likely, earned in groups)
    close(estimate, torch.autograd.grad(best, logits)[0])


@pytest.mark.parametrize("size", [2, 3])
def test_maxrl_is_the_gradient_of_the_likelihood_cut_off_after_g_minus_1_terms(close, policy, size):
    """For rewards of 0 and 1, a mean over the group: ∇ Σ_{k=1}^{G−1} −(1 − p)^k/k, p the probability of a right
    completion: at G → ∞ it is ∇ log p. Without the baseline there would be the term of k = G too (paper, theorem 1);
    groups without a right completion, which have none, take it away."""
    rewards = torch.tensor([0.0, 1, 0, 1, 0, 0, 1], dtype=torch.float64)
    estimate, _, logits, logp = over_groups(policy, size, rewards, "mean_scaled")
    right = (logp.exp() * rewards).sum()
    likelihood = -sum((1 - right) ** k / k for k in range(1, size))
    close(estimate / size, torch.autograd.grad(likelihood, logits)[0])


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_best_of_subsets_by_a_slow_loop(close, k):
    """Ties, graded rewards, and a completion that could not be scored."""
    rewards = torch.tensor([[1.0, 0, 0, 1, 0], [0.5, 0.25, 2, 0.5, 0], [1, torch.nan, 0, 0, 3]], dtype=torch.float64)
    found = advantages.best_of_subsets(rewards, k)
    for row, earned in enumerate(rewards.tolist()):
        scored = [at for at, reward in enumerate(earned) if reward == reward]
        best = {some: max(earned[at] for at in some) for some in itertools.combinations(scored, k)}
        mean = sum(best.values()) / len(best)
        spread = (sum((each - mean) ** 2 for each in best.values()) / len(best)) ** 0.5
        for at in scored:
            with_it = [each for some, each in best.items() if at in some]
            close(found[row, at], (sum(with_it) / len(with_it) - mean) / (spread + 1e-4))
    assert found[2, 1] == 0


def test_the_best_of_subsets_is_the_paper_s_formula_for_rewards_of_0_and_1():
    """N = 8 with 6 wrong, k = 4: R̄ = 1 − C(6, 4)/C(8, 4), A+ = (1 − R̄)/σ, A− = (1 − R̄ − C(5, 3)/C(7, 3))/σ."""
    found = advantages.best_of_subsets(torch.tensor([[1.0, 1, 0, 0, 0, 0, 0, 0]], dtype=torch.float64), 4)[0]
    mean = 1 - 15 / 70
    sigma = (mean * (1 - mean)) ** 0.5
    assert found[:2].tolist() == pytest.approx([(1 - mean) / sigma] * 2, rel=1e-3)
    assert found[2] == pytest.approx((1 - mean - 10 / 35) / sigma, rel=1e-3)


def test_the_best_of_all_has_one_subset_only():
    assert not advantages.best_of_subsets(torch.tensor([[1.0, 0.0, 0.5]]), 9).any()
    assert not advantages.best_of_subsets(torch.full((1, 4), 0.1), 2).any()
