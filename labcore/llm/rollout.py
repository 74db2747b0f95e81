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
from labcore.maths.turns import extents, lasts

Rows = Tensor | slice  # some of them
OF_PROMPTS = ("prompts", "demonstrations", "demonstration_mask")  # fields of a rollout with one row for each prompt


@dataclass(frozen=True)
class Rollout:
    """P prompts with G completions each; B = P·G rows, group by group.

    `old_logprobs` are the sampler's, at its temperature (or the trainer's own at that point); all log-probs are in nats
    and 0 where the mask does not count.
    `kept` are the rows that the updates learn from: the others stay, so that groups are whole, but count in no loss and
    no total. `credit` fills in `advantages`, and with a critic `returns`.
    """

    prompts: Prompts
    ids: Tensor  # (B, T)
    completion_mask: Tensor  # (B, T)
    truncated: Tensor  # (B,)
    shaped: Tensor  # (B,) rewards after shaping
    old_logprobs: Tensor  # (B, T)
    ref_logprobs: Tensor  # (B, T)
    old_values: Tensor | None = None  # (B, T)
    kept: Tensor | None = None  # (B,) bool; None: all
    token_rewards: Tensor | None = None  # (B, T) on top of `rewards`
    step_ends: Tensor | None = None  # (B, T) bool, where a step ends; None: steps are not scored
    turn_rewards: Tensor | None = None  # (B, T) parts of `rewards` that single turns earned, at their last tokens
    rival_rewards: Tensor | None = None  # (B,) of the completion that each is compared with, from another rollout
    past_rewards: Tensor | None = None  # (B,) the mean of all earlier steps, the same in each row
    reward_parts: Tensor | None = None  # (B, K) rewards that the total is a weighted sum of
    part_weights: Tensor | None = None  # (B, K) their weights, the same in each row
    sampler_logprobs: Tensor | None = None  # (B, T) where `old_logprobs` are not the sampler's but the trainer's
    teacher_logprobs: Tensor | None = None  # (B, T) a teacher's
    teacher_likeliest: Tensor | None = None  # (B, T) the token that the teacher finds likeliest
    teacher_prompts: Prompts | None = None  # B of them: the teacher's, where it has a context beside the prompt
    in_context: Tensor | None = None  # (B,) bool: whether the teacher has one; None: it sees the prompt alone
    prompt_values: Tensor | None = None  # (B,) a number of each prompt that the run keeps, once for each row
    square_sums: Tensor | None = None  # (B, T) the sum of squared probabilities before each token
    demonstrations: Tensor | None = None  # (P, D) the tokens of each prompt's right answer
    demonstration_mask: Tensor | None = None  # (P, D) bool
    singled_out: Tensor | None = None  # (B, T) bool: the tokens that the surrogate finds in a whole update
    advantages: Tensor | None = None  # (B, T)
    returns: Tensor | None = None  # (B, T)
    age: Tensor | None = None  # (B,) updates between sampling and this step, where there may be some
    apart: Tensor | None = None  # (B,) bool: `old_logprobs` are of other weights than the policy's; None: nowhere
    at_reference: bool = False  # the policy that sampled is the reference: its log-probs are the old ones

    def met_by_sampler(self, logprobs: Tensor) -> Rollout:
        """A copy whose old log-probs are `logprobs` (B, T), from a new pass with the sampler's weights. Ratios are then
        exactly 1; two passes of one network would differ in their last digits. Rows that are `apart` keep their old
        log-probs."""
        old = logprobs.detach().masked_fill(~self.completion_mask, 0)
        old = old if self.apart is None else torch.where(self.apart[:, None], self.old_logprobs, old)
        return replace(self, old_logprobs=old, ref_logprobs=old if self.at_reference else self.ref_logprobs)

    @property
    def credited(self) -> Tensor:
        """The advantages, where `credit` has filled them in. (B, T)"""
        assert self.advantages is not None, "`credit` comes first"
        return self.advantages

    @property
    def singled(self) -> Tensor:
        """The tokens that the surrogate treats in another way; none unless an update has found some. (B, T) bool"""
        return torch.zeros_like(self.completion_mask) if self.singled_out is None else self.singled_out

    @property
    def of_critic(self) -> tuple[Tensor, Tensor]:
        """The critic's values, and the returns that it should learn, where there is one. (B, T) each"""
        assert self.old_values is not None and self.returns is not None, "a critic's values and `credit` come first"
        return self.old_values, self.returns

    @property
    def group_size(self) -> int:
        return len(self.ids) // len(self.prompts)

    @property
    def counted(self) -> Tensor:
        """The tokens that the updates train on: the tokens of completions that a selection keeps. (B, T)"""
        return self.completion_mask if self.kept is None else self.completion_mask & self.kept[:, None]

    @property
    def taught(self) -> Tensor:
        """The counted tokens that a teacher grades: all, unless it waits for a context. (B, T)"""
        return self.counted if self.in_context is None else self.counted & self.in_context[:, None]

    def select(self, prompts: Tensor) -> Rollout:
        """The rollout of some of its prompts, whole groups. prompts: (N,) indices."""
        members = torch.arange(self.group_size, device=prompts.device)
        return self._part(prompts, (prompts[:, None] * self.group_size + members).flatten())

    def slice(self, prompts: slice, rows: slice) -> Rollout:
        """The rollout of a run of its prompts; `rows` must be the rows of exactly these."""
        return self._part(prompts, rows)

    def _part(self, prompts: Rows, rows: Rows) -> Rollout:
        cut = {}
        for field in fields(self):
            value = getattr(self, field.name)
            whole = value is None or isinstance(value, bool)
            cut[field.name] = value if whole else value[prompts if field.name in OF_PROMPTS else rows]
        return Rollout(**cut)


def credit(knobs: Mapping[str, Any], rollout: Rollout) -> Rollout:
    """`rollout` with its advantages (B, T), and with a critic the returns (B, T) that the critic should learn.

    A KL placed in the reward is subtracted before anything else: per token for advantages made from token rewards,
    summed over the completion for those made from one reward a completion. Cheap enough to be done anew at every
    update, so that a change of β, γ or λ counts at once.
    """
    counted = rollout.taught if choices.ADVANTAGE[knobs["advantage"]].teacher else rollout.counted
    advantage = member(choices.ADVANTAGE, knobs["advantage"])
    if choices.ADVANTAGE[knobs["advantage"]].level == "sequence":
        return replace(rollout, advantages=_of_sequences(knobs, rollout, _token_rewards(knobs, rollout)) * counted)
    token_rewards = rewards_of_tokens(knobs, rollout)
    advantages = call(advantage, knobs, {"token_rewards": token_rewards, "values": rollout.old_values,
                                         "completion_mask": counted, "old_logprobs": rollout.old_logprobs,
                                         "teacher_logprobs": rollout.teacher_logprobs,
                                         "step_ends": ends_of_steps(rollout), "square_sums": rollout.square_sums,
                                         "scored_tokens": rollout.completion_mask & ~rollout.shaped.isnan()[:, None],
                                         "group_size": rollout.group_size})
    returns = None if rollout.old_values is None else (advantages + rollout.old_values) * counted
    if knobs.get("whiten_advantages"):
        advantages = masked_whiten(advantages, counted)
    return replace(rollout, advantages=advantages * counted, returns=returns)


def rewards_of_tokens(knobs: Mapping[str, Any], rollout: Rollout) -> Tensor:
    """The reward of each token: the completion's reward at its last one, that of a turn at the last one of the turn.
    Advantages of tokens and of turns are made from it. (B, T)"""
    mask = rollout.completion_mask
    last, whole = (extents(mask)[:, None] - 1).clamp(min=0), rollout.shaped.nan_to_num()[:, None]
    token_rewards = _token_rewards(knobs, rollout)
    if rollout.turn_rewards is not None:  # at the last token comes what no turn has earned, such as a penalty
        token_rewards, whole = token_rewards + rollout.turn_rewards, whole - rollout.turn_rewards.sum(1, keepdim=True)
    token_rewards = token_rewards.scatter_add(1, last, whole)
    return (masked_whiten(token_rewards, rollout.counted, shift_mean=False) if knobs.get("whiten_rewards")
            else token_rewards)


def ends_of_steps(rollout: Rollout) -> Tensor:
    """True at the last token of each step and of each completion. The steps of an episode are its turns. If steps are
    not scored but tokens have rewards, each token is a step. (B, T)"""
    mask = rollout.completion_mask
    if rollout.turn_rewards is not None and rollout.step_ends is None:
        return lasts(mask)
    last = mask & (torch.arange(mask.shape[1], device=mask.device) == extents(mask)[:, None] - 1)
    if rollout.step_ends is not None:
        return last | (rollout.step_ends & mask)
    return last if rollout.token_rewards is None else mask


def total_rewards(knobs: Mapping[str, Any], rollout: Rollout) -> Tensor:
    """The total reward of each completion: shaped, with the rewards of its tokens, less a KL in the reward. (B,)"""
    return rollout.shaped + _token_rewards(knobs, rollout).sum(1)


def _token_rewards(knobs: Mapping[str, Any], rollout: Rollout) -> Tensor:
    """The rewards of single tokens, less a KL in the reward. (B, T)"""
    penalty = -_kl_penalty(knobs, rollout)
    return penalty if rollout.token_rewards is None else penalty + rollout.token_rewards * rollout.completion_mask


def _of_sequences(knobs: Mapping[str, Any], rollout: Rollout, token_rewards: Tensor) -> Tensor:
    """One advantage for each completion, normalised as the run says: (B, 1), or (B, T) where tokens weigh in that."""
    size, totals = rollout.group_size, rollout.shaped + token_rewards.sum(1)

    def first(rows: Tensor | None) -> Tensor | None:
        return None if rows is None else rows.view(-1, size)[:, :1]
    rivals = None if rollout.rival_rewards is None else rollout.rival_rewards.view(-1, size)
    parts = rollout.reward_parts if rollout.reward_parts is not None else totals[:, None]
    weights = rollout.part_weights if rollout.part_weights is not None else torch.ones_like(parts)
    advantages = call(member(choices.ADVANTAGE, knobs["advantage"]), knobs, {
        "rewards": totals.view(-1, size), "greedy_rewards": first(rollout.rival_rewards), "opponent_rewards": rivals,
        "lengths": rollout.completion_mask.sum(1).view(-1, size), "past_rewards": first(rollout.past_rewards),
        "prompt_values": first(rollout.prompt_values),
        "reward_parts": parts.T.reshape(-1, len(parts) // size, size), "part_weights": weights[0]}).reshape(-1, 1)
    compared = _compared(knobs, rollout, totals)
    normalised: Tensor = call(member(choices.NORMALISATION, knobs.get("normalisation", "none")), knobs, {
        "advantages": advantages, "scored": rollout.counted.any(1, keepdim=True) & compared,
        "completion_mask": rollout.counted & compared})
    return normalised


def _compared(knobs: Mapping[str, Any], rollout: Rollout, totals: Tensor) -> Tensor:
    """A mask of the completions that have a baseline: they and the completions that the advantage compares them with
    are scored. (B, 1)

    One that is the only scored of its group has none: its advantage is 0, and enters no mean and no spread. As in
    TRL's RLOO.
    """
    choice, scored = choices.ADVANTAGE[knobs["advantage"]], ~totals.isnan()
    if choice.group:
        others = scored.view(-1, rollout.group_size).sum(1) - 1
        scored = scored & (others > 0).repeat_interleave(rollout.group_size)
    if choice.rollouts and rollout.rival_rewards is not None:
        scored = scored & ~rollout.rival_rewards.isnan()
    if choice.of_prompt and rollout.prompt_values is not None:
        scored = scored & ~rollout.prompt_values.isnan()
    return scored[:, None]


def _kl_penalty(knobs: Mapping[str, Any], rollout: Rollout) -> Tensor:
    """β × KL of each token, (B, T); zero unless the KL is placed in the reward."""
    if knobs["kl_placement"] != "reward":
        return torch.zeros_like(rollout.old_logprobs)
    estimate = call(member(choices.KL_ESTIMATOR, knobs["kl_estimator"]), knobs, {
        "logprobs": rollout.old_logprobs, "ref_logprobs": rollout.ref_logprobs,
        "ratio": torch.ones_like(rollout.old_logprobs)})
    penalty: Tensor = knobs["beta"] * estimate * rollout.completion_mask
    return penalty
