"""The distribution of a policy's next action: one over a few actions, or a Gaussian over continuous ones.

Both have the same methods, so no algorithm asks which of them it has. `of` reads the outputs of a network. Acting is
left to functions of these outputs, because a step of the environments needs nothing else.

    Categorical    π(a|s) = softmax(z(s))_a
    DiagGaussian   π(a|s) = Π_i N(a_i; μ_i(s), σ_i²), σ the same in every state and learnt as log σ

Left out: Gaussians squashed by tanh, noise that depends on the state (gSDE).

Source of the Gaussian: Stable-Baselines3, `common/distributions.py:DiagGaussianDistribution`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor

Choose = Callable[[Tensor, Tensor], Tensor]


class Distribution(Protocol):
    """π(·|s) in N states, or in a batch of any shape."""

    @classmethod
    def of(cls, outputs: Tensor) -> Self:
        """The distribution that a network's outputs describe. (..., P)"""

    @staticmethod
    def noise(shape: tuple[int, ...], outputs: int, generator: torch.Generator) -> Tensor:
        """Random numbers for one `sample` in each of `shape`; `outputs` is P."""

    @staticmethod
    def sample(outputs: Tensor, noise: Tensor) -> Tensor:
        """Actions drawn with these random numbers."""

    @staticmethod
    def mode(outputs: Tensor, noise: Tensor) -> Tensor:
        """The most likely actions; `noise` is not read."""

    def log_prob(self, actions: Tensor) -> Tensor:
        """log π(a|s) of the actions taken. (...) nats; of continuous actions the log of a density"""

    def entropy(self) -> Tensor:
        """H[π(·|s)]. (...) nats; of continuous actions the differential entropy, which may be negative"""

    def kl(self, other: Self) -> Tensor:
        """KL(self ‖ other), exact. (...) nats"""

    def spread(self) -> dict[str, float]:
        """Metrics that say how far apart its actions are, beside the entropy."""

    def detach(self) -> Self:
        """A copy without gradients."""

    def __getitem__(self, rows: Any) -> Self:
        """The distributions in some states."""


class Acts(Protocol):
    """A network whose outputs describe a distribution over actions."""

    family: type[Distribution]

    def __call__(self, observations: Tensor, /) -> Tensor:
        """(E, D) -> (E, P)"""


@dataclass(frozen=True)
class Categorical:
    """A distribution over a few actions, which are counted from 0. `log_policy` (..., A) is log π, normalised."""

    log_policy: Tensor

    @classmethod
    def of(cls, outputs: Tensor) -> Self:
        return cls(outputs.log_softmax(-1))

    @staticmethod
    def noise(shape: tuple[int, ...], outputs: int, generator: torch.Generator) -> Tensor:
        return torch.rand(shape, generator=generator, device=generator.device)

    @staticmethod
    def sample(outputs: Tensor, noise: Tensor) -> Tensor:
        """a = #{k : u > Σ_{j≤k} π_j}, the inverse of the distribution function. (E, A), (E,) in [0, 1) -> int64 (E,)"""
        return (noise.unsqueeze(-1) > outputs.softmax(-1).cumsum(-1)[..., :-1]).sum(-1)

    @staticmethod
    def mode(outputs: Tensor, noise: Tensor) -> Tensor:
        """a = argmax_a z_a. (E, A) -> int64 (E,)"""
        return outputs.argmax(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        return self.log_policy.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.log_policy.exp() * self.log_policy).sum(-1)

    def kl(self, other: Self) -> Tensor:
        """Σ_a π (log π − log π'): actions are few."""
        return (self.log_policy.exp() * (self.log_policy - other.log_policy)).sum(-1)

    def spread(self) -> dict[str, float]:
        return {}

    def detach(self) -> Self:
        return type(self)(self.log_policy.detach())

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(self.log_policy[rows])


@dataclass(frozen=True)
class DiagGaussian:
    """A distribution over continuous actions: each component has its own mean and standard deviation, in the unit of
    the actions."""

    mean: Tensor  # (..., A)
    log_std: Tensor  # (..., A)

    @classmethod
    def of(cls, outputs: Tensor) -> Self:
        return cls(*outputs.chunk(2, -1))

    @staticmethod
    def noise(shape: tuple[int, ...], outputs: int, generator: torch.Generator) -> Tensor:
        return torch.randn((*shape, outputs // 2), generator=generator, device=generator.device)

    @staticmethod
    def sample(outputs: Tensor, noise: Tensor) -> Tensor:
        """a = μ + σ ε, not clipped: log π is that of the action drawn. (E, 2A), (E, A) -> (E, A)"""
        mean, log_std = outputs.chunk(2, -1)
        return mean + log_std.exp() * noise

    @staticmethod
    def mode(outputs: Tensor, noise: Tensor) -> Tensor:
        """a = μ. (E, 2A) -> (E, A)"""
        return outputs.chunk(2, -1)[0]

    def log_prob(self, actions: Tensor) -> Tensor:
        """Σ_i [−½ ((a_i − μ_i)/σ_i)² − log σ_i − ½ log 2π]"""
        scaled = (actions - self.mean) * (-self.log_std).exp()
        return (-0.5 * scaled.square() - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> Tensor:
        """Σ_i [log σ_i + ½ log 2πe]"""
        return (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def kl(self, other: Self) -> Tensor:
        """Σ_i [log σ'_i/σ_i + (σ_i² + (μ_i − μ'_i)²) / 2σ'_i² − ½]"""
        apart = other.log_std - self.log_std
        spread = (-2 * apart).exp() + ((self.mean - other.mean) * (-other.log_std).exp()).square()
        return (apart + (spread - 1) / 2).sum(-1)

    def spread(self) -> dict[str, float]:
        return {"action/std": float(self.log_std.detach().exp().mean())}

    def detach(self) -> Self:
        return type(self)(self.mean.detach(), self.log_std.detach())

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(self.mean[rows], self.log_std[rows])
