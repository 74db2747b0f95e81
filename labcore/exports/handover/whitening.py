"""Advantages whitened over the batch: in verl and OpenRLHF an estimator does it, with a baseline of its own."""

from __future__ import annotations

from typing import Any

from labcore.catalog import choices
from labcore.exports.handover.plan import Line, Plan, choices_of


def whitens(plan: Plan) -> bool:
    """Whether the run whitens advantages that are compared first."""
    return bool(plan.get("normalisation", "none") != "none")


def against(plan: Plan) -> str:
    """Of what the run's baseline is: "batch" or "group"; empty where it is neither's."""
    return choices.ADVANTAGE[str(plan["advantage"])].against


def normalisation(plan: Plan, value: Any, option: str, estimator: str | None) -> Line:
    """What becomes of the knob `normalisation`: the `estimator` that whitens."""
    line = choices_of(choices.NORMALISATION, "verl", f"see {option}")(plan, value)
    return Line("", value, {option: estimator}, note=line.note) if whitens(plan) else line


def advantage(value: Any, of: str, tool: str) -> Line:
    """What becomes of the advantage where the estimator subtracts the mean of each `of`: "batch" or "group"."""
    chosen = choices.ADVANTAGE[str(value)]
    exact = chosen.exact and chosen.against == of
    return Line("", value, {}, built_in=exact, note="" if exact else
                f"{tool}'s estimator for normalisation subtracts the {of}'s mean instead")
