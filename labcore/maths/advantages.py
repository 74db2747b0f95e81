"""Baselines of a completion's reward, and the advantages that they give.

Rewards are (P, G): P prompts, G completions each. NaN marks a completion that could not be scored: it is left out of
every baseline and gets advantage 0. Where all rewards compared are equal the advantage is exactly 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labcore.maths.masked import centred, masked_mean, masked_var
from labcore.maths.returns import gae as gae
from labcore.maths.token_advantages import (  # noqa: F401 (members of the family)
    optimal_token_baseline,
    reward_to_go_whitened,
    steps_standardised,
    teacher_log_ratio,
    teacher_mean_log_ratio,
    turn_gae,
    turn_return,
)


def _centred(rewards: Tensor, dim: int | None) -> Tensor:
    """R − mean_dim R over the scored completions, exactly 0 where they are all equal. (P, G) -> (P, G)"""
    return centred(rewards, ~rewards.isnan(), dim)


def batch_mean(rewards: Tensor) -> Tensor:
    """A = R − mean R. (P, G) -> (P, G)

    In reward.

    Source: Williams 1992, Machine Learning 8:229 (reinforcement baseline).
    """
    return _centred(rewards, dim=None)


def leave_one_out(rewards: Tensor) -> Tensor:
    """A_i = R_i − 1/(G−1) Σ_{j≠i} R_j = G/(G−1) (R_i − mean_G R). (P, G) -> (P, G)

    In reward. G counts the scored completions; one alone has nothing to be compared with: 0.

    Source: Ahmadian et al. 2024, arXiv:2402.14740 (RLOO); Kool et al. 2019, "Buy 4 REINFORCE samples".
    """
    group_size = (~rewards.isnan()).sum(1, keepdim=True)
    # In this order: the quotient of two integer tensors would be float32, whatever the rewards are.
    return _centred(rewards, dim=1) * group_size / (group_size - 1).clamp(min=1)


def group_mean(rewards: Tensor) -> Tensor:
    """A = R − mean_G R. (P, G) -> (P, G)

    In reward.

    Source: Liu et al. 2025, arXiv:2503.20783, section 3.2 (Dr. GRPO).
    """
    return _centred(rewards, dim=1)


def group_standardised(rewards: Tensor, eps: float = 1e-4, ddof: int = 1) -> Tensor:
    """A = (R − mean_G R) / (std_G R + eps). (P, G) -> (P, G)

    Without a unit.

    Source: Shao et al. 2024, arXiv:2402.03300, section 4.1.2.
    """
    spread = masked_var(rewards, ~rewards.isnan(), ddof, dim=1, keepdim=True).sqrt()
    return _centred(rewards, dim=1) / (spread + eps)


def batch_standardised(rewards: Tensor, eps: float = 1e-4, ddof: int = 1) -> Tensor:
    """A = (R − mean_G R) / (std R + eps), the spread being that of the whole batch. (P, G) -> (P, G)

    Without a unit.

    Source: Liu et al. 2025, arXiv:2508.08221 (group mean, batch spread).
    """
    spread = masked_var(rewards, ~rewards.isnan(), ddof).sqrt()
    return _centred(rewards, dim=1) / (spread + eps)


def greedy_baseline(rewards: Tensor, greedy_rewards: Tensor) -> Tensor:
    """A = R(y) − R(y_greedy), y_greedy being the prompt's greedy completion. (P, G), (P, 1) -> (P, G)

    In reward. Where the greedy completion could not be scored there is nothing to compare with: 0.

    Source: Li et al. 2023, arXiv:2310.10505 (ReMax).
    """
    advantages = rewards - greedy_rewards
    return torch.where(advantages.isnan(), 0, advantages)


def win_probability(rewards: Tensor, opponent_rewards: Tensor) -> Tensor:
    """A = σ(R(y) − R(y')) − ½, y' being an opponent's completion of the prompt. (P, G), (P, G) -> (P, G)

    Without a unit, in (−½, ½): the probability that y beats y', of which ½ is a baseline. Where one of the two could
    not be scored there is nothing to compare: 0.

    Source: Munos et al. 2023, arXiv:2312.00886, section 7 (Nash-MD); σ of the scores as in TRL 1.9.0's NashMDTrainer.
    """
    advantages = (rewards - opponent_rewards).sigmoid() - 0.5
    return torch.where(advantages.isnan(), 0, advantages)


def moving_average(rewards: Tensor, past_rewards: Tensor) -> Tensor:
    """A = R − b, b being the mean of all rewards of earlier steps, 0 before there are any. (P, G), (P, 1) -> (P, G)

    In reward. All rewards that there have been weigh alike: b is no exponential average.

    Source: Ahmadian et al. 2024, arXiv:2402.14740, section 3.1 (REINFORCE with a moving average).
    """
    return (rewards - past_rewards).nan_to_num()


def optimal_value(rewards: Tensor, prompt_values: Tensor) -> Tensor:
    """A = R − V*, V* = β log E_ref[e^(R/β)] of the prompt. (P, G), (P, 1) -> (P, G)

    In reward. V* is the value of the best policy with a KL to the reference, see `soft_value`.

    Source: Brantley et al. 2025, arXiv:2505.20686 (A*-PO).
    """
    return (rewards - prompt_values).nan_to_num()


def tracked_value(rewards: Tensor, prompt_values: Tensor) -> Tensor:
    """A = R − v, v being the tracked mean reward of the prompt before this batch. (P, G), (P, 1) -> (P, G)

    In reward.

    Source: Xu and Ding 2025, arXiv:2509.13232, section 3.2 (SPO).
    """
    return (rewards - prompt_values).nan_to_num()


def soft_value(rewards: Tensor, value_beta: float) -> Tensor:
    """V = β log mean_n e^(R_n/β) over the scored samples, NaN where there is none. (P, N) -> (P,)

    In reward; β = `value_beta` in reward per nat. Near 0 it is the best reward, for large β the mean.

    Source: Brantley et al. 2025, arXiv:2505.20686, eq. 4.
    """
    count = (~rewards.isnan()).sum(1).to(rewards.dtype)
    summed = (rewards / value_beta).nan_to_num(nan=-torch.inf).logsumexp(1)
    return torch.where(count > 0, value_beta * (summed - count.log()), torch.nan)


def beta_normalised(rewards: Tensor) -> Tensor:
    """A = (R − p)/f(p; α, β), with p = mean_G R and f the density of a Beta distribution. (P, G) -> (P, G)

    Without a unit; for rewards from 0 to 1. α = 1 + a/3 and β = 1 + b/3 make the variance of the gradient least where
    p is distributed as Beta(a, b), and a and b are those with the mean m and the variance v (ddof 1) of p over the
    batch's groups: a = m s, b = (1 − m) s, s = m(1 − m)/v − 1. Where p spreads too widely for that, or there is one
    group only, s = 0: f = 1.

    Source: Xiao et al. 2025, arXiv:2506.02864, sections 3.2 and 3.3 (BNPO).
    """
    scored = ~rewards.isnan()
    groups = scored.any(1)
    p = masked_mean(rewards, scored, dim=1).clamp(1e-4, 1 - 1e-4)  # inside the density's support
    mean, variance = masked_mean(p, groups), masked_var(p, groups)
    # Groups that are all alike fit a Beta without any spread: it is bounded, so that its density is.
    size = (mean * (1 - mean) / variance.clamp(min=1e-4) - 1).clamp(min=0) * (groups.sum() > 1)
    alpha, beta = 1 + mean * size / 3, 1 + (1 - mean) * size / 3
    log_density = ((alpha - 1) * p.log() + (beta - 1) * (1 - p).log()
                   + torch.lgamma(alpha + beta) - torch.lgamma(alpha) - torch.lgamma(beta))
    return _centred(rewards, dim=1) / log_density.exp()[:, None]


def parts_standardised(reward_parts: Tensor, part_weights: Tensor, eps: float = 1e-4, ddof: int = 1) -> Tensor:
    """A = (S − mean S)/(std S + eps), S = Σ_k w_k (R_k − mean_G R_k)/(std_G R_k + eps). (K, P, G), (K,) -> (P, G)

    Without a unit. Each of K rewards is compared within its group by itself, so that none drowns in the spread of
    another; then the sum over the whole batch. A reward that could not be given counts nothing.

    Source: Liu et al. 2026, arXiv:2601.05242 (GDPO).
    """
    weighted = [weight * group_standardised(part, eps, ddof)
                for weight, part in zip(part_weights, reward_parts, strict=True)]
    total = torch.stack(weighted).sum(0).masked_fill(reward_parts.isnan().all(0), torch.nan)
    spread = masked_var(total, ~total.isnan(), ddof).sqrt()
    return _centred(total, dim=None) / (spread + eps)


def mean_scaled(rewards: Tensor) -> Tensor:
    """A = (R − mean_G R)/mean_G R, 0 where that mean is not above 0. (P, G) -> (P, G)

    Without a unit; for rewards of 0 and 1, or from 0 on. A prompt counts by 1/its share of right completions, as in the
    gradient of log p(right); a group without a right one has no signal.

    Source: Tajwar et al. 2026, arXiv:2602.02710, eq. 12 (MaxRL).
    """
    mean = masked_mean(rewards, ~rewards.isnan(), dim=1, keepdim=True)
    return torch.where(mean > 0, _centred(rewards, dim=1) / mean.clamp(min=torch.finfo(rewards.dtype).tiny), 0)


def best_over_rest(rewards: Tensor) -> Tensor:
    """A_i = max_G R − max_{j≠i} R_j: of the best completion its lead over the second, of all others 0. (P, G) -> (P, G)

    In reward. Summed over the group it estimates the gradient of E[max_G R] without bias: with rewards of 0 and 1 that
    of pass@G. One scored completion alone has nothing to be compared with: 0.

    Source: Tang et al. 2025, arXiv:2503.19595, section 3 (pass@k with a leave-one-out baseline).
    """
    known = rewards.nan_to_num(-torch.inf)
    best, second = known.topk(2, dim=1).values.unbind(1)
    first = torch.zeros_like(known).scatter(1, known.argmax(1, keepdim=True), 1) > 0
    return torch.where(first & second.isfinite()[:, None], (best - second)[:, None], 0)


def best_of_subsets(rewards: Tensor, pass_k: float) -> Tensor:
    """A_i = (E[M | i ∈ S] − E[M])/(std M + 1e-4), M = max_S R over all subsets S of k completions. (P, G) -> (P, G)

    Without a unit; k = `pass_k`, at most the number of scored completions. For rewards of 0 and 1 E[M] is the unbiased
    estimate of pass@k. k = 1 is GRPO's advantage, with the standard deviation of all G.

    Source: Chen et al. 2025, arXiv:2508.10751, section 2.4 (pass@k training, analytical), for any rewards.
    """
    scored = ~rewards.isnan()
    best = rewards.nan_to_num(-torch.inf).sort(1, descending=True)
    values = torch.where(scored.gather(1, best.indices), best.values, 0)
    rank = torch.arange(rewards.shape[1]).to(rewards)
    n = scored.sum(1, keepdim=True).to(rewards)
    k = n.clamp(max=float(int(pass_k)))

    def chances(others: Tensor, chosen: Tensor, of: Tensor, many: Tensor) -> Tensor:  # C(others, chosen)/C(of, many)
        return (_log_choose(others, chosen) - _log_choose(of, many)).exp()
    first = chances(n - 1 - rank, k - 1, n, k)  # that the completion of this rank is the best of a subset
    mean = (first * values).sum(1, keepdim=True)
    spread = ((first * (values - mean) ** 2).sum(1, keepdim=True)).sqrt()
    better = chances(n - 2 - rank, k - 2, n - 1, k - 1) * values  # those before it, where they are in its subset
    given = chances(n - 1 - rank, k - 1, n - 1, k - 1) * values + better.cumsum(1) - better
    found = torch.zeros_like(values).scatter(1, best.indices, (given - mean) / (spread + 1e-4))
    return torch.where(_centred(rewards, dim=1).any(1, keepdim=True) & scored, found, 0)


def _log_choose(n: Tensor, k: Tensor) -> Tensor:
    """log C(n, k), −∞ where k < 0 or k > n."""
    possible = (k >= 0) & (n >= k)
    n, k = torch.where(possible, n, 0), torch.where(possible, k, 0)
    return torch.where(possible, torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1), -torch.inf)


def length_weighted(rewards: Tensor, lengths: Tensor) -> Tensor:
    """A = R − Σ_G T R/Σ_G T, T being the tokens of each completion. (P, G), (P, G) -> (P, G)

    In reward. The baseline with the least variance where the squared gradient of a completion grows as its length.

    Source: Hao et al. 2025, arXiv:2505.23585, eq. 8 (OPO).
    """
    scored = ~rewards.isnan()
    weights = torch.where(scored, lengths.to(rewards.dtype), 0)
    baseline = (weights * rewards.nan_to_num()).sum(1, keepdim=True) / weights.sum(1, keepdim=True).clamp(min=1)
    differ = _centred(rewards, dim=1).any(1, keepdim=True)  # else the baseline misses equal rewards by its rounding
    return torch.where(scored & differ, rewards - baseline, 0)


def group_mean_active(rewards: Tensor) -> Tensor:
    """A = (R − mean_G R)/s, s the share of groups whose rewards differ. (P, G) -> (P, G)

    In reward. Groups that are all right or all wrong have no gradient, and the others make up for them: the gradient is
    that of the mean over groups with signal.

    Source: Chu et al. 2025, arXiv:2504.02546, section 3.3 (GPG, with F_norm = 1).
    """
    centre = _centred(rewards, dim=1)
    share = centre.any(1).to(rewards.dtype).mean()
    return centre / share.clamp(min=torch.finfo(rewards.dtype).tiny)


def one(rewards: Tensor) -> Tensor:
    """A = 1. (P, G) -> (P, G)

    Without a unit. With the score function it makes the loss that of supervised fine-tuning on what was selected.

    Source: Dong et al. 2023, arXiv:2304.06767, algorithm 1 (RAFT).
    """
    return (~rewards.isnan()).to(rewards.dtype)
