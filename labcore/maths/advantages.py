"""Baselines of a completion's reward, and the advantages that they give.

Rewards are (P, G): P prompts, G completions each. NaN marks a completion that could not be scored: it is left out of
every baseline and gets advantage 0. Where all rewards compared are equal the advantage is exactly 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labcore.maths import turns
from labcore.maths.masked import centred, extremes, masked_mean, masked_var, masked_whiten
from labcore.maths.returns import gae as gae


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

    Without a unit, in (−½, ½): the probability that y beats y', of which ½ is a baseline. Where one of the two could not
    be scored there is nothing to compare: 0.

    Source: Munos et al. 2023, arXiv:2312.00886, section 7 (Nash-MD); σ of the scores as in TRL 1.9.0's NashMDTrainer.
    """
    advantages = (rewards - opponent_rewards).sigmoid() - 0.5
    return torch.where(advantages.isnan(), 0, advantages)


def reward_to_go_whitened(token_rewards: Tensor, completion_mask: Tensor, gamma: float) -> Tensor:
    """A_t = (R_t − mean R)/√(var R + 1e-8), with R_t = Σ_{s≥t} γ^{s−t} r_s. (B, T), bool (B, T) -> (B, T)

    Without a unit; 0 where the mask is False. Mean and variance (ddof 1) are those of all counted tokens of the batch,
    so long completions weigh more in them. A NaN reward leaves its completion out and gives it advantage 0.

    Source: Hu et al. 2025, arXiv:2501.03262 (REINFORCE++).
    """
    # GAE without a critic and with λ = 1: it steps over what does not count.
    returns = gae(token_rewards, torch.zeros_like(token_rewards), completion_mask, gamma, gae_lambda=1.0)
    returns = torch.where(completion_mask, returns, torch.nan)
    variance = masked_var(returns, ~returns.isnan())
    return _centred(returns, dim=None) / (variance + 1e-8).sqrt()


def steps_standardised(token_rewards: Tensor, completion_mask: Tensor, step_ends: Tensor, group_size: int,
                       eps: float = 1e-4, ddof: int = 1) -> Tensor:
    """A_t = Σ_{k: end_k ≥ t} (r_k − mean r)/(std r + eps), over all steps of the group. (B, T), bool (B, T) x 2 -> (B,
    T)

    Without a unit; 0 where the mask is False. r_k is the sum of the rewards from the token after end_{k−1} to end_k.
    With one step a completion it is `group_standardised` at every token. A NaN reward leaves its completion out.

    Source: Shao et al. 2024, arXiv:2402.03300, section 4.1.3 (process supervision).
    """
    ends = step_ends & completion_mask & ~(token_rewards * completion_mask).sum(1, keepdim=True).isnan()
    rewards, earned = torch.zeros_like(token_rewards), torch.zeros_like(token_rewards[:, 0])
    for t in range(token_rewards.shape[1]):
        earned = earned + torch.where(completion_mask[:, t], token_rewards[:, t], 0)
        rewards[:, t] = torch.where(ends[:, t], earned, 0)
        earned = torch.where(ends[:, t], 0, earned)
    grouped, there = rewards.view(-1, group_size * rewards.shape[1]), ends.view(-1, group_size * rewards.shape[1])
    spread = masked_var(grouped, there, ddof, dim=1, keepdim=True).sqrt()
    normalised = (centred(grouped, there, 1) / (spread + eps)).view_as(rewards)
    later = normalised.flip(1).cumsum(1).flip(1)
    return torch.where(completion_mask & ends.any(1, keepdim=True), later, 0)


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


def teacher_log_ratio(teacher_logprobs: Tensor, old_logprobs: Tensor, completion_mask: Tensor,
                      teacher_discount: float, single_step: bool = False) -> Tensor:
    """A_t = Σ_{s≥t} γ^{s−t} (log π_T(y_s) − log π_old(y_s)); s > t with `single_step`. (B, T), (B, T), bool (B, T) ->
    (B, T)

    In nats; 0 where the mask is False. Times ∇log π(y_t) and summed, its mean on policy is −∇KL(π ‖ π_T): at γ = 0 of
    each token's distribution with its prefix held fixed, at γ = 1 of whole completions. With `single_step` the token's
    own part is in the loss, exactly (`supervised.reverse_kl`).

    Source: Lu and Thinking Machines Lab 2025, "On-Policy Distillation" (γ = 0); γ as `kl_discount_factor` of their
    tinker-cookbook, distillation/train_on_policy.py.
    """
    ratios = teacher_logprobs - old_logprobs
    summed = gae(ratios, torch.zeros_like(ratios), completion_mask, teacher_discount, gae_lambda=1.0)
    return torch.where(completion_mask, summed - ratios, 0) if single_step else summed


def teacher_mean_log_ratio(teacher_logprobs: Tensor, old_logprobs: Tensor, completion_mask: Tensor,
                           teacher_discount: float, single_step: bool = False) -> Tensor:
    """A_t = Σ_{s≥t} γ^{s−t} (log π_T(y_s) − log π_old(y_s)) / Σ_{s≥t} γ^{s−t}; s > t with `single_step`. (B, T), (B,
    T), bool (B, T) -> (B, T)

    In nats; 0 where the mask is False, and where nothing is left. Divided by what is left of the completion, so that
    long ones have no larger advantages. TRL 1.9.0's MiniLLMTrainer keeps the token's own log-ratio in the advantage and
    adds the single-step term to the loss, so this part counts twice there.

    Source: Gu et al. 2023, arXiv:2306.08543, section 2.2 (single-step decomposition, length normalisation).
    """
    summed = teacher_log_ratio(teacher_logprobs, old_logprobs, completion_mask, teacher_discount, single_step)
    nothing = torch.zeros_like(summed)
    left = gae(torch.ones_like(summed), nothing, completion_mask, teacher_discount, gae_lambda=1.0) - float(single_step)
    return torch.where(completion_mask & (left > 0), summed / left.clamp(min=torch.finfo(left.dtype).tiny), 0)


def optimal_token_baseline(token_rewards: Tensor, scored_tokens: Tensor, old_logprobs: Tensor, square_sums: Tensor,
                           group_size: int) -> Tensor:
    """A_t = G_t − Σ_group G_t W_t/Σ_group W_t, W_t = Σ_{s≤t} (1 − 2π_s + Σ_v π_v²). (B, T) four times, () -> (B, T)

    In reward; G_t is the return from token t on, `square_sums` Σ_v π_v² before it, `scored_tokens` are those of the
    completions that could be scored. W_t stands for the squared gradient of all tokens so far, so the baseline has the
    least variance. Completions are compared token by token, in the order of their counted tokens. Where only the
    longest of a group has a token left the baseline is 0, as in verl; a group whose completions all earn the same has
    advantage 0. Where an older policy sampled, π_s is its and Σ_v π_v² is not, so a term below 0 counts as 0.

    Source: Li et al. 2026, arXiv:2602.07078 (OTB).
    """
    rewards = torch.where(scored_tokens, token_rewards, 0)
    returns = rewards.flip(1).cumsum(1).flip(1)
    energy = torch.where(scored_tokens, (1 - 2 * old_logprobs.exp() + square_sums).clamp(min=0), 0).cumsum(1)
    place = (scored_tokens.cumsum(1) - 1).clamp(min=0)

    def by_place(values: Tensor) -> Tensor:  # (P, G, T), without the gaps between counted tokens
        kept = torch.where(scored_tokens, values, 0)
        return torch.zeros_like(values).scatter_add(1, place, kept).view(-1, group_size, values.shape[1])
    weights, there = by_place(energy), by_place(torch.ones_like(returns)).sum(1)  # how many have a token at each place
    baseline = (by_place(returns) * weights).sum(1) / (weights.sum(1) + 1e-8)
    baseline = torch.where(there > 1, baseline, 0).repeat_interleave(group_size, 0).gather(1, place)
    scored = scored_tokens.any(1).view(-1, group_size)
    differ = centred(rewards.sum(1).view(-1, group_size), scored, 1).any(1).repeat_interleave(group_size)
    return torch.where(scored_tokens & differ[:, None], returns - baseline, 0)


def turn_return(token_rewards: Tensor, scored_tokens: Tensor, group_size: int) -> Tensor:
    """A_k = G_k − 1/n_k Σ_{j≠i} G_{j,k}, with G_k = Σ_{l≥k} r_l. (B, T), bool (B, T) -> (B, T)

    In reward; the tokens of a turn share its advantage, 0 where the mask is False: at
    observations, and in episodes that could not be scored. The sum is over the n_k others of
    the group that have a turn k; where there is none, the baseline is 0. It does not depend on the turn itself, so the
    gradient is unbiased. Of completions of one turn it is `leave_one_out`.

    Source: Kool et al. 2019, "Buy 4 REINFORCE samples", with the return from a turn on in place of the reward.
    """
    returns = turns.per_turn(token_rewards, scored_tokens).flip(1).cumsum(1).flip(1)  # (B, K)
    has = torch.arange(returns.shape[1], device=returns.device) < turns.count(scored_tokens)[:, None]
    groups, there = (returns * has).unflatten(0, (-1, group_size)), has.unflatten(0, (-1, group_size))
    count, (lowest, highest) = there.sum(1, keepdim=True), extremes(groups, 1, there)
    baseline = (groups.sum(1, keepdim=True) - groups) / (count - 1).clamp(min=1)
    compared = (count[..., :1] > 1) & ~((count > 1) & (lowest == highest))  # exactly 0 where all are equal
    return turns.at_tokens(torch.where(compared, groups - baseline, 0).flatten(0, 1), scored_tokens)


def turn_gae(token_rewards: Tensor, values: Tensor, completion_mask: Tensor, gamma: float,
             gae_lambda: float) -> Tensor:
    """A_t = V(s_k) + Σ_l (γλ)^l δ_{k+l} − V_t, δ_k = r_k + γ V(s_{k+1}) − V(s_k). (B, T) x 2, bool (B, T) -> (B, T)

    In reward; 0 where the mask is False. The steps of the estimate are turns: s_k is the state before the first token
    of turn k, so γ and λ count once for each turn, however long it is. At that token A_t is the estimate Σ_l (γλ)^l δ;
    every other token of the turn compares the same return with its own value. Of one turn it is R − V_t.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16, with turns as steps.
    """
    first = turns.per_turn(values * turns.starts(completion_mask), completion_mask)  # V(s_k), (B, K)
    has = torch.arange(first.shape[1], device=first.device) < turns.count(completion_mask)[:, None]
    of_turns = gae(turns.per_turn(token_rewards, completion_mask), first, has, gamma, gae_lambda)
    return turns.at_tokens(of_turns + first, completion_mask) - torch.where(completion_mask, values, 0)


def one(rewards: Tensor) -> Tensor:
    """A = 1. (P, G) -> (P, G)

    Without a unit. With the score function it makes the loss that of supervised fine-tuning on what was selected.

    Source: Dong et al. 2023, arXiv:2304.06767, algorithm 1 (RAFT).
    """
    return (~rewards.isnan()).to(rewards.dtype)


# ---------------------------------------------------------------- normalisation
# How the advantages of a batch are brought to one scale, once each completion has been compared with others.
#
# Advantages are (B, 1), one per completion; the result is (B, 1) or (B, T). What does not count is 0, and enters no
# mean: a completion that could not be scored, or one without a baseline, since nothing that it is compared with could
# be.

def none(advantages: Tensor) -> Tensor:
    """A' = A. (B, 1) -> (B, 1)"""
    return advantages


def sequences(advantages: Tensor, scored: Tensor, eps: float = 1e-4, ddof: int = 1) -> Tensor:
    """A' = (A − mean A)/(std A + eps), over the batch's scored completions. (B, 1), bool (B, 1) -> (B, 1)

    Without a unit. As TRL does it for RLOO (`normalize_advantages`).

    Source: Ahmadian et al. 2024, arXiv:2402.14740; Hu et al. 2025, arXiv:2501.03262, section 3 (global normalisation).
    """
    spread = masked_var(advantages, scored, ddof).sqrt()
    return centred(advantages, scored) / (spread + eps)


def tokens(advantages: Tensor, completion_mask: Tensor) -> Tensor:
    """A' = (A − mean A)/√(var A + 1e-8), over the batch's counted tokens. (B, 1), bool (B, T) -> (B, T)

    Without a unit. Long completions weigh more in mean and variance. As verl and OpenRLHF do it for REINFORCE++.

    Source: Hu et al. 2025, arXiv:2501.03262, section 3 (REINFORCE++-baseline).
    """
    return masked_whiten(advantages.expand_as(completion_mask), completion_mask)
