"""Why an online row's gradient is not ∇J on average, read off its choices, in sentences.

Each names what it does to the mean gradient: another length only ("scale"), which a learning rate makes up for, or
another direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labcore.catalog import choices

Knobs = Mapping[str, Any]

_ADVANTAGE = {
    "batch_mean": "Scale: a completion's own reward is in the batch mean, so the gradient is (1 − 1/B) as long.",
    "group_mean": "Scale: a completion's own reward is in the group mean, so the gradient is (1 − 1/G) as long.",
    "group_standardised": "Direction: dividing by the group's standard deviation lets groups that hardly differ count "
                          "as much as those that differ a lot.",
    "batch_standardised": "Direction: the batch's standard deviation depends on the same rewards that it divides.",
    "beta_normalised": "Direction: the density that it divides by depends on the same rewards; a completion's own "
                       "reward is in the group mean as well.",
    "parts_standardised": "Direction: every named reward is divided by its own standard deviation, so the sum is "
                          "another objective.",
    "reward_to_go_whitened": "Direction: whitening divides by a spread, and takes off a mean, of the same rewards.",
    "one": "Direction: it imitates what was selected and never lowers what is bad; there is no baseline.",
}
_AGGREGATION = {
    "token_mean": "Direction: the number of tokens is random and goes with the terms that it divides.",
    "constant_length": "Scale: divided by the length limit.",
    "sequence_mean_token_mean": "Direction: divided by its own length, so each token of a long completion counts less.",
}
_TIMES_T = ("Direction: the ratio of the whole sequence has its whole gradient at every token, so a completion of T "
            "tokens counts T times.")
_OF_SEQUENCES = {"token_mean": _AGGREGATION["token_mean"], "sequence_mean_token_sum": _TIMES_T,
                 "constant_length": _TIMES_T}
_KL = {
    "k1": "Direction: k1 in the loss has no gradient on average at the first update on a batch, so β does nothing "
          "there.",
    "k2": "Direction: k2 in the loss gives the KL of single tokens with their prefixes held fixed, not that of whole "
          "completions.",
    "k3": "Direction: k3 in the loss has the gradient of the other KL, KL(π_ref‖π).",
    "ratio_k3": "Direction: ratio × k3 gives the KL of single tokens with their prefixes held fixed, unless the ratio "
                "is that of the whole sequence and tokens are summed.",
}
_SELECTION = {
    "informative": "Scale: groups without signal are sampled again, which puts more completions with signal in a "
                   "batch. With several prompts also direction: prompts with signal count more often.",
    "best_of_group": "Direction: only the best of each group is learnt from.",
    "not_truncated": "Direction: completions that were cut are left out.",
}


def reasons(knobs: Knobs, exact_critic: bool = False) -> list[str]:
    """What keeps the mean gradient of a row with these knobs from ∇(J − β KL); empty where nothing does."""
    advantage, ratio = choices.ADVANTAGE[str(knobs["advantage"])], str(knobs["ratio"])
    alone = advantage.key == "beta_normalised" and int(knobs["prompts_per_step"]) == 1  # the density is then 1
    found = [_ADVANTAGE.get("group_mean" if alone else advantage.key, ""), _SELECTION.get(str(knobs["selection"]), "")]
    if advantage.critic:
        found += _of_critic(knobs, exact_critic)
    elif "gamma" in advantage.needs and float(knobs["gamma"]) < 1:
        found.append("Direction: γ < 1 takes from early tokens what the last one earned.")
    if knobs.get("normalisation", "none") != "none":
        found.append("Direction: advantages are whitened over the batch that they come from.")
    found += [_aggregated(knobs, ratio), *_of_kl(knobs, ratio), *_of_ratio(knobs, ratio), *_of_sampling(knobs)]
    return [reason for reason in found if reason]


def _of_critic(knobs: Knobs, exact: bool) -> list[str]:
    found = []
    if float(knobs["gae_lambda"]) < 1 and not exact:
        found.append("Direction: λ < 1 believes the critic, and the critic is wrong.")
    if float(knobs["gamma"]) < 1:
        found.append("Direction: γ < 1 takes from early tokens what the last one earned.")
    if knobs["whiten_advantages"]:
        found.append("Direction: advantages are whitened over the batch that they come from.")
    if knobs["whiten_rewards"]:
        found.append("Direction: rewards are whitened over the batch that they come from.")
    return found


def _aggregated(knobs: Knobs, ratio: str) -> str:
    """What the aggregation does. The ratio of a whole sequence has its whole gradient at every token."""
    aggregation, surrogate = str(knobs["aggregation"]), choices.SURROGATE[str(knobs["surrogate"])]
    if ratio == "sequence_sum" and surrogate.needs_ratio and surrogate.key not in ("detached_weight", "gamma_weight"):
        return _OF_SEQUENCES.get(aggregation, "")
    return _AGGREGATION.get(aggregation, "")


def _of_kl(knobs: Knobs, ratio: str) -> list[str]:
    if not float(knobs["beta"]) or knobs["kl_placement"] == "off":
        return []
    estimator = str(knobs["kl_estimator"])
    if knobs["kl_placement"] == "reward":
        return [] if estimator == "k1" else [f"Direction: {estimator} in the reward is not log π/π_ref, so what is "
                                             "subtracted is not the KL."]
    if estimator == "ratio_k3" and ratio == "sequence_sum" and knobs["aggregation"] == "sequence_mean_token_sum":
        return []
    later = ("Direction: from the second update on k1 in the loss makes every sampled token less likely: its mean "
             "gradient is −∇KL(π_old‖π).")
    return [_KL[estimator], *([later] if estimator == "k1" and _updates(knobs) > 1 else [])]


def _updates(knobs: Knobs) -> int:
    return int(knobs.get("updates_per_batch", 1)) * int(knobs.get("mini_batches", 1))


def _of_ratio(knobs: Knobs, ratio: str) -> list[str]:
    """What several updates of one batch do."""
    if _updates(knobs) == 1:
        return []
    found = ["Direction: from the second update on the policy has moved, and its gradient is another one."]
    if choices.SURROGATE[str(knobs["surrogate"])].cut:
        found.append("Direction: the clip cuts off tokens whose ratio has left its range.")
    return found


def _of_sampling(knobs: Knobs) -> list[str]:
    found = []
    if int(knobs["top_k"]) or float(knobs["top_p"]) < 1:
        found.append("Direction: top-k and top-p sample from another distribution than the one that learns.")
    if float(knobs["entropy_coef"]):
        found.append("Direction: the entropy bonus is part of the loss and no part of J.")
    if float(knobs["top_entropy_share"]) < 1:
        found.append("Direction: only tokens with high entropy are learnt from.")
    if knobs["overlong_filter"]:
        found.append("Direction: completions that were cut are left out.")
    return found
