"""Advantages whitened over the batch: in verl and OpenRLHF an estimator does it, with a baseline of its own."""

from __future__ import annotations

from typing import Any

from labcore.exports.handover.plan import Line, Plan, choice

# Compared with one number for the whole batch.
OF_BATCH = ("batch_mean", "moving_average", "greedy_baseline", "reward_to_go_whitened")
# Whitening leaves the same of advantages that differ by one number, or one factor, for the whole batch.
_SAME = {"batch": ("batch_mean", "moving_average", "reward_to_go_whitened"),
         "group": ("group_mean", "leave_one_out", "batch_standardised")}


def whitens(plan: Plan) -> bool:
    """Whether the run whitens advantages that are compared first."""
    return bool(plan.get("normalisation", "none") != "none")


def normalisation(plan: Plan, value: Any, option: str, estimator: str | None) -> Line:
    """What becomes of the knob `normalisation`: the `estimator` that whitens."""
    by = {option: estimator}
    return choice({"none": ({}, ""), "tokens": (by, ""), "sequences": (by, "whitened over tokens, so long completions "
                                                                      "weigh more")}, f"see {option}")(plan, value)


def advantage(value: Any, of: str, tool: str) -> Line:
    """What becomes of the advantage where the estimator subtracts the mean of each `of`: "batch" or "group"."""
    exact = value in _SAME[of]
    return Line("", value, {}, built_in=exact, note="" if exact else
                f"{tool}'s estimator for normalisation subtracts the {of}'s mean instead")
