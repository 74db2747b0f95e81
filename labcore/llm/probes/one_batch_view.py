"""What there is to look at in one batch under many algorithms, as JSON: a few groups token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from labcore.llm.loops import online
from labcore.llm.session import Session
from labcore.maths.masked import masked_mean

if TYPE_CHECKING:
    from labcore.llm.probes.one_batch import Seen

SHOWN = 4  # prompts whose completions are told token by token
KNOBS = ("beta", "clip_low", "clip_high", "learning_rate", "gamma", "gae_lambda")


def told(session: Session, batch: online.Batch, seen: list[Seen]) -> dict[str, Any]:
    """`batch` in numbers, its `completions` (those of a few prompts), and the `algorithms` with their push on each."""
    rows = _shown(batch)
    rewards = batch.rollout.rewards.view(-1, batch.rollout.group_size)
    flat = float((rewards.amax(1) == rewards.amin(1)).float().mean())
    return {"batch": {"prompts": len(batch.problems), "group_size": batch.rollout.group_size,
                      "tokens": int(batch.rollout.completion_mask.sum()), "reward": float(rewards.mean()),
                      "flat_groups": flat, "spread": float(rewards.std())},
            "completions": [_completion(session, batch, row) for row in rows],
            "algorithms": [_algorithm(one, rows) for one in seen]}


def _shown(batch: online.Batch) -> list[int]:
    """Rows of the prompts to show, groups with both better and worse completions first."""
    size = batch.rollout.group_size
    rewards = batch.rollout.rewards.view(-1, size)
    order = sorted(range(len(rewards)), key=lambda prompt: bool(rewards[prompt].amax() == rewards[prompt].amin()))
    return [prompt * size + member for prompt in order[:SHOWN] for member in range(size)]


@torch.no_grad()
def _completion(session: Session, batch: online.Batch, row: int) -> dict[str, Any]:
    rollout, length = batch.rollout, int(batch.completions.lengths[row])
    part = rollout.select(torch.tensor([row // rollout.group_size], device=session.device))
    completions = online.Completions(part.ids, part.completion_mask, part.truncated)
    now = online.score_tokens(session, session.policy, part.prompts, completions)[row % rollout.group_size]
    ratio = (now - rollout.old_logprobs[row])[:length].exp()
    problem, score = batch.problems[row // rollout.group_size], batch.scores[row]
    return {"prompt": problem.prompt, "text": batch.texts[row], "reward": score.reward, "exact": score.exact,
            "truncated": bool(batch.completions.truncated[row]), "ratio": [round(value, 4) for value in ratio.tolist()],
            "tokens": [session.tokenizer.decode([token]) for token in batch.completions.ids[row, :length].tolist()]}


def _algorithm(seen: Seen, rows: list[int]) -> dict[str, Any]:
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
