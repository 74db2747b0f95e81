"""What there is to look at in one batch under many algorithms, as JSON: a few groups token by token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labcore.catalog.algorithm import Algorithm
from labcore.llm.batch import Completions
from labcore.llm.experience import Batch, Sampled
from labcore.llm.generation import token_logprobs
from labcore.llm.measures import signal_first, zero_variance
from labcore.llm.rollout import Rollout
from labcore.llm.session import LlmSession
from labcore.llm.token_texts import token_texts
from labcore.maths.masked import masked_mean
from labcore.spec.run_spec import RunSpec

SHOWN = 4  # prompts whose completions are shown token by token
KNOBS = ("beta", "clip_low", "clip_high", "learning_rate", "gamma", "gae_lambda")


@dataclass(frozen=True)
class Inspected:
    """The frozen batch as one algorithm sees it: the credited rollout, what its update measures, and its gradients.

    `gradient` (N,) of the policy before any clipping of its norm; `unclipped`, the cosine to the gradient without the
    surrogate's clip (None where it has none); `push` (B, T) = −∂L/∂log π of each token, 0 where nothing counts.
    """

    row: Algorithm
    spec: RunSpec
    rollout: Rollout
    measured: dict[str, float]
    gradient: Tensor
    unclipped: float | None
    push: Tensor


def as_json(session: LlmSession, batch: Batch, seen: list[Inspected]) -> dict[str, Any]:
    """`batch` in numbers, its `completions` (those of a few prompts), and what the `algorithms` do to each token."""
    rows = _shown(batch)
    rewards = batch.batch.rewards.total.float().view(-1, batch.rollout.group_size)
    return {"batch": {"prompts": len(batch.batch.problems), "group_size": batch.rollout.group_size,
                      "tokens": int(batch.rollout.completion_mask.sum()), "reward": float(rewards.mean()),
                      "flat_groups": zero_variance(rewards), "spread": float(rewards.std())},
            "completions": [_completion(session, batch.batch, batch.rollout, row) for row in rows],
            "algorithms": [_algorithm(one, rows) for one in seen]}


def _shown(batch: Batch) -> list[int]:
    """Rows of the prompts to show, groups with both better and worse completions first."""
    size = batch.rollout.group_size
    order = signal_first(batch.batch.rewards.total.view(-1, size))
    return [prompt * size + member for prompt in order[:SHOWN] for member in range(size)]


@torch.no_grad()
def _completion(session: LlmSession, batch: Sampled, rollout: Rollout, row: int) -> dict[str, Any]:
    length = int(batch.completions.lengths[row])
    part = rollout.select(torch.tensor([row // rollout.group_size], device=session.device))
    completions = Completions(part.ids, part.completion_mask, part.truncated)
    now = token_logprobs(session, session.policy, part.prompts, completions)[row % rollout.group_size]
    ratio = (now - rollout.old_logprobs[row])[:length].exp()
    problem, rewards = batch.problems[row // rollout.group_size], batch.rewards
    return {"prompt": problem.prompt, "text": batch.texts[row], "reward": _number(rewards.total[row]),
            "exact": bool(rewards.exact[row]),
            "truncated": bool(batch.completions.truncated[row]), "ratio": [round(value, 4) for value in ratio.tolist()],
            "tokens": token_texts(session.tokenizer, batch.completions.ids[row, :length].tolist())}


def _algorithm(seen: Inspected, rows: list[int]) -> dict[str, Any]:
    """`push` of each shown completion's tokens in units of `mean_push`, the mean of |push| over the batch's tokens."""
    mask = seen.rollout.completion_mask
    mean = float(masked_mean(seen.push.abs(), mask))
    lengths = mask.sum(1).tolist()
    push = [[round(value / mean, 4) if mean else 0.0 for value in seen.push[row, :lengths[row]].tolist()]
            for row in rows]
    return {"key": seen.row.key, "label": seen.row.label, "loss": seen.measured["loss"],
            "norm": float(seen.gradient.norm()), "unclipped": seen.unclipped,
            "clipped_frac": seen.measured.get("clip_frac/region"), "mean_push": mean, "push": push,
            "knobs": {key: seen.spec.knobs[key] for key in KNOBS if key in seen.spec.knobs}}


def _number(reward: Tensor) -> float | None:
    """A reward as a number; None where the completion could not be scored."""
    return None if reward.isnan() else float(reward)
