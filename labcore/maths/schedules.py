"""Schedules of the learning rate over a run: factors between 0 and 1.

`at` is the number of steps made so far, in which a step of several updates counts by the share of them that is done;
`warmup_steps` and `steps` are those of the warm-up and of the whole run. The values are those of
`transformers.get_scheduler` (5.23, optimization.py) at its update `at` × updates per step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence


def constant(at: float, warmup_steps: int, steps: int) -> float:
    """1 once the warm-up is over, before that at/w: transformers' constant_with_warmup."""
    return at / warmup_steps if at < warmup_steps else 1.0


def linear(at: float, warmup_steps: int, steps: int) -> float:
    """(N − at) / (N − w) after the warm-up, 0 from N on: transformers' linear."""
    return at / warmup_steps if at < warmup_steps else max(0.0, (steps - at) / max(1, steps - warmup_steps))


def cosine(at: float, warmup_steps: int, steps: int) -> float:
    """½ (1 + cos π (at − w)/(N − w)) after the warm-up, 0 from N on: transformers' cosine with half a wave.

    transformers' own rises again beyond N, which no run of N steps reaches.
    """
    if at < warmup_steps:
        return at / warmup_steps
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, (at - warmup_steps) / max(1, steps - warmup_steps))))


SCHEDULES: dict[str, Callable[[float, int, int], float]] = {"constant": constant, "linear": linear, "cosine": cosine}


# ---------------------------------------------------------------- controllers
# What moves a coefficient by itself during a run.

def adaptive_kl(factor: float, kl: float, adaptive_kl_target: float, adaptive_kl_horizon: float,
                completions: int) -> float:
    """f ← f (1 + clip(KL/target − 1, −0.2, 0.2) · min(n/horizon, 1)): the factor of β from the next step on.

    `kl` and its target in nats per token; `completions` n of the step, the horizon in completions.

    Source: Ziegler et al. 2019, arXiv:1909.08593, section 2.2, which has a constant 0.1 where n/horizon is that of the
    paper's code, TRL and verl.
    """
    error = min(max(kl / adaptive_kl_target - 1, -0.2), 0.2)
    # A step of more completions than the horizon moves as far as one of the horizon: β must not change its sign.
    return factor * (1 + error * min(completions / adaptive_kl_horizon, 1.0))


def adaptive_entropy(coefficient: float, entropy: float, entropy_target: float, entropy_step: float) -> float:
    """c ← clip(c + δ, 0, 1) where H < target, else clip(c − δ, 0, 1): the entropy bonus from the next step on.

    `entropy` and its target in nats per token, c and δ = `entropy_step` in reward per nat. The bonus is paid only in
    steps after one whose entropy was below the target.

    Source: He et al. 2025, arXiv:2505.22312, section 3.2.5 (Skywork-OR1, whose code bounds c by 0.005).
    """
    return min(max(coefficient + (entropy_step if entropy < entropy_target else -entropy_step), 0.0), 1.0)


def tracked(total: float, count: float, rewards: Sequence[float], updates: float,
            tracker_half_life: float) -> tuple[float, float]:
    """S ← ρ S + Σ R, n ← ρ n + |R|, ρ = clip(2^(−u/h), 0.875, 0.96): the mean S/n follows a policy that learns.

    In reward and completions; u = `updates` since the prompt's last visit, h = `tracker_half_life` in updates. The
    paper measures the policy's KL since that visit in place of u; for rewards of 0 and 1 S and n − S are its α and β.

    Source: Xu and Ding 2025, arXiv:2509.13232, eq. 4 and 5 (SPO).
    """
    keep = min(max(2 ** (-updates / tracker_half_life), 0.875), 0.96)
    return keep * total + sum(rewards), keep * count + len(rewards)
