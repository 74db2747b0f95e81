"""Cautions for valid combinations of choices, as data: knobs without effect, biased gradients, mixes that learn
nothing. The spec refuses invalid combinations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labcore.catalog import choices, kinds
from labcore.catalog.choice import Advantage, Caution, Surrogate
from labcore.catalog.conditions import kl_in, updates
from labcore.catalog.mix.row import can_be_mixed, with_every_knob

Values = Mapping[str, Any]

_WIDE = 0.1  # an ε that the geometric mean of the ratios seldom reaches


def _advantage(values: Values) -> Advantage:
    return choices.ADVANTAGE[values["advantage"]]


def _surrogate(values: Values) -> Surrogate:
    return choices.SURROGATE[values["surrogate"]]


def _scaled(values: Values) -> bool:
    """True if advantages are divided by a spread."""
    return _advantage(values).scaled or (_advantage(values).level == "sequence" and values["normalisation"] != "none")


def _product(values: Values) -> bool:
    """True if each token has the gradient of the whole completion's ratio."""
    return _surrogate(values).summed or (_surrogate(values).through_ratio and choices.RATIO[values["ratio"]].product)


def _per_token(values: Values) -> bool:
    """True if each token has a gradient of its own, not that of the whole completion's ratio."""
    surrogate = _surrogate(values)
    return not (surrogate.whole or (surrogate.through_ratio and choices.RATIO[values["ratio"]].whole))


def _own_length(values: Values) -> bool:
    return choices.AGGREGATION[values["aggregation"]].own_length


# Cautions about several choices at once. A caution about a single choice is declared with that choice.
ONLINE = (
    Caution("Every completion is imitated equally, and on average that gradient is zero: nothing is learnt. Select "
            "`best_of_group`, or choose another advantage.",
            lambda v: _advantage(v).constant and not choices.SELECTION[v["selection"]].ranks),
    Caution("Several updates per batch without a ratio: from the second on the gradient is off policy, and nothing "
            "corrects it. Use one update per batch, or a surrogate with a ratio.",
            lambda v: not (_surrogate(v).needs_ratio or _surrogate(v).summed) and updates(v) > 1),
    Caution("One update per batch: every ratio is 1, so nothing is clipped, capped or gated. Use more updates per "
            "batch or mini-batches.", lambda v: _surrogate(v).needs_ratio and updates(v) == 1),
    Caution("In the reward only k1 gives the gradient of the KL: the other estimators are biased there.",
            lambda v: kl_in(v, "reward") and not choices.KL_ESTIMATOR[v["kl_estimator"]].in_reward),
    Caution("The KL in the reward is divided by the spread of the rewards as well, so its strength changes from batch "
            "to batch, whatever β is. Place it in the loss, or choose an advantage without a division.",
            lambda v: kl_in(v, "reward") and _scaled(v)),
    Caution("Only the best completion of each prompt is learnt from, so the baseline no longer averages out: the "
            "update is biased towards what the policy does already. RAFT uses the advantage one.",
            lambda v: choices.SELECTION[v["selection"]].ranks and not _advantage(v).constant),
    Caution("Groups without signal are left out and nothing takes their place: batches shrink. Use resampling rounds.",
            lambda v: choices.SELECTION[v["selection"]].refills and not v["resample_rounds"]),
    Caution("Advantages are divided by a spread twice: the normalisation undoes most of what the first did.",
            lambda v: _advantage(v).scaled and v["normalisation"] != "none"),
    Caution("Each completion is averaged over its own tokens, so a token of a long completion counts less: long wrong "
            "answers are pushed down less (bias by length). The aggregation `constant_length` has no such bias.",
            lambda v: _own_length(v) and not _product(v)),
    Caution("Each token has the gradient of the whole completion's ratio, and they are added up: a completion counts "
            "as many times as it has tokens. Use `sequence_mean_token_mean`.",
            lambda v: _product(v) and not _own_length(v)),
    Caution("The geometric mean of the ratios stays near 1, so with an ε this large the clip hardly ever acts: GSPO "
            "has 0.03 and 0.04 here.",
            lambda v: _surrogate(v).through_ratio and bool(_surrogate(v).cut) and choices.RATIO[v["ratio"]].near_one
            and min(v["clip_low"], v["clip_high"]) >= _WIDE and updates(v) > 1),
    Caution("Tokens have advantages of their own, but the ratio is that of the whole completion: each advantage moves "
            "all of its tokens. Set `ratio=token` or `ratio=sequence_mean_token`.",
            lambda v: _advantage(v).level == "token" and not _per_token(v)),
    Caution("In fp32 sampler and trainer agree up to rounding, so truncated importance weighs every token by 1.",
            lambda v: v["importance_cap"] > 0 and v["dtype"] == "fp32" and v.get("rollouts", "engine") == "engine"),
)
PREFERENCE = (
    Caution("Two losses are the same, which equals a single loss with another weight.",
            lambda v: len(set(choices.losses_of(v))) < len(choices.losses_of(v))),
    Caution("A loss has weight 0, so it has no effect.",
            lambda v: not all(weight for _, weight in choices.weighted_losses(v))),
    Caution("The rejected sides are not used: this is SFT on the chosen ones.",
            lambda v: all(each.trains == "chosen" for each in choices.chosen(choices.PREFERENCE_LOSS, v))),
    Caution("The pairs are not used: this is SFT on the tasks' own answers.",
            lambda v: all(each.own_answer for each in choices.chosen(choices.PREFERENCE_LOSS, v))),
    Caution("Nothing holds the policy near its base: both log-probabilities may fall. The second loss sft holds the "
            "chosen side.", lambda v: not any(
                each.reference or each.whole_batch or each.own_answer
                for each in choices.chosen(choices.PREFERENCE_LOSS, v))),
    Caution("Other divergences than the reverse KL were derived for the loss sigmoid: with this one they have no such "
            "meaning.", lambda v: v["divergence"] != "reverse_kl" and any(
                each.reference and each.pairwise and not each.any_divergence
                for each in choices.chosen(choices.PREFERENCE_LOSS, v))),
)
CAUTIONS: Mapping[str, tuple[Caution, ...]] = {"online": ONLINE, "preference": PREFERENCE}


def of_run(kind: str, algorithm: str, knobs: Values, defaults: Values | None = None) -> list[str]:
    """The cautions of a run's knobs that are not true of its algorithm's defaults as well; those of the latter are
    what the algorithm is. `defaults` are those of the run's task and weights, where they are others."""
    named = kinds.algorithm(algorithm, kind)
    if not can_be_mixed(named):
        return []
    filled = {knob.key: knob.default for knob in (*with_every_knob(algorithm).knobs, *named.knobs)}
    usual = cautions(named.loop, filled) + cautions(named.loop, filled | dict(defaults or {}))
    return [said for said in cautions(named.loop, filled | dict(knobs)) if said not in usual]


def cautions(loop: str, values: Values) -> list[str]:
    """The cautions for a mix of `loop` with these knobs, which are all knobs of its loop: first those of single
    choices, then those of several choices together."""
    own = (caution for family in choices.FAMILIES for each in choices.chosen(family, values)
           for caution in each.cautions)
    return list(dict.fromkeys(caution.text for caution in (*own, *CAUTIONS[loop]) if caution.holds(values)))
