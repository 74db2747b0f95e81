"""Numbers that several loops log of sampled completions."""

from __future__ import annotations

from torch import Tensor

from labcore.llm.batch import Completions
from labcore.llm.rewards import Rewards
from labcore.maths import kl
from labcore.maths.masked import extremes, masked_mean


def score_metrics(rewards: Rewards, completions: Completions) -> dict[str, float]:
    """Reward, share that is right and lengths of completions; what could not be scored is left out of the rewards."""
    scored = rewards.total[~rewards.total.isnan()].float()
    metrics = {} if not len(scored) else {
        "reward": float(scored.mean()), "reward_std": float(scored.std(correction=min(1, len(scored) - 1)))}
    return {**metrics,
            "exact_match": int(rewards.exact.sum()) / len(rewards.exact),
            "completions/mean_length": float(completions.lengths.float().mean()),
            "completions/truncated_frac": float(completions.truncated.float().mean())}


def kl_metrics(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> dict[str, float]:
    """The three estimates of KL(policy ‖ reference) from the policy's own samples, nats/token."""
    mean = {f"kl/{estimate.__name__}": float(masked_mean(estimate(logprobs, ref_logprobs), mask))
            for estimate in (kl.k1, kl.k2, kl.k3)}
    return {"kl": mean["kl/k3"], **mean}


def zero_variance(rewards: Tensor) -> float:
    """The share of groups whose scored rewards are all equal. (P, G) -> share"""
    return float(_flat(rewards).float().mean())


def signal_first(rewards: Tensor) -> list[int]:
    """The groups whose scored rewards differ, then the others, both in their order. (P, G) -> P places"""
    flat = _flat(rewards).tolist()
    return sorted(range(len(flat)), key=flat.__getitem__)


def _flat(rewards: Tensor) -> Tensor:
    """Whether all scored rewards of a group are equal. (P, G) -> (P,)"""
    lowest, highest = extremes(rewards, 1)
    return (highest <= lowest)[:, 0]
