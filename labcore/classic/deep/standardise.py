"""Running means and variances, which bring observations and rewards to a size that networks learn well from.

As VecNormalize of Stable-Baselines3, with one difference: observations are standardised by the statistics from before
the rollout, so the policy that acts is the one that is updated. In Stable-Baselines3 the statistics change at every
step.

Source: Chan et al. 1979, "Updating formulae" (combined moments); Stable-Baselines3, `vec_normalize.py` and
`running_mean_std.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

MOST = 10.0  # standard deviations; larger values are clipped to this
TINY = 1e-8  # added to a variance
FEW = 1e-4  # rows that the first moments, 0 and 1, count for


def combined(mean: Any, var: Any, count: Any, rows: Any) -> tuple[Any, Any, Any]:
    """The moments of `count` rows with `mean` and `var`, together with new `rows` (N, ...). -> mean, var, count"""
    total, delta = count + len(rows), rows.mean(0) - mean
    spread = var * count + ((rows - rows.mean(0)) ** 2).mean(0) * len(rows) + delta**2 * count * len(rows) / total
    return mean + delta * len(rows) / total, spread / total, total


class Standardise(nn.Module):
    """y = clip((x − μ)/√(σ² + 1e-8), ±10). (..., D) -> (..., D)

    μ and σ² are those of all that was `see`n before the last `take`; they are kept with the weights.
    """

    mean: Tensor
    var: Tensor
    count: Tensor
    shift: Tensor
    factor: Tensor

    def __init__(self, size: int):
        super().__init__()
        for name, value in (("mean", torch.zeros(size)), ("var", torch.ones(size)), ("count", torch.tensor([FEW])),
                            ("shift", torch.zeros(size)), ("factor", torch.ones(size))):
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.shift) * self.factor).clamp(-MOST, MOST)

    def see(self, observations: Tensor) -> None:
        """Count observations (N, D), for the next `take`."""
        found = combined(self.mean.double(), self.var.double(), self.count.double(), observations.double())
        for kept, moment in zip((self.mean, self.var, self.count), found, strict=True):
            kept.copy_(moment)

    def take(self) -> None:
        """Standardise by the statistics so far."""
        self.shift.copy_(self.mean if float(self.count) > FEW else self.shift)
        self.factor.copy_((self.var + TINY).rsqrt() if float(self.count) > FEW else self.factor)


@dataclass
class RewardScale:
    """r / √(Var G + 1e-8), clipped to ±10, G the discounted sum of an environment's rewards so far in its episode."""

    returns: np.ndarray  # (E,) G
    moments: list[float] = field(default_factory=lambda: [0.0, 1.0, FEW])  # mean, variance and number of the G seen

    def scaled(self, rewards: np.ndarray, ended: np.ndarray, gamma: float) -> np.ndarray:
        """The rewards of T steps, each divided by the scale known at its step. (T, E), bool (T, E) -> float32 (T, E)"""
        found = np.empty_like(rewards, np.float32)
        for t, row in enumerate(rewards):
            self.returns = self.returns * gamma + row
            mean, var, count = self.moments
            self.moments = [float(moment) for moment in combined(mean, var, count, self.returns)]
            found[t] = np.clip(row / np.sqrt(self.moments[1] + TINY), -MOST, MOST)
            self.returns = np.where(ended[t], 0.0, self.returns)
        return found

    def state(self) -> dict[str, list[float]]:
        return {"returns": self.returns.tolist(), "moments": list(self.moments)}

    @staticmethod
    def of_state(state: dict[str, list[float]]) -> RewardScale:
        """The inverse of `state`."""
        return RewardScale(np.array(state["returns"]), list(state["moments"]))
