"""Why an online row's gradient is not ∇J on average, read off its choices, in sentences.

Each reason says whether it changes only the length of the mean gradient ("scale"), which another learning rate
compensates, or also its direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labcore.catalog import choices
from labcore.catalog.choice import Ratio
from labcore.catalog.conditions import off_policy, updates

Knobs = Mapping[str, Any]


def reasons(knobs: Knobs, exact_critic: bool = False) -> list[str]:
    """The causes of bias of a row's mean gradient with these knobs, compared with ∇(J − β KL); empty if it is unbiased.
    """
    advantage, ratio = choices.ADVANTAGE[str(knobs["advantage"])], choices.RATIO[str(knobs["ratio"])]
    found = [advantage.bias_of(knobs), choices.SURROGATE[str(knobs["surrogate"])].bias,
             choices.SELECTION[str(knobs["selection"])].bias]
    if advantage.critic:
        found += _of_critic(knobs, exact_critic)
    elif "gamma" in advantage.needs and float(knobs["gamma"]) < 1:
        found.append("Direction: γ < 1 discounts the final reward for early tokens.")
    found += _of_teacher(knobs) if advantage.teacher else []
    if knobs.get("normalisation", "none") != "none":
        found.append("Direction: advantages are whitened over the batch that they come from.")
    if float(knobs.get("sft_weight", 0)):
        found.append("Direction: demonstrations are imitated, whatever reward they get.")
    found += [_aggregated(knobs, ratio), *_of_kl(knobs, ratio), *_of_ratio(knobs), *_of_sampling(knobs)]
    return [reason for reason in found if reason]


def _of_critic(knobs: Knobs, exact: bool) -> list[str]:
    found = []
    if float(knobs["gae_lambda"]) < 1 and not exact:
        found.append("Direction: λ < 1 bootstraps from a biased critic.")
    if float(knobs["gamma"]) < 1:
        found.append("Direction: γ < 1 discounts the final reward for early tokens.")
    if knobs["whiten_advantages"]:
        found.append("Direction: advantages are whitened over the batch that they come from.")
    if knobs["whiten_rewards"]:
        found.append("Direction: rewards are whitened over the batch that they come from.")
    return found


def _of_teacher(knobs: Knobs) -> list[str]:
    found = ["Scale: the teacher is π*, so the gradient is that of −KL(π‖π*), which is 1/β times as long."]
    if float(knobs["teacher_discount"]) < 1:
        found.append("Direction: with a discount below 1 a token's advantage does not include the log-ratios of all "
                     "later tokens in full. At 0 the gradient is that of each token's KL with its prefix held fixed.")
    if knobs["whiten_advantages"]:
        found.append("Direction: advantages are whitened over the batch that they come from.")
    return found


def _aggregated(knobs: Knobs, ratio: Ratio) -> str:
    """The bias that the aggregation causes. The ratio of a whole sequence has its whole gradient at every token."""
    aggregation = choices.AGGREGATION[str(knobs["aggregation"])]
    surrogate = choices.SURROGATE[str(knobs["surrogate"])]
    by_product = surrogate.summed or (ratio.product and surrogate.needs_ratio and not surrogate.weighs)
    return aggregation.of_product if by_product else aggregation.bias


def _of_kl(knobs: Knobs, ratio: Ratio) -> list[str]:
    if not float(knobs["beta"]) or knobs["kl_placement"] == "off":
        return []
    estimator = choices.KL_ESTIMATOR[str(knobs["kl_estimator"])]
    if knobs["kl_placement"] == "reward":
        return [] if estimator.in_reward else [f"Direction: {estimator.key} in the reward is not log π/π_ref, so the "
                                               "subtracted penalty is not the KL."]
    if estimator.by_ratio and ratio.product and choices.AGGREGATION[str(knobs["aggregation"])].sums:
        return []
    return [estimator.bias, estimator.later if updates(knobs) > 1 else ""]


def _of_ratio(knobs: Knobs) -> list[str]:
    """The bias that several updates of one batch cause."""
    if updates(knobs) == 1 and not off_policy(knobs):
        return []
    found = [_of_age(knobs)] if off_policy(knobs) else []
    if updates(knobs) > 1:
        found.append("Direction: from the second update on the policy is no longer the one that sampled the batch.")
    if choices.SURROGATE[str(knobs["surrogate"])].cut:
        found.append("Direction: the clip cuts off tokens whose ratio has left its range.")
    return found


def _of_age(knobs: Knobs) -> str:
    """The bias if the sampler has other weights than the policy; only the full ratio of completions removes it."""
    ratio, surrogate = choices.ratio_of(knobs), choices.SURROGATE[str(knobs["surrogate"])]
    recomputed = knobs["importance_cap"] or knobs["recompute_logprobs"]
    if surrogate.needs_ratio and ratio.product and not recomputed:
        return ""
    if knobs["importance_cap"]:
        return "Direction: importance weights are bounded, and weights of tokens ignore the tokens before them."
    if not surrogate.needs_ratio or recomputed:
        return "Direction: another policy sampled, and nothing corrects for it."
    return "Direction: another policy sampled, and this ratio corrects each token but not the tokens before it."


def _of_sampling(knobs: Knobs) -> list[str]:
    found = []
    if int(knobs["top_k"]) or float(knobs["top_p"]) < 1:
        found.append("Direction: top-k and top-p sample from another distribution than the one that learns.")
    if float(knobs["min_p"]) or float(knobs["repetition_penalty"]) != 1:
        found.append("Direction: min-p and a repetition penalty sample from another distribution than the one that "
                     "learns.")
    if float(knobs["entropy_coef"]):
        found.append("Direction: the entropy bonus is part of the loss, but not of J.")
    if float(knobs["top_entropy_share"]) < 1:
        found.append("Direction: only tokens with high entropy are used.")
    if knobs["overlong_filter"]:
        found.append("Direction: completions that were cut are left out.")
    return found
