"""What to beware of in a combination of choices that runs, as data: what cannot act, what is biased, what learns
nothing. What cannot run is refused by the spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from labcore.catalog import choices, kinds
from labcore.catalog.choice import Choice
from labcore.catalog.mix.row import can_be_mixed, with_every_knob

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Caution:
    """`text` is said of all mixes of a `loop` of which `holds` says so."""

    loop: str
    holds: Callable[[Values], bool]
    text: str


_ON_RATIO = ("clip", "bounded_clip", "soft_gate")  # surrogates whose gradient goes through the ratio
_CLIPS = ("clip", "bounded_clip")
_STANDARDISED = ("group_standardised", "batch_standardised", "parts_standardised")
_WIDE = 0.1  # an ε that the geometric mean of the ratios seldom reaches
_DERIVED = ("sigmoid", "cdpo", "robust")  # losses for which the divergences were derived
_NORMALISED_LOSSES = ("ipo_mean", "sigmoid_norm", "simpo", "orpo")


def _updates(values: Values) -> int:
    return int(values["updates_per_batch"]) * int(values["mini_batches"])


def _advantage(values: Values) -> Choice:
    return choices.ADVANTAGE[values["advantage"]]


def _kl(values: Values, placement: str) -> bool:
    return bool(values["kl_placement"] == placement and values["beta"] > 0)


def _scaled(values: Values) -> bool:
    """Whether advantages are divided by a spread."""
    return values["advantage"] in _STANDARDISED or (
        _advantage(values).level == "sequence" and values["normalisation"] != "none")


def _per_token(values: Values) -> bool:
    """Whether each token has a gradient of its own, not that of the whole completion's ratio."""
    through_sequence = values["surrogate"] in _ON_RATIO and values["ratio"] in ("sequence_sum", "sequence_mean")
    return not through_sequence and values["surrogate"] != "geometric_clip"


def _losses(values: Values) -> list[str]:
    return choices.losses_of(values)


def _chosen(values: Values) -> list[Choice]:
    return [choices.PREFERENCE_LOSS[name] for name in _losses(values)]


CAUTIONS = (
    Caution("online", lambda v: _advantage(v).constant and v["selection"] != "best_of_group",
            "Every completion is imitated alike, and on average that gradient is zero: nothing is learnt. Select "
            "best_of_group, or choose another advantage."),
    Caution("online", lambda v: v["surrogate"] == "score_function" and _updates(v) > 1,
            "Several updates per batch without a ratio: from the second on the gradient is off policy, and nothing "
            "corrects it. Use one update per batch, or a surrogate with a ratio."),
    Caution("online", lambda v: choices.SURROGATE[v["surrogate"]].needs_ratio and _updates(v) == 1,
            "One update per batch: every ratio is 1, so nothing is clipped, capped or gated. Use more updates per "
            "batch or mini-batches."),
    Caution("online", lambda v: _kl(v, "loss") and v["kl_estimator"] == "k1" and _updates(v) == 1,
            "k1 in the loss has no gradient on average: it adds noise and does not hold the policy near the reference. "
            "Use k2 or ratio_k3, or place it in the reward."),
    Caution("online", lambda v: _kl(v, "loss") and v["kl_estimator"] == "k1" and _updates(v) > 1,
            "k1 in the loss does not hold the policy near the reference: from the second update on a batch it makes "
            "every sampled token less likely, those of right answers too. Use k2 or ratio_k3, or place it in the "
            "reward."),
    Caution("online", lambda v: _kl(v, "loss") and v["kl_estimator"] == "k3",
            "k3 in the loss has the gradient of KL(π_ref ‖ π), not of KL(π ‖ π_ref): k2 and ratio_k3 have that one."),
    Caution("online", lambda v: _kl(v, "reward") and v["kl_estimator"] != "k1",
            "In the reward only k1 gives the gradient of the KL: the other estimators are biased there."),
    Caution("online", lambda v: _kl(v, "reward") and _scaled(v),
            "The KL in the reward is divided by the spread of the rewards as well, so its strength changes from batch "
            "to batch, whatever β is. Place it in the loss, or choose an advantage without a division."),
    Caution("online", lambda v: v["selection"] == "best_of_group" and not _advantage(v).constant,
            "Only the best completion of each prompt is learnt from, so the baseline no longer balances: biased "
            "towards what it does already. RAFT uses the advantage one."),
    Caution("online", lambda v: v["selection"] == "informative" and not v["resample_rounds"],
            "Groups without signal are left out and nothing takes their place: batches shrink. Use resampling rounds."),
    Caution("online", lambda v: v["advantage"] in _STANDARDISED and v["normalisation"] != "none",
            "Advantages are divided by a spread twice: the normalisation undoes most of what the first did."),
    Caution("online", lambda v: v["advantage"] == "group_standardised",
            "Divided by the group's standard deviation, prompts that are nearly always or nearly never solved count "
            "most (bias by difficulty). group_mean has none."),
    Caution("online", lambda v: _advantage(v).by_part and v["reward_source"] != "correct_and_format",
            "There is one named reward only, so comparing rewards by name changes nothing: use reward source "
            "correct_and_format."),
    Caution("online", lambda v: v["advantage"] == "beta_normalised" and (
                v["shaping"] != "none" or _kl(v, "reward")
                or v["reward_source"] not in ("verifier", "noisy_verifier", "order_only")),
            "The Beta density is fitted to rewards of 0 and 1: with others it is a wrong scale."),
    Caution("online", lambda v: v["aggregation"] == "sequence_mean_token_mean"
            and not (v["surrogate"] in _ON_RATIO and v["ratio"] == "sequence_sum"),
            "Each completion is averaged over its own tokens, so a token of a long completion counts less: long wrong "
            "answers are pushed down less (bias by length). constant_length has none."),
    Caution("online", lambda v: v["surrogate"] in _ON_RATIO and v["ratio"] == "sequence_sum"
            and v["aggregation"] != "sequence_mean_token_mean",
            "Each token has the gradient of the whole completion's ratio, and they are added up: a completion counts "
            "as many times as it has tokens. Use sequence_mean_token_mean."),
    Caution("online", lambda v: v["surrogate"] in _CLIPS and v["ratio"] in ("sequence_mean", "sequence_mean_token")
            and min(v["clip_low"], v["clip_high"]) >= _WIDE and _updates(v) > 1,
            "The geometric mean of the ratios stays near 1, so with an ε this large the clip hardly ever acts: GSPO "
            "has 0.03 and 0.04 here."),
    Caution("online", lambda v: _advantage(v).level == "token" and not _per_token(v),
            "Tokens have advantages of their own, but the ratio is that of the whole completion: each advantage moves "
            "all of its tokens. Use the ratio token or sequence_mean_token."),
    Caution("online", lambda v: v["surrogate"] == "geometric_clip" and v["ratio"] != "token",
            "geometric_clip clips the ratio of each token: with another ratio it clips whole completions. Use the "
            "ratio token."),
    Caution("online", lambda v: v["surrogate"] == "bounded_clip" and 0 < v["clip_delta"] < 1 + v["clip_high"],
            "clip_delta is below 1 + ε_high: tokens with a positive advantage lose their gradient at clip_delta, and "
            "ε_high bounds only tokens with a negative advantage. Set clip_delta above 1 + ε_high, or to 0 for none."),
    Caution("online", lambda v: v["surrogate"] == "bounded_clip" and 0 < v["dual_clip"] <= 1,
            "dual_clip is not above 1: tokens with a negative advantage lose their gradient at the ratio 1, so "
            "the policy learns little or nothing from mistakes. Set dual_clip above 1, or to 0 for none."),
    Caution("online", lambda v: v["importance_cap"] > 0 and v["dtype"] == "fp32"
            and v.get("rollouts", "engine") == "engine",
            "In fp32 sampler and trainer agree up to rounding, so truncated importance weighs every token by 1."),
    Caution("preference", lambda v: v["second_loss"] == v["preference_loss"],
            "Both losses are the same: that is one of them with another weight."),
    Caution("preference", lambda v: len(_losses(v)) > 1 and not v["second_weight"],
            "The second loss has weight 0: it adds nothing."),
    Caution("preference", lambda v: set(_losses(v)) == {"sft"},
            "The rejected sides are not looked at: this is SFT on the chosen ones."),
    Caution("preference", lambda v: not any(each.reference or each.whole_batch for each in _chosen(v)),
            "Nothing holds the policy near its base: both log-probabilities may fall. The second loss sft holds the "
            "chosen side."),
    Caution("preference", lambda v: v["divergence"] != "reverse_kl" and any(
                each.reference and each.pairwise and each.key not in _DERIVED for each in _chosen(v)),
            "Other divergences than the reverse KL were derived for the loss sigmoid: with this one they have no such "
            "meaning."),
    Caution("preference", lambda v: v["ld_alpha"] < 1 and bool(set(_losses(v)) & set(_NORMALISED_LOSSES)),
            "The loss divides by length already: with the longer side's tail weighed down length counts twice."),
    Caution("preference", lambda v: not v["label_smoothing"] and any(
                "label_smoothing" in each.needs and each.pairwise for each in _chosen(v)),
            "Without label smoothing this loss is DPO's."),
)


def of_run(kind: str, algorithm: str, knobs: Values, defaults: Values | None = None) -> list[str]:
    """What is to be said of a run's knobs that is not true of its algorithm's defaults as well; those of the latter are
    what the algorithm is. `defaults` are those of the run's task and weights, where they are others."""
    named = kinds.algorithm(algorithm, kind)
    if not can_be_mixed(named):
        return []
    filled = {knob.key: knob.default for knob in (*with_every_knob(algorithm).knobs, *named.knobs)}
    usual = cautions(named.loop, filled) + cautions(named.loop, filled | dict(defaults or {}))
    return [said for said in cautions(named.loop, filled | dict(knobs)) if said not in usual]


def cautions(loop: str, values: Values) -> list[str]:
    """What is to be said of a mix of `loop` with these knobs, all that its loop has."""
    return [caution.text for caution in CAUTIONS if caution.loop == loop and caution.holds(values)]
