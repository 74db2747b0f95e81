"""What moves a coefficient by itself during a run."""

from __future__ import annotations


def adaptive_kl(factor: float, kl: float, adaptive_kl_target: float, adaptive_kl_horizon: float,
                completions: int) -> float:
    """f ← f (1 + clip(KL/target − 1, −0.2, 0.2) · min(n/horizon, 1)): what β is multiplied with from the next step on.

    `kl` and its target in nats per token; `completions` n of the step, the horizon in completions.

    Source: Ziegler et al. 2019, arXiv:1909.08593, section 2.2, which has a constant 0.1 where n/horizon is that of the
    paper's code, TRL and verl.
    """
    error = min(max(kl / adaptive_kl_target - 1, -0.2), 0.2)
    # A step of more completions than the horizon moves as far as one of the horizon: β must not change its sign.
    return factor * (1 + error * min(completions / adaptive_kl_horizon, 1.0))
