"""Losses of the tokens of answers: in supervised fine-tuning, and of a teacher's distribution in distillation.

`policy` and `teacher` are log π and log π_T over the whole vocabulary. No gradient flows through the teacher.
"""

from __future__ import annotations

from math import log

import torch
from torch import Tensor


def nll(logprobs: Tensor) -> Tensor:
    """L = −log π(y_t). (B, T) -> (B, T)

    In nats/token.

    Source: Ouyang et al. 2022, arXiv:2203.02155.
    """
    return -logprobs


def dft(logprobs: Tensor) -> Tensor:
    """L = −sg(π(y_t)) log π(y_t). (B, T) -> (B, T)

    In nats/token. Tokens that the policy finds unlikely count for less: seen as a policy gradient, the reward of −log π
    is 1/π, which this takes out.

    Source: Wu et al. 2025, arXiv:2508.05629.
    """
    return -logprobs.detach().exp() * logprobs


def uncertain(logprobs: Tensor) -> Tensor:
    """L = −sg(π(1 − π)) log π(y_t), π = π(y_t). (B, T) -> (B, T)

    In nats/token. Tokens that the policy is sure of, or finds nearly impossible, count for little.

    Source: Zhang et al. 2025, arXiv:2508.11408, eq. 7 (CHORD-φ).
    """
    likely = logprobs.detach().exp()
    return -likely * (1 - likely) * logprobs


def forward_kl(policy: Tensor, teacher: Tensor) -> Tensor:
    """L = KL(π_T ‖ π) = Σ_v π_T (log π_T − log π). (..., V), (..., V) -> (...)

    In nats/token. Its gradient is that of −log π of tokens that the teacher samples: it covers all that the teacher may
    write.

    Source: Agarwal et al. 2023, arXiv:2306.13649, section 2 (supervised KD).
    """
    return _divergence(teacher, policy)


def reverse_kl(policy: Tensor, teacher: Tensor) -> Tensor:
    """L = KL(π ‖ π_T) = Σ_v π (log π − log π_T). (..., V), (..., V) -> (...)

    In nats/token. It keeps to what the teacher finds likely, and may drop some of it.

    Source: Gu et al. 2023, arXiv:2306.08543, equation 1.
    """
    return _divergence(policy, teacher)


def generalised_jsd(policy: Tensor, teacher: Tensor, jsd_beta: float) -> Tensor:
    """L = β KL(π_T ‖ m) + (1 − β) KL(π ‖ m), m = β π_T + (1 − β) π. (..., V), (..., V) -> (...)

    In nats/token, at most log 2. At β = 0 and 1, where it would be 0, it is the forward and the reverse KL, of which it
    is β and 1 − β times near these ends. As TRL's GKDTrainer.

    Source: Agarwal et al. 2023, arXiv:2306.13649, equation 1.
    """
    if jsd_beta in (0, 1):
        return reverse_kl(policy, teacher) if jsd_beta else forward_kl(policy, teacher)
    mixture = torch.logaddexp(policy + log(1 - jsd_beta), teacher + log(jsd_beta))
    return jsd_beta * _divergence(teacher, mixture) + (1 - jsd_beta) * _divergence(policy, mixture)


def _divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p ‖ q). (..., V), (..., V) -> (...) nats"""
    return (log_p.exp() * (log_p - log_q)).sum(-1)
