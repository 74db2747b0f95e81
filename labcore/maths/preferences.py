"""Losses on preferences, one function each: of log-ratios to the reference, or of log-probs without a reference.

c = log π(y_w)/π_ref(y_w) of the chosen, r = log π(y_l)/π_ref(y_l) of the rejected completion, both summed over its
tokens; Δ = c − r. Another divergence than the reverse KL has first made something else of c and r (`divergences`).
A loss gives one number per pair (or per completion, where it says so); the mean is the caller's.

In this order: weights of pairs; losses of each side by itself; losses without a reference; losses of the whole batch;
losses of Δ alone.
"""

from __future__ import annotations

from math import log, log1p

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from labcore.maths.masked import masked_mean, masked_sum

# ---------------------------------------------------------------- preference weights
# What counts for less in a preference loss: the tail of the longer side, and pairs far from the policy.


def without_tail(logprobs: Tensor, completion_mask: Tensor, other_lengths: Tensor, ld_alpha: float) -> Tensor:
    """ℓ = Σ_{t ≤ T'} log π(y_t) + α Σ_{t > T'} log π(y_t), T' the tokens of the pair's other side. (B, T) -> (B,)

    In nats/sequence; `other_lengths` (B,). At α = 1 it is the whole sum; at 0 the tokens by which one side is longer
    count for nothing.

    Source: Liu et al. 2024, arXiv:2409.06411 (LD-DPO).
    """
    shared = completion_mask.cumsum(1) <= other_lengths[:, None]
    tail = masked_sum(logprobs, completion_mask & ~shared, dim=1)
    return masked_sum(logprobs, completion_mask & shared, dim=1) + ld_alpha * tail


def likelihood(logprobs: Tensor, log_square_sums: Tensor, completion_mask: Tensor) -> Tensor:
    """exp mean_t (log π(y_t) − log Σ_v π(v)²): how likely a completion is to be the policy's own. (B, T) each -> (B,)

    Without a unit, no gradient: 1 where its tokens are as likely as the policy's own samples on average. WPO weighs a
    pair by the product of both sides'.

    Source: Zhou et al. 2024, arXiv:2406.11827, eq. 2.
    """
    return masked_mean(logprobs - log_square_sums, completion_mask, dim=1).exp().detach()


# ---------------------------------------------------------------- preferences each
# Losses on preferences that look at each side by itself: how far it has gone from the reference, not only from the
# other side. See `preferences` for c and r.

def nca_pair(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = −log σ(βc) − ½ log σ(−βc) − ½ log σ(−βr). (B,), (B,) -> (B,)

    In nats. Noise contrastive: the chosen log-ratio is kept from falling, and from growing without end.

    Source: Chen et al. 2024, arXiv:2402.05369, with two completions.
    """
    chosen, rejected = beta * log_ratio_chosen, beta * log_ratio_rejected
    return -logsigmoid(chosen) - 0.5 * logsigmoid(-chosen) - 0.5 * logsigmoid(-rejected)


def bco_pair(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = −log σ(βc) − log σ(−βr). (B,), (B,) -> (B,)

    In nats. A classifier of desired and undesired completions; without the paper's running mean, as in TRL's pairs.

    Source: Jung et al. 2024, arXiv:2404.04656.
    """
    return -logsigmoid(beta * log_ratio_chosen) - logsigmoid(-beta * log_ratio_rejected)


def sppo_hard(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = (c − 1/(2β))² + (r + 1/(2β))². (B,), (B,) -> (B,)

    In nats². Self-play with the probability of winning set to 1 for the chosen and 0 for the rejected side.

    Source: Wu et al. 2024, arXiv:2405.00675, eq. 4.7.
    """
    target = 0.5 / beta
    return (log_ratio_chosen - target) ** 2 + (log_ratio_rejected + target) ** 2


def apo_zero(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = 1 − σ(βc) + σ(βr). (B,), (B,) -> (B,)

    Without a unit. Raises the chosen and lowers the rejected side: for pairs that are better than the policy.

    Source: D'Oosterlinck et al. 2024, arXiv:2408.06266, eq. 7.
    """
    return 1 - (beta * log_ratio_chosen).sigmoid() + (beta * log_ratio_rejected).sigmoid()


def apo_down(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = σ(βc) + 1 − σ(β(c − r)). (B,), (B,) -> (B,)

    Without a unit. Lowers both sides, the rejected one more: for pairs that are worse than the policy.

    Source: D'Oosterlinck et al. 2024, arXiv:2408.06266, eq. 8.
    """
    delta = log_ratio_chosen - log_ratio_rejected
    return (beta * log_ratio_chosen).sigmoid() + 1 - (beta * delta).sigmoid()


def kto(whole_log_ratio_chosen: Tensor, whole_log_ratio_rejected: Tensor, mismatched_kl: Tensor, beta: float,
        desirable_weight: float, undesirable_weight: float) -> Tensor:
    """L = λ_D (1 − σ(β(c − z))) of desired, λ_U (1 − σ(β(z − r))) of undesired completions. (C,), (R,), () -> (C+R,)

    Without a unit, one number per completion, the desired first; there may be none of either. z = `mismatched_kl`,
    see `reference_point`, has no gradient: what a completion gains counts from what the policy gains anyway.

    Source: Ethayarajh et al. 2024, arXiv:2402.01306.
    """
    desired = 1 - (beta * (whole_log_ratio_chosen - mismatched_kl)).sigmoid()
    undesired = 1 - (beta * (mismatched_kl - whole_log_ratio_rejected)).sigmoid()
    return torch.cat([desirable_weight * desired, undesirable_weight * undesired])


def apo_zero_unpaired(whole_log_ratio_chosen: Tensor, whole_log_ratio_rejected: Tensor, beta: float,
                      desirable_weight: float, undesirable_weight: float) -> Tensor:
    """L = λ_D (1 − σ(βc)) of desired, λ_U σ(βr) of undesired completions. (C,), (R,) -> (C+R,)

    Without a unit, one number per completion, the desired first; there may be none of either. `kto` at z = 0: the
    reference itself is the point from which gains count, and no other completions are asked for.

    Source: D'Oosterlinck et al. 2024, arXiv:2408.06266, eq. 7, without pairs as in TRL's KTOTrainer.
    """
    desired = 1 - (beta * whole_log_ratio_chosen).sigmoid()
    undesired = (beta * whole_log_ratio_rejected).sigmoid()
    return torch.cat([desirable_weight * desired, undesirable_weight * undesired])


def reference_point(log_ratios: Tensor) -> Tensor:
    """z = max(0, mean log π(y')/π_ref(y')) of completions y' that belong to other prompts. (B,) -> ()

    In nats per sequence. KTO's estimate of the KL, which cannot be negative.

    Source: Ethayarajh et al. 2024, arXiv:2402.01306.
    """
    return log_ratios.mean().clamp(min=0).detach()


# ---------------------------------------------------------------- preferences free
# Losses on preferences without a reference: of log-probs under the policy alone, per token of a completion.

def simpo(logprob_chosen: Tensor, logprob_rejected: Tensor, length_chosen: Tensor, length_rejected: Tensor,
          beta: float, target_margin: float) -> Tensor:
    """L = −log σ(β(ℓ_w/T_w − ℓ_l/T_l) − γ). (B,), (B,), (B,), (B,) -> (B,)

    In nats; ℓ = log π of a completion, T its tokens, γ = `target_margin` in units of β × nats/token.

    Source: Meng et al. 2024, arXiv:2405.14734, eq. 6.
    """
    margin = logprob_chosen / length_chosen - logprob_rejected / length_rejected
    return -logsigmoid(beta * margin - target_margin)


def cpo(logprob_chosen: Tensor, logprob_rejected: Tensor, beta: float) -> Tensor:
    """L = −log σ(β(ℓ_w − ℓ_l)). (B,), (B,) -> (B,)

    In nats; ℓ = log π of a completion, summed over its tokens. DPO with a uniform reference, which then cancels.

    Source: Xu et al. 2024, arXiv:2401.08417, eq. 5 (CPO), without its SFT term.
    """
    return -logsigmoid(beta * (logprob_chosen - logprob_rejected))


def alphapo(logprob_chosen: Tensor, logprob_rejected: Tensor, length_chosen: Tensor, length_rejected: Tensor,
            beta: float, target_margin: float, reward_alpha: float) -> Tensor:
    """L = −log σ(β(r_w − r_l) − γ), r = (1 − π̄^(−α))/α, π̄ = e^(ℓ/T). (B,), (B,), (B,), (B,) -> (B,)

    In nats; T tokens, γ = `target_margin`, α = `reward_alpha`. At α = 0 r is ℓ/T, and the loss SimPO's. Above 0 an
    unlikely completion has a much lower reward, so that its slope is steeper.

    Source: Gupta et al. 2025, arXiv:2501.03884, eq. 6 and 7 (AlphaPO).
    """
    chosen, rejected = (_alpha_reward(logprobs / lengths, reward_alpha) for logprobs, lengths in (
        (logprob_chosen, length_chosen), (logprob_rejected, length_rejected)))
    return -logsigmoid(beta * (chosen - rejected) - target_margin)


def _alpha_reward(logprobs: Tensor, alpha: float) -> Tensor:
    return -torch.expm1(-alpha * logprobs) / alpha if alpha else logprobs


def orpo(logprob_chosen: Tensor, logprob_rejected: Tensor, whole_logprob_chosen: Tensor, length_chosen: Tensor,
         length_rejected: Tensor, beta: float) -> Tensor:
    """L = −ℓ_w/T̄_w − β log σ(log odds_w − log odds_l), odds = p/(1−p), p = e^(ℓ/T). (B,) five times -> (B,)

    In nats. SFT of the chosen side (see `sft`) and β (the paper's λ) times an odds ratio that keeps the rejected side
    from rising along with it. In the SFT term every token of the batch's chosen completions counts the same; in TRL
    those of their prompts count too, and the paper takes each completion's own mean.

    Source: Hong et al. 2024, arXiv:2403.07691, eq. 6 and 7.
    """
    odds = log_odds(logprob_chosen / length_chosen) - log_odds(logprob_rejected / length_rejected)
    return sft(whole_logprob_chosen, length_chosen) - beta * logsigmoid(odds)


def sft(whole_logprob_chosen: Tensor, length_chosen: Tensor) -> Tensor:
    """L = −ℓ_w/T̄_w, T̄_w the mean length of the batch's chosen completions. (B,), (B,) -> (B,)

    In nats/token: its mean is the negative log-likelihood per token of all chosen completions together, so that every
    token counts the same, those included that LD-DPO weighs down (as in TRL).

    Source: Ouyang et al. 2022, arXiv:2203.02155; beside a preference loss: Dubey et al. 2024, arXiv:2407.21783.
    """
    return -whole_logprob_chosen / length_chosen.to(whole_logprob_chosen.dtype).mean()


def answer_sft(logprob_answer: Tensor, mean_length_answer: Tensor) -> Tensor:
    """L = −ℓ_a/T̄_a, T̄_a the mean length of the batch's answers. (B,), () -> (B,)

    In nats/token; ℓ_a = log π of the task's own answer to each pair's prompt, a third completion that is better than
    either side. Its mean is the negative log-likelihood per token of all answers together.

    Source: Saeidi et al. 2024, arXiv:2405.16681 (TPO), the second term of its loss; the mean as in TRL's TPOTrainer.
    """
    return -logprob_answer / mean_length_answer


def exploration(whole_logprob_chosen: Tensor, whole_logprob_rejected: Tensor, theirs_chosen: Tensor,
                theirs_rejected: Tensor) -> Tensor:
    """L = log π(y_ref), y_ref being the side of the pair that the reference sampled. (B,), (B,), (B,), (B,) -> (B,)

    In nats/sequence; `theirs` is 1 for the side of the reference, else 0. Added to DPO's loss with a small weight α,
    the policy moves away from what the reference already writes, and so explores.

    Source: Xie et al. 2024, arXiv:2405.21046, algorithm 1 (XPO); TRL 1.9.0's XPOTrainer.
    """
    return theirs_chosen * whole_logprob_chosen + theirs_rejected * whole_logprob_rejected


def log_odds(logprobs: Tensor) -> Tensor:
    """log p/(1−p) of p = e^ℓ, ℓ < 0. (B,) -> (B,)

    In nats. A probability that rounds to 1 counts as the largest number below it: its odds would be infinite.
    """
    below = logprobs.clamp(max=-torch.finfo(logprobs.dtype).eps)
    return below - (-torch.expm1(below)).log()


# ---------------------------------------------------------------- preferences batch
# Losses on preferences that compare the distributions of a whole batch: sorted, quantile by quantile.

def aot(logprob_chosen: Tensor, logprob_rejected: Tensor, ref_logprob_chosen: Tensor, ref_logprob_rejected: Tensor,
        beta: float, label_smoothing: float) -> Tensor:
    """L_i = −(1−ε) log σ(βδ_i) − ε log σ(−βδ_i), δ = sort(Δ_π) − sort(Δ_ref). (B,) four times -> (B,)

    In nats; Δ_π = log π(y_w)/π(y_l), Δ_ref that of the reference. Optimal transport: the i-th smallest margin of the
    policy against the i-th smallest of the reference, so the numbers belong to no single pair.

    Source: Melnyk et al. 2024, arXiv:2406.05882 (paired).
    """
    margins, ref_margins = logprob_chosen - logprob_rejected, ref_logprob_chosen - ref_logprob_rejected
    return smoothed(beta * (margins.sort().values - ref_margins.sort().values), label_smoothing)


def aot_unpaired(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float, label_smoothing: float) -> Tensor:
    """L_i = −(1−ε) log σ(βδ_i) − ε log σ(−βδ_i), δ = sort(c) − sort(r). (B,), (B,) -> (B,)

    In nats. Who was paired with whom does not count: the i-th smallest chosen log-ratio against the i-th smallest
    rejected one.

    Source: Melnyk et al. 2024, arXiv:2406.05882 (unpaired).
    """
    return smoothed(beta * (log_ratio_chosen.sort().values - log_ratio_rejected.sort().values), label_smoothing)


def smoothed(margins: Tensor, label_smoothing: float) -> Tensor:
    """−(1−ε) log σ(m) − ε log σ(−m), m the margins times β. (B,) -> (B,)

    In nats.
    """
    return -(1 - label_smoothing) * logsigmoid(margins) - label_smoothing * logsigmoid(-margins)


# ---------------------------------------------------------------- preferences

def sigmoid(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = −log σ(βΔ). (B,), (B,) -> (B,)

    In nats; log-ratios in nats per sequence, `beta` in 1/nat. At π = π_ref it is log 2.

    Source: Rafailov et al. 2023, arXiv:2305.18290, eq. 7.
    """
    delta = log_ratio_chosen - log_ratio_rejected
    return -logsigmoid(beta * delta)


def cdpo(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float, label_smoothing: float) -> Tensor:
    """L = −(1−ε) log σ(βΔ) − ε log σ(−βΔ). (B,), (B,) -> (B,)

    In nats. Labels are believed to be flipped in a share ε of the pairs, so it is least at σ(βΔ) = 1 − ε.

    Source: Mitchell 2023, "A note on DPO with noisy preferences", ericmitchell.ai/cdpo.pdf.
    """
    margin = beta * (log_ratio_chosen - log_ratio_rejected)
    return smoothed(margin, label_smoothing)


def robust(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float, label_smoothing: float) -> Tensor:
    """L = (−(1−ε) log σ(βΔ) + ε log σ(−βΔ)) / (1−2ε), ε < ½. (B,), (B,) -> (B,)

    In nats. Unbiased under label noise: where a share ε of the labels is flipped, its expectation is the DPO loss on
    clean labels.

    Source: Chowdhury et al. 2024, arXiv:2403.00409.
    """
    margin = beta * (log_ratio_chosen - log_ratio_rejected)
    clean, flipped = -(1 - label_smoothing) * logsigmoid(margin), -label_smoothing * logsigmoid(-margin)
    return (clean - flipped) / (1 - 2 * label_smoothing)


def hinge(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = max(0, 1 − βΔ). (B,), (B,) -> (B,)

    Without a unit. A pair whose margin has reached 1 has no gradient.

    Source: Zhao et al. 2023, arXiv:2305.10425 (SLiC-HF), with the log-ratios of Liu et al. 2023, arXiv:2309.06657.
    """
    delta = log_ratio_chosen - log_ratio_rejected
    return torch.relu(1 - beta * delta)


def ipo(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = (Δ − 1/(2β))². (B,), (B,) -> (B,)

    In nats²; log-ratios in nats per sequence, `beta` in 1/nat. The margin it aims at is 1/(2β): it does not grow
    without end where a preference is certain.

    Source: Azar et al. 2023, arXiv:2310.12036, eq. 17.
    """
    delta = log_ratio_chosen - log_ratio_rejected
    return (delta - 1 / (2 * beta)) ** 2


def ipo_mean(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, length_chosen: Tensor, length_rejected: Tensor,
             beta: float) -> Tensor:
    """L = (c/T_w − r/T_l − 1/(2β))². (B,), (B,), (B,), (B,) -> (B,)

    In (nats/token)²; T are tokens. `ipo` of mean log-ratios per token, so that long completions weigh no more than
    short ones: as in TRL; eq. 17 and OpenRLHF sum them.

    Source: Azar et al. 2023, arXiv:2310.12036, eq. 17; the mean as in TRL's DPOTrainer.
    """
    return ipo(log_ratio_chosen / length_chosen, log_ratio_rejected / length_rejected, beta)


def sigmoid_norm(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, length_chosen: Tensor, length_rejected: Tensor,
                 beta: float) -> Tensor:
    """L = −log σ(β(c/T_w − r/T_l)). (B,), (B,), (B,), (B,) -> (B,)

    In nats; T are tokens. DPO of mean log-ratios per token: a completion gains nothing by its length.

    Source: Lambert et al. 2024, arXiv:2411.15124 (Tülu 3).
    """
    return sigmoid(log_ratio_chosen / length_chosen, log_ratio_rejected / length_rejected, beta)


def exo_pair(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float, exo_epsilon: float) -> Tensor:
    """L = q_w (log q_w − log(1−ε)) + q_l (log q_l − log ε), q_w = σ(βΔ), q_l = σ(−βΔ), ε > 0. (B,), (B,) -> (B,)

    In nats. The KL from the policy's preference q to that of the labels, (1−ε, ε): reverse where DPO's is forward.

    Source: Ji et al. 2024, arXiv:2402.00856, eq. 16.
    """
    margin = beta * (log_ratio_chosen - log_ratio_rejected)
    of_chosen = margin.sigmoid() * (logsigmoid(margin) - log1p(-exo_epsilon))
    return of_chosen + (-margin).sigmoid() * (logsigmoid(-margin) - log(exo_epsilon))


def discopop(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float, discopop_tau: float) -> Tensor:
    """L = (1−w)(−log σ(x)) + w e^(−x), x = βΔ, w = σ(x/τ). (B,), (B,) -> (B,)

    Without a unit. Logistic where the policy prefers the wrong side, exponential where it prefers the right one; not
    convex around 0. Found by a language model that searched for losses.

    Source: Lu et al. 2024, arXiv:2406.08414, eq. 5.
    """
    margin = beta * (log_ratio_chosen - log_ratio_rejected)
    exponential = (margin / discopop_tau).sigmoid()
    # Where w is 0 the exponential is left out: 0 · e^(−x) is not a number once e^(−x) has overflowed.
    safe = torch.where(exponential > 0, margin, torch.zeros_like(margin))
    return (1 - exponential) * -logsigmoid(margin) + exponential * (-safe).exp()
