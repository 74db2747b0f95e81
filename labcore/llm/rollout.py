"""One batch of experience: prompts, their completions, rewards and advantages, ready for the updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from labcore.catalog import choices
from labcore.llm.batch import Prompts
from labcore.maths.call import call, member
from labcore.maths.masked import masked_whiten


@dataclass(frozen=True)
class Rollout:
    """P prompts with G completions each; B = P·G rows, group by group.

    `old_logprobs` are the sampler's, at its temperature; all log-probs are in nats and 0 where the mask
    does not count. `credit` fills in `advantages`, and with a critic `returns`.
    """

    prompts: Prompts
    ids: Tensor  # (B, T)
    completion_mask: Tensor  # (B, T)
    truncated: Tensor  # (B,)
    rewards: Tensor  # (B,)
    old_logprobs: Tensor  # (B, T)
    ref_logprobs: Tensor  # (B, T)
    old_values: Tensor | None = None  # (B, T)
    advantages: Tensor | None = None  # (B, T)
    returns: Tensor | None = None  # (B, T)

    @property
    def group_size(self) -> int:
        return len(self.ids) // len(self.prompts)

    def select(self, prompts: Tensor) -> Rollout:
        """The rollout of some of its prompts, whole groups. prompts: (N,) indices."""
        members = torch.arange(self.group_size, device=prompts.device)
        rows = (prompts[:, None] * self.group_size + members).flatten()
        return self._part(prompts, rows)

    def slice(self, prompts: slice, rows: slice) -> Rollout:
        """The rollout of a run of its prompts; `rows` must be the rows of exactly these."""
        return self._part(prompts, rows)

    def _part(self, prompts: Tensor | slice, rows: Tensor | slice) -> Rollout:
        cut = {}
        for field in fields(self):
            value = getattr(self, field.name)
            cut[field.name] = None if value is None else value[prompts if field.name == "prompts" else rows]
        return Rollout(**cut)


def credit(knobs: Mapping[str, Any], rollout: Rollout) -> Rollout:
    """`rollout` with its advantages (B, T), and with a critic the returns (B, T) that the critic should learn.

    Where the KL is paid in the reward it is subtracted before anything else: per token for advantages made from
    token rewards, summed over the completion for those made from one reward a completion. Cheap enough to be done
    anew at every update, so that a change of β, γ or λ counts at once.
    """
    mask = rollout.completion_mask
    penalty = _kl_penalty(knobs, rollout)
    chosen = choices.ADVANTAGE[knobs["advantage"]]
    advantage = member(choices.ADVANTAGE, knobs["advantage"])
    if chosen.level == "sequence":
        paid = (rollout.rewards - penalty.sum(1)).view(-1, rollout.group_size)
        advantages = call(advantage, {**knobs, "rewards": paid}).reshape(-1, 1)
        return replace(rollout, advantages=advantages * mask)
    last = mask.sum(1, keepdim=True) - 1
    token_rewards = (-penalty).scatter_add(1, last, rollout.rewards[:, None])
    advantages = call(advantage, {**knobs, "token_rewards": token_rewards, "values": rollout.old_values,
                                  "completion_mask": mask})
    returns = None if rollout.old_values is None else (advantages + rollout.old_values) * mask
    if knobs.get("whiten_advantages"):
        advantages = masked_whiten(advantages, mask)
    return replace(rollout, advantages=advantages * mask, returns=returns)


def _kl_penalty(knobs: Mapping[str, Any], rollout: Rollout) -> Tensor:
    """What each token pays for leaving the reference, (B, T); zero unless the KL is placed in the reward."""
    if knobs["kl_placement"] != "reward":
        return torch.zeros_like(rollout.old_logprobs)
    estimate = call(member(choices.KL_ESTIMATOR, knobs["kl_estimator"]), {
        "logprobs": rollout.old_logprobs, "ref_logprobs": rollout.ref_logprobs,
        "ratio": torch.ones_like(rollout.old_logprobs)})
    return knobs["beta"] * estimate * rollout.completion_mask
