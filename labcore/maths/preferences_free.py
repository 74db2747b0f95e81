"""Losses on preferences without a reference: of log-probs under the policy alone, per token of a completion."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def simpo(logprob_chosen: Tensor, logprob_rejected: Tensor, length_chosen: Tensor, length_rejected: Tensor,
          beta: float, target_margin: float) -> Tensor:
    """L = −log σ(β(ℓ_w/T_w − ℓ_l/T_l) − γ). (B,), (B,), (B,), (B,) -> (B,)

    In nats; ℓ = log π of a completion, T its tokens, γ = `target_margin` in units of β × nats/token.

    Source: Meng et al. 2024, arXiv:2405.14734, eq. 6.
    """
    margin = logprob_chosen / length_chosen - logprob_rejected / length_rejected
    return -logsigmoid(beta * margin - target_margin)


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


def log_odds(logprobs: Tensor) -> Tensor:
    """log p/(1−p) of p = e^ℓ, ℓ < 0. (B,) -> (B,)

    In nats. A probability that rounds to 1 counts as the largest number below it: its odds would be infinite.
    """
    below = logprobs.clamp(max=-torch.finfo(logprobs.dtype).eps)
    return below - (-torch.expm1(below)).log()
