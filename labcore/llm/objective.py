"""The loss that every online algorithm minimises, and the metrics of an update.

    L(θ) = agg_mask[ −w_t S(ρ_t(θ), Â_t) + β·KL_t − c_H·H_t ], times 1 − μ where a run also imitates demonstrations

With the single-step term of a teacher, KL(π‖π_T) of each token is added inside.

w_t is 1 unless a run masks tokens or weighs them. The entropy bonus is aggregated as all else is; TRL takes the mean
over tokens for it, whatever the aggregation. Which S, ρ, KL and agg is the business of the algorithm's row: nothing
here knows its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labcore.catalog import choices
from labcore.llm.rollout import Rollout, total_rewards
from labcore.maths import weights
from labcore.maths.call import call, cut_of, member
from labcore.maths.kl import k3
from labcore.maths.masked import masked_mean
from labcore.maths.surrogates import cpi, cut_fractions, kl_penalty


@dataclass(frozen=True)
class Totals:
    """Denominators of the whole optimizer step: a part of it divides by these, so that how it is cut is free.

    What is not kept counts in none of them, nor what could not be scored: TRL counts the latter.
    """

    total_rows: int
    total_tokens: int
    max_new_tokens: int
    entropy_floor: Tensor | None = None  # of the tokens that are learnt from, where a run leaves some out by that

    @staticmethod
    def of(rollout: Rollout, max_new_tokens: int) -> Totals:
        rows = len(rollout.ids) if rollout.kept is None else int(rollout.kept.sum())
        return Totals(max(rows, 1), int(rollout.counted.sum()), max_new_tokens)


def loss(knobs: Mapping[str, Any], rollout: Rollout, logprobs: Tensor, entropy: Tensor,
         totals: Totals, teacher_kl: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The loss of `rollout`'s share of the step, and the ratio (B, T) it was made with. `teacher_kl` (B, T) is the
    single-step term."""
    # 0 where nothing counts, as the old and reference ones are: e^(ref − 0) there would overflow once the policy
    # finds the padding unlikely enough, and an infinite term has a NaN gradient even when it is masked out.
    logprobs = logprobs.masked_fill(~rollout.completion_mask, 0)
    tensors = {"logprobs": logprobs, "old_logprobs": rollout.old_logprobs, "ref_logprobs": rollout.ref_logprobs,
               "completion_mask": rollout.completion_mask, "advantages": rollout.credited,
               "singled_out": rollout.singled, "counted": rollout.counted, "group_size": rollout.group_size}
    ratio = tensors["ratio"] = ratio_of(knobs, tensors)
    found = token_weights(knobs, rollout, tensors | {"entropy": entropy, "entropy_floor": totals.entropy_floor})
    token_losses = -call(member(choices.SURROGATE, knobs["surrogate"]), knobs, tensors | found)
    for weight in multiplied(knobs, found):
        token_losses = token_losses * weight
    if knobs["kl_placement"] == "loss":
        token_losses = token_losses + knobs["beta"] * kl_of(knobs, tensors)
    if teacher_kl is not None:
        token_losses = token_losses + teacher_kl.masked_fill(~rollout.taught, 0)
    token_losses = token_losses - knobs["entropy_coef"] * entropy
    aggregate = member(choices.AGGREGATION, knobs["aggregation"])
    total = call(aggregate, knobs, {"token_losses": token_losses, "completion_mask": rollout.counted, **vars(totals)})
    return total if rollout.demonstrations is None else (1 - knobs["sft_weight"]) * total, ratio


def ratio_of(knobs: Mapping[str, Any], tensors: Mapping[str, Any]) -> Tensor:
    """The ratio of the run's surrogate. (B, T)"""
    found: Tensor = call(member(choices.RATIO, choices.ratio_of(knobs).key), knobs, tensors)
    return found


def kl_of(knobs: Mapping[str, Any], tensors: Mapping[str, Any]) -> Tensor:
    """The KL estimate of each token; where it is weighed by a ratio, by the one that is chosen. (B, T) nats"""
    if choices.ratio_of(knobs).key != knobs["ratio"]:
        tensors = {**tensors, "ratio": call(member(choices.RATIO, knobs["ratio"]), knobs, tensors)}
    found: Tensor = call(member(choices.KL_ESTIMATOR, knobs["kl_estimator"]), knobs, tensors)
    return found


def token_weights(knobs: Mapping[str, Any], rollout: Rollout, tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights of each token in the policy's term of the loss, (B, T) each, by the names of their functions; empty
    if all switches are off."""
    given = {**tensors, "completion_mask": rollout.counted, "sampler_logprobs": rollout.sampler_logprobs}
    wanted: list[tuple[Callable[..., Tensor], bool]] = [
        (weights.high_entropy, tensors["entropy_floor"] is not None),
        (weights.near_policy, knobs["off_policy_threshold"] > 0),
        (weights.sampler_correction, bool(knobs["importance_cap"]) and rollout.sampler_logprobs is not None)]
    return {weigh.__name__: call(weigh, knobs, given) for weigh, on in wanted if on}


def multiplied(knobs: Mapping[str, Any], found: Mapping[str, Tensor]) -> list[Tensor]:
    """The weights by which the surrogate is multiplied, without the weights that it applies itself."""
    own = choices.SURROGATE[knobs["surrogate"]].absorbs
    return [weight for name, weight in found.items() if name not in own]


@torch.no_grad()
def measures(knobs: Mapping[str, Any], rollout: Rollout, logprobs: Tensor, ratio: Tensor, entropy: Tensor,
             entropy_floor: Tensor | None = None) -> dict[str, float]:
    """The metrics of an update's tokens: means over the counted tokens of `rollout`, if any."""
    mask, advantages = rollout.counted, rollout.credited
    if not mask.any():  # of a mini-batch whose groups were all left out: a mean over no token would count as 0
        return {}
    measured = {"entropy": masked_mean(entropy, mask)}
    tensors: dict[str, Any] = {
        "ratio": ratio, "advantages": advantages, "logprobs": logprobs, "old_logprobs": rollout.old_logprobs,
        "entropy": entropy, "completion_mask": mask, "singled_out": rollout.singled,
        "ref_logprobs": rollout.ref_logprobs, "counted": mask, "group_size": rollout.group_size}
    if found := token_weights(knobs, rollout, {**tensors, "entropy_floor": entropy_floor}):
        measured["token_weight"] = masked_mean(torch.stack([*found.values()]).prod(0), mask)
    if weights.sampler_correction.__name__ in found:
        outside = call(weights.outside_bounds, knobs, {**tensors, "sampler_logprobs": rollout.sampler_logprobs})
        measured["sampling/outside_frac"] = masked_mean(outside.float(), mask)
    if "mixture" in choices.ADVANTAGE[knobs["advantage"]].rollouts and rollout.rival_rewards is not None:
        won = (total_rewards(knobs, rollout) - rollout.rival_rewards)[mask.any(1)].sigmoid().nanmean()
        measured |= {} if won.isnan() else {"win_rate": won}
    surrogate = choices.SURROGATE[knobs["surrogate"]]
    if surrogate.needs_ratio:
        kl_from_old = k3(rollout.old_logprobs, logprobs)
        measured |= {
            **{f"clip_frac/{side}": share for side, share in _cut_shares_of_level(knobs, tensors, mask).items()},
            "surrogate/cpi": masked_mean(cpi(ratio, advantages), mask),
            f"surrogate/{surrogate.key}": masked_mean(
                call(member(choices.SURROGATE, surrogate.key), knobs, tensors | found), mask),
            "surrogate/kl_penalised": masked_mean(kl_penalty(ratio, advantages, kl_from_old, knobs["beta"]), mask),
            "ratio/max": ratio.masked_fill(~mask, 0).max(),
        }
    return {key: float(value) for key, value in measured.items()}


def cut_shares(knobs: Mapping[str, Any], tensors: Mapping[str, Tensor], mask: Tensor) -> dict[str, Tensor]:
    """The share of counted tokens that the surrogate cuts off, by side and in all; empty where it cuts none."""
    sides = cut(knobs, tensors)
    return cut_fractions(sides, mask) if sides else {}


def _cut_shares_of_level(knobs: Mapping[str, Any], tensors: Mapping[str, Tensor],
                         mask: Tensor) -> dict[str, Tensor]:
    """The shares of cut tokens; of cut completions if the ratio is one of whole completions."""
    if choices.ratio_of(knobs).level == "token":
        return cut_shares(knobs, tensors, mask)
    # All tokens of a completion have its ratio and, where they count, its advantage.
    first = {name: tensors[name].gather(1, mask.int().argmax(1, keepdim=True))
             for name in ("ratio", "advantages", "old_logprobs", "singled_out")}
    return cut_shares(knobs, first, mask.any(1, keepdim=True))


def cut(knobs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tokens that the run's surrogate cuts off, by side: {"low", "high"} of bool (B, T); empty where it cuts none.

    `tensors` are the ratio and the advantages, (B, T).
    """
    function = cut_of(choices.SURROGATE, knobs["surrogate"])
    return call(function, knobs, tensors) if function else {}
