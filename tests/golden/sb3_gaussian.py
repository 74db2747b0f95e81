"""Makes `sb3_gaussian.json`: Stable-Baselines3's Gaussian and its running moments of observations and rewards.

Run it where Stable-Baselines3 is installed (`pip install stable-baselines3==2.9.2`):
`python -m tests.golden.sb3_gaussian`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import DiagGaussianDistribution, kl_divergence
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

STEPS, COUNT = 7, 3


def gaussian() -> dict[str, Any]:
    """Two Gaussians in six states, actions of two numbers, and the gradients of their log-probs."""
    generator = torch.Generator().manual_seed(5)

    def drawn() -> torch.Tensor:
        return torch.randn(6, 2, generator=generator, dtype=torch.float64)

    mean, actions = drawn().requires_grad_(), 2 * drawn()
    log_std = torch.tensor([-0.7, 0.4], dtype=torch.float64, requires_grad=True)
    other_mean, other_log_std = drawn(), torch.tensor([0.1, -0.3], dtype=torch.float64)
    one = DiagGaussianDistribution(2).proba_distribution(mean, log_std)
    other = DiagGaussianDistribution(2).proba_distribution(other_mean, other_log_std)
    logprobs = one.log_prob(actions)
    logprobs.sum().backward()
    tensors = {"mean": mean, "log_std": log_std, "actions": actions, "log_prob": logprobs, "entropy": one.entropy(),
               "grad_mean": mean.grad, "grad_log_std": log_std.grad, "other_mean": other_mean,
               "other_log_std": other_log_std, "kl": kl_divergence(one, other).sum(-1)}
    return {name: tensor.tolist() for name, tensor in tensors.items()}


class Scripted(VecEnv):
    """Environments that show given rows."""

    def __init__(self, observations: np.ndarray, rewards: np.ndarray, ended: np.ndarray):
        super().__init__(COUNT, spaces.Box(-np.inf, np.inf, (2,)), spaces.Box(-1, 1, (1,)))
        self.rows, self.time = (observations, rewards, ended), 0

    def reset(self) -> np.ndarray:
        self.time = 0
        return self.rows[0][0]

    def step_async(self, actions: np.ndarray) -> None:
        self.time += 1

    def step_wait(self) -> tuple[Any, ...]:
        observations, rewards, ended = self.rows
        return observations[self.time], rewards[self.time - 1], ended[self.time - 1], [{}] * COUNT

    def close(self) -> None:
        return None

    def get_attr(self, name: str, indices: Any = None) -> list[Any]:
        return [None] * COUNT

    def set_attr(self, name: str, value: Any, indices: Any = None) -> None:
        return None

    def env_method(self, name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        return [None] * COUNT

    def env_is_wrapped(self, wrapper: Any, indices: Any = None) -> list[bool]:
        return [False] * COUNT


def normalise() -> dict[str, Any]:
    """Rewards as VecNormalize scales them, and its moments after the last step."""
    rng = np.random.default_rng(3)
    observations, rewards = rng.normal(3, 2, (STEPS + 1, COUNT, 2)), rng.normal(-5, 3, (STEPS, COUNT))
    ended = np.zeros((STEPS, COUNT), bool)
    ended[2, 1] = ended[4, 0] = True
    worlds = VecNormalize(Scripted(observations, rewards, ended), gamma=0.9)
    worlds.reset()
    scaled = [worlds.step(np.zeros((COUNT, 1)))[1].tolist() for _ in range(STEPS)]
    return {"gamma": 0.9, "observations": observations.tolist(), "rewards": rewards.tolist(), "ended": ended.tolist(),
            "scaled": scaled, "mean": worlds.obs_rms.mean.tolist(), "var": worlds.obs_rms.var.tolist(),
            "next": worlds.normalize_obs(observations[0]).tolist()}


def main() -> None:
    meta = {"stable_baselines3": stable_baselines3.__version__, "torch": torch.__version__,
            "gymnasium": gymnasium.__version__, "of": "DiagGaussianDistribution, kl_divergence, VecNormalize"}
    Path(__file__).with_suffix(".json").write_text(json.dumps({"meta": meta, **gaussian(), "normalise": normalise()}))


if __name__ == "__main__":
    main()
