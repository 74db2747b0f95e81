"""Losses of given tokens in supervised fine-tuning."""

from __future__ import annotations

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
