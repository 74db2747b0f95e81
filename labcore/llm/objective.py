"""The one line that every online algorithm minimises, and what is measured on the way.

    L(θ) = agg_mask[ −S(ρ_t(θ), Â_t) + β·KL_t − c_H·H_t ]

Which S, ρ, KL and agg is the business of the algorithm's row: nothing here knows its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labcore.catalog import choices
from labcore.llm.rollout import Rollout
from labcore.maths.call import call, member
from labcore.maths.kl import k3
from labcore.maths.masked import masked_mean
from labcore.maths.surrogates import clip, clip_fractions, cpi, kl_penalised


@dataclass(frozen=True)
class Totals:
    """Denominators of the whole optimizer step: a part of it divides by these, so that how it is cut is free."""

    total_rows: int
    total_tokens: int
    max_new_tokens: int

    @staticmethod
    def of(rollout: Rollout, max_new_tokens: int) -> Totals:
        return Totals(len(rollout.ids), int(rollout.completion_mask.sum()), max_new_tokens)


def loss(knobs: Mapping[str, Any], rollout: Rollout, logprobs: Tensor, entropy: Tensor,
         totals: Totals) -> tuple[Tensor, Tensor]:
    """The loss of `rollout`'s share of the step, and the ratio (B, T) it was made with."""
    # 0 where nothing counts, as the old and reference ones are: e^(ref − 0) there would overflow once the policy
    # finds the padding unlikely enough, and an infinite term has a NaN gradient even when it is masked out.
    logprobs = logprobs.masked_fill(~rollout.completion_mask, 0)
    quantities: dict[str, Any] = {
        **knobs, "logprobs": logprobs, "old_logprobs": rollout.old_logprobs, "ref_logprobs": rollout.ref_logprobs,
        "completion_mask": rollout.completion_mask, "advantages": rollout.advantages}
    ratio = quantities["ratio"] = call(member(choices.RATIO, knobs["ratio"]), quantities)
    surrogate = call(member(choices.SURROGATE, knobs["surrogate"]), quantities)
    token_losses = -surrogate
    if knobs["kl_placement"] == "loss":
        token_losses = token_losses + knobs["beta"] * call(member(choices.KL_ESTIMATOR, knobs["kl_estimator"]),
                                                           quantities)
    token_losses = token_losses - knobs["entropy_coef"] * entropy
    aggregate = member(choices.AGGREGATION, knobs["aggregation"])
    return call(aggregate, {"token_losses": token_losses, "completion_mask": rollout.completion_mask,
                            **vars(totals)}), ratio


@torch.no_grad()
def measures(knobs: Mapping[str, Any], rollout: Rollout, logprobs: Tensor, ratio: Tensor,
             entropy: Tensor) -> dict[str, float]:
    """What an update logs about its tokens: means over the counted tokens of `rollout`."""
    mask, advantages = rollout.completion_mask, rollout.advantages
    measured = {"entropy": masked_mean(entropy, mask)}
    if "clip_low" in knobs:
        bounds = knobs["clip_low"], knobs["clip_high"]
        kl_from_old = k3(rollout.old_logprobs, logprobs)
        measured |= {
            **{f"clip_frac/{side}": share for side, share in clip_fractions(ratio, advantages, mask, *bounds).items()},
            "surrogate/cpi": masked_mean(cpi(ratio, advantages), mask),
            "surrogate/clip": masked_mean(clip(ratio, advantages, *bounds), mask),
            "surrogate/kl_penalised": masked_mean(kl_penalised(ratio, advantages, kl_from_old, knobs["beta"]), mask),
            "ratio/max": ratio.masked_fill(~mask, 0).max(),
        }
    return {key: float(value) for key, value in measured.items()}
