"""What becomes of the knobs of preference runs in TRL: in DPOTrainer, KTOTrainer, CPOTrainer and ORPOTrainer."""

from __future__ import annotations

from typing import Any

from labcore.catalog import choices
from labcore.exports.handover.plan import (
    LABELS,
    MEASURED,
    Line,
    Plan,
    Rules,
    acting,
    built_in,
    choice,
    given,
    missing,
    only_with,
    switch,
    to,
)

_FOR_PAIRS = built_in("in the code below, where the pairs are sampled")
# Our losses as TRL's DPOTrainer calls them, and what is different there.
_DPO_LOSSES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("sigmoid", "robust", "hinge", "exo_pair", "nca_pair", "bco_pair", "sppo_hard", "apo_zero",
                     "apo_down", "aot", "aot_unpaired", "discopop", "sigmoid_norm", "sft"), ("", "")),
    "ipo": ("", "of the mean log-ratio per token, not of its sum"), "ipo_mean": ("ipo", ""),
    "cdpo": ("sigmoid", "without label smoothing: its sigmoid loss has none")}
# The losses that DPOTrainer takes every divergence with.
_ANY_DIVERGENCE = {"sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "robust", "discopop", "sft"}
_OTHER_LOSSES = "DPOTrainer has this divergence for other losses only: it takes the reverse KL"
_DIVERGENCES = {"reverse_kl": "reverse_kl", "forward_kl": "forward_kl", "jensen_shannon": "js_divergence",
                "alpha": "alpha_divergence"}


def _loss(plan: Plan, _: Any) -> Line:
    """The first loss with the second one: a list of both in one setting."""
    known = [(name, *_DPO_LOSSES[name]) for name in choices.losses_of(plan.spec.knobs) if name in _DPO_LOSSES]
    notes = [note for _, _, note in known if note]
    settings: dict[str, Any] = {"loss_type": [other or name for name, other, _ in known]}
    if len(known) > 1:
        settings["loss_weights"] = [1.0, plan["second_weight"]]
    return Line("", 0, settings, note="; ".join(notes))


def _second(plan: Plan, value: Any) -> Line:
    if value == choices.NO_LOSS:
        return Line("", value, {}, built_in=True)
    if value in _DPO_LOSSES:
        return Line("", value, {}, built_in=True, note="in loss_type")
    return Line("", value, {}, note="DPOTrainer has no such loss to add")


def _smoothing(plan: Plan, value: Any) -> Line:
    """TRL has one label smoothing, for several losses."""
    ours = choices.losses_of(plan.spec.knobs)
    theirs = [_DPO_LOSSES[name][0] or name for name in ours if name in _DPO_LOSSES]
    if _needs(theirs, "label_smoothing"):
        return Line("", value, {"label_smoothing": value})
    lost = _needs(ours, "label_smoothing")
    return Line("", value, {}, built_in=not lost, note="its sigmoid loss has no label smoothing: OpenRLHF's has"
                if lost else "")


def _divergence(plan: Plan, value: Any) -> Line:
    if value == "reverse_kl" or _takes_divergences(plan):
        return Line("", value, {"f_divergence_type": _DIVERGENCES[value]})
    return Line("", value, {}, note=_OTHER_LOSSES)


def _divergence_alpha(plan: Plan, value: Any) -> Line:
    return (to("f_alpha_divergence_coef") if _takes_divergences(plan) else missing(_OTHER_LOSSES))(plan, value)


def _weighting(plan: Plan, value: Any) -> Line:
    """TRL multiplies the losses in place, which torch refuses for two of them."""
    failing = [name for name in _loss(plan, None).settings["loss_type"] if name in ("hinge", "sft")]
    if value and failing:
        return Line("", value, {}, note=f"use_weighting with the loss {failing[0]} raises a RuntimeError in "
                    "DPOTrainer, so pairs count the same: leave that loss out to weight them")
    return Line("", value, {"use_weighting": value})


def _takes_divergences(plan: Plan) -> bool:
    """Whether DPOTrainer takes another divergence than the reverse KL with all the losses that it is given."""
    return set(_loss(plan, None).settings["loss_type"]) <= _ANY_DIVERGENCE


def _needs(losses: list[str], knob: str) -> bool:
    return any(knob in choices.PREFERENCE_LOSS[name].needs for name in losses)


def _only_for(knob: str, name: str) -> Any:
    """A setting that stands for a knob of one loss; it says nothing while that loss is not the run's."""
    def rule(plan: Plan, value: Any) -> Line:
        used = _needs(choices.losses_of(plan.spec.knobs), knob)
        return Line("", value, {name: value}) if used else Line("", value, {}, built_in=True)
    return rule


def _unless(knob: str, neutral: Any, note: str) -> Any:
    """The trainer has nothing like the knob; at `neutral` there is nothing to have."""
    return lambda plan, value: Line("", value, {}, built_in=value == neutral, note="" if value == neutral else note)


_COMMON: Rules = {
    "beta": to("beta"), "pairs_per_step": to("per_device_train_batch_size"),
    "pairs": choice({
        "dataset": ({}, ""), "reference_once": ({}, ""),
        "policy_each_step": ({}, "the pairs are sampled once, before training: the experimental OnlineDPOTrainer "
                             "samples them at every step"),
    }, "see the data below"),
    "eval_every": MEASURED, "eval_prompts": MEASURED,
    **dict.fromkeys(("pair_prompts", "group_size", "temperature", "top_k", "top_p", "max_new_tokens"), _FOR_PAIRS)}
_OF_ONE_LOSS = ("label_smoothing", "exo_epsilon", "discopop_tau", "target_margin", "desirable_weight",
                "undesirable_weight")
_DPO: Rules = {
    **_COMMON, "preference_loss": _loss, "second_loss": _second,
    "second_weight": lambda plan, value: Line("", value, {}, built_in=True, note=""),
    "label_smoothing": _smoothing, "exo_epsilon": _only_for("exo_epsilon", "label_smoothing"),
    "discopop_tau": _only_for("discopop_tau", "discopop_tau"),
    **dict.fromkeys(("target_margin", "desirable_weight", "undesirable_weight"), built_in()),
    "divergence": _divergence, "divergence_alpha": only_with("divergence", "alpha", _divergence_alpha),
    "ld_alpha": acting(switch(to("ld_alpha"), 1), "ld_alpha"),
    "pair_weighting": _weighting}


def _without(trainer: str) -> Rules:
    """What only DPOTrainer has."""
    return {"second_loss": _unless("second_loss", choices.NO_LOSS, f"{trainer} has one loss only"),
            "second_weight": built_in(), **dict.fromkeys(_OF_ONE_LOSS, built_in()),
            "divergence": _unless("divergence", "reverse_kl", f"{trainer} takes the reverse KL"),
            "divergence_alpha": only_with("divergence", "alpha", missing(f"{trainer} takes the reverse KL")),
            "ld_alpha": acting(_unless("ld_alpha", 1, f"{trainer} counts all tokens the same"), "ld_alpha"),
            "pair_weighting": _unless("pair_weighting", False, f"{trainer} does not weight pairs")}


RULES: dict[str, Rules] = {
    "DPOTrainer": _DPO,
    "KTOTrainer": {
        **_COMMON, **_without("KTOTrainer"), "desirable_weight": to("desirable_weight"),
        "undesirable_weight": to("undesirable_weight"), "preference_loss": given(lambda plan, value: {
            "loss_type": "kto"}),
        "pairs_per_step": given(lambda plan, value: {"per_device_train_batch_size": 2 * value},
                                "in single completions, two of each pair")},
    "CPOTrainer": {
        **_COMMON, **_without("CPOTrainer"), "target_margin": to("simpo_gamma"),
        "preference_loss": to("loss_type"),
        "second_loss": choice({choices.NO_LOSS: ({"cpo_alpha": 0.0}, ""), "sft": ({}, "")},
                              "CPOTrainer adds nothing but the SFT loss"),
        "second_weight": only_with("second_loss", "sft", to("cpo_alpha", note="of the mean over the batch's tokens"))},
    "ORPOTrainer": {
        **_COMMON, **_without("ORPOTrainer"), "preference_loss": given(
            lambda plan, value: {}, "its SFT term counts the tokens of the prompt too")},
    "RewardTrainer": {
        **_COMMON, **LABELS, "margin": built_in("in the rows below"), "eval_pairs": MEASURED,
        "centering": given(lambda plan, value: {"center_rewards_coefficient": value or None})}}

LABELLED = '''

def labelled(found: list[dict]) -> list[dict]:
    """Each side of a pair by itself, desired or not; single completions are so already."""
    singles = [row for row in found if "completion" in row]
    return singles + [{"prompt": row["prompt"], "completion": row[side], "label": side == "chosen"}
                      for row in found if "completion" not in row for side in ("chosen", "rejected")]
'''
