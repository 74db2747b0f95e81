"""The exact values that the losses estimate: J, its gradient, the KL both ways, the entropy and the optimum π*.

All are expectations over every completion y of a prompt x, then the mean over the prompts:

    J = E[R]                objective = J − β KL(π‖π_ref)                π* ∝ π_ref e^{R/β}

In float64, in nats of a completion and in units of the reward, with their gradients.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Truth:
    """The exact values of a policy: each a number () in float64 that can be differentiated.

    `reward` J; `kl` KL(π‖π_ref), `kl_reverse` KL(π_ref‖π), `entropy` H[π] and `length` E[T] of a completion;
    `objective` J − β KL and `best`, the largest value that any policy can give it. At β = 0 no policy of full support
    is the best, so `optimum` (P, N), log π*, and `distance` KL(π‖π*) are None.
    """

    reward: Tensor
    kl: Tensor
    kl_reverse: Tensor
    entropy: Tensor
    length: Tensor
    objective: Tensor
    best: Tensor
    optimum: Tensor | None = None
    distance: Tensor | None = None


def truth(logp: Tensor, ref_logp: Tensor, rewards: Tensor, beta: float, lengths: Tensor | None = None) -> Truth:
    """The exact values of π = exp(`logp`) beside π_ref. logp, ref_logp, rewards: (P, N); lengths: (N,) tokens.

    β·log Z, with Z = E_ref[e^{R/β}], is the objective's largest value; at β = 0 it is the mean of the best rewards.
    """
    rewards, kl = rewards.double(), divergence(logp, ref_logp)
    pi, reward = logp.exp(), expectation(logp, rewards)
    values = {
        "reward": reward, "kl": kl, "kl_reverse": divergence(ref_logp, logp), "entropy": -(pi * logp).sum(-1).mean(),
        "length": reward.new_tensor(torch.nan) if lengths is None else expectation(logp, lengths.to(logp)),
        "objective": reward - beta * kl}
    if beta == 0:
        return Truth(**values, best=rewards.amax(-1).mean())
    star, log_z = optimum(ref_logp, rewards, beta)
    return Truth(**values, best=beta * log_z.mean(), optimum=star, distance=divergence(logp, star))


def optimum(ref_logp: Tensor, rewards: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """log π* = log π_ref + R/β − log Z, and log Z = log E_ref[e^{R/β}]. (P, N) each -> (P, N), (P,)

    Source: Rafailov et al. 2023, arXiv:2305.18290, equation 4.
    """
    tilted = ref_logp + rewards.double() / beta
    log_z = tilted.logsumexp(-1)
    return tilted - log_z[:, None], log_z


def expectation(logp: Tensor, values: Tensor) -> Tensor:
    """E[f(y)] under π, the mean over the prompts. (P, N), (P, N) or (N,) -> ()"""
    return (logp.exp() * values).sum(-1).mean()


def divergence(logp: Tensor, logq: Tensor) -> Tensor:
    """KL(p‖q) = Σ p (log p − log q), the mean over the prompts. (P, N) each -> () nats of a completion"""
    return (logp.exp() * (logp - logq)).sum(-1).mean()


def gradient(value: Tensor, parameters: Iterable[nn.Parameter], keep: bool = False) -> Tensor:
    """∂value/∂θ as one vector, zeros where a parameter has no part in it. () -> (D,) float64

    In the precision of the parameters: of a network in float64 (`copy.deepcopy(policy).double()`) it is exact to that.
    `keep` leaves the graph for the gradient of another value.
    """
    learnt = [parameter for parameter in parameters if parameter.requires_grad]
    found = torch.autograd.grad(value, learnt, retain_graph=keep, allow_unused=True)
    return torch.cat([(torch.zeros_like(own) if part is None else part).double().flatten()
                      for own, part in zip(learnt, found, strict=True)])
