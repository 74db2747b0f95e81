"""Advantages that differ from token to token: of returns, of steps, of a teacher, and of turns.

Tensors are (B, T). Tokens outside the mask have advantage 0, and so has a completion with a NaN reward.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labcore.maths import turns
from labcore.maths.masked import centred, extremes, masked_var
from labcore.maths.returns import gae


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
    return centred(returns, ~returns.isnan()) / (variance + 1e-8).sqrt()


def steps_standardised(token_rewards: Tensor, scored_tokens: Tensor, step_ends: Tensor, group_size: int,
                       eps: float = 1e-4, ddof: int = 1) -> Tensor:
    """A_t = Σ_{k: end_k ≥ t} (r_k − mean r)/(std r + eps), over all steps of the group. (B, T), bool (B, T) x 2 -> (B,
    T)

    Without a unit; 0 where `scored_tokens` is False. r_k is the sum of the rewards from the token after end_{k−1} to
    end_k. If each completion has one step, it equals `group_standardised` at every token. Completions that a selection
    leaves out count in mean and std; completions that could not be scored have no `scored_tokens`.

    Source: Shao et al. 2024, arXiv:2402.03300, section 4.1.3 (process supervision).
    """
    ends = step_ends & scored_tokens & ~(token_rewards * scored_tokens).sum(1, keepdim=True).isnan()
    rewards, earned = torch.zeros_like(token_rewards), torch.zeros_like(token_rewards[:, 0])
    for t in range(token_rewards.shape[1]):
        earned = earned + torch.where(scored_tokens[:, t], token_rewards[:, t], 0)
        rewards[:, t] = torch.where(ends[:, t], earned, 0)
        earned = torch.where(ends[:, t], 0, earned)
    grouped, there = rewards.view(-1, group_size * rewards.shape[1]), ends.view(-1, group_size * rewards.shape[1])
    spread = masked_var(grouped, there, ddof, dim=1, keepdim=True).sqrt()
    normalised = (centred(grouped, there, 1) / (spread + eps)).view_as(rewards)
    later = normalised.flip(1).cumsum(1).flip(1)
    return torch.where(scored_tokens & ends.any(1, keepdim=True), later, 0)


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


def teacher_log_ratio(teacher_logprobs: Tensor, old_logprobs: Tensor, completion_mask: Tensor,
                      teacher_discount: float, single_step: bool) -> Tensor:
    """A_t = Σ_{s≥t} γ^{s−t} (log π_T(y_s) − log π_old(y_s)). (B, T), (B, T), bool (B, T) -> (B, T)

    In nats; 0 where the mask is False. Times ∇log π(y_t) and summed, its mean on policy is −∇KL(π ‖ π_T): at γ = 0 of
    each token's distribution with its prefix held fixed, at γ = 1 of whole completions. With `single_step` over s > t:
    the token's own part is in the loss, exactly (`supervised.reverse_kl`).

    Source: Lu and Thinking Machines Lab 2025, "On-Policy Distillation" (γ = 0); γ as `kl_discount_factor` of their
    tinker-cookbook, distillation/train_on_policy.py.
    """
    ratios = teacher_logprobs - old_logprobs
    summed = gae(ratios, torch.zeros_like(ratios), completion_mask, teacher_discount, gae_lambda=1.0)
    return torch.where(completion_mask, summed - ratios, 0) if single_step else summed


def teacher_mean_log_ratio(teacher_logprobs: Tensor, old_logprobs: Tensor, completion_mask: Tensor,
                           teacher_discount: float, single_step: bool) -> Tensor:
    """A_t = Σ_{s≥t} γ^{s−t} (log π_T(y_s) − log π_old(y_s)) / Σ_{s≥t} γ^{s−t}. (B, T), (B, T), bool (B, T) -> (B, T)

    In nats; 0 where the mask is False, and where nothing is left; over s > t with `single_step`. Divided by what is
    left of the completion, so that long ones have no larger advantages. TRL 1.9.0's MiniLLMTrainer keeps the token's
    own log-ratio in the advantage and adds the single-step term to the loss, so this part counts twice there.

    Source: Gu et al. 2023, arXiv:2306.08543, section 2.2 (single-step decomposition, length normalisation).
    """
    summed = teacher_log_ratio(teacher_logprobs, old_logprobs, completion_mask, teacher_discount, single_step)
    nothing = torch.zeros_like(summed)
    left = gae(torch.ones_like(summed), nothing, completion_mask, teacher_discount, gae_lambda=1.0) - float(single_step)
    return torch.where(completion_mask & (left > 0), summed / left.clamp(min=torch.finfo(left.dtype).tiny), 0)


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


def turn_gae(token_rewards: Tensor, values: Tensor, completion_mask: Tensor, gamma: float, gae_lambda: float) -> Tensor:
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
