"""Settings of TRL's DPOTrainer, KTOTrainer, CPOTrainer, ORPOTrainer and TPOTrainer for the knobs of preference runs."""

from __future__ import annotations

from typing import Any

from labcore.catalog import choices
from labcore.catalog.choice import There
from labcore.exports.handover.plan import Line, Plan, Rule, Rules
from labcore.exports.handover.rules import acting, built_in, choice, choices_of, given, missing, only_with, switch, to
from labcore.exports.handover.shared_rules import FILTERS, LABELS, MEASURED, pairs_of

DPO = "DPOTrainer"
FOR_PAIRS = built_in("in the code below, where the pairs are sampled")
_OTHER_LOSSES = "DPOTrainer has this divergence for other losses only: it uses the reverse KL"


def _dpo_there(name: str, tool: str) -> There | None:
    """The equivalent of a loss in a tool's DPOTrainer; None if another trainer has it."""
    loss = choices.PREFERENCE_LOSS[name]
    return None if loss.trainer else loss.there(tool)


def _of_dpo(plan: Plan, tool: str = DPO) -> list[tuple[str, There]]:
    """The run's losses that DPOTrainer has: its names for them, and what is to be said of them."""
    found = [(name, _dpo_there(name, tool)) for name in choices.losses_of(plan.spec.knobs)]
    return [(there.name or name, there) for name, there in found if there]


def losses(tool: str) -> Rule:
    """All losses of a tool's DPOTrainer, a list in one setting, and their weights."""
    def rule(plan: Plan, _: Any) -> Line:
        known = _of_dpo(plan, tool)
        settings: dict[str, Any] = {"loss_type": [name for name, _ in known]}
        weights = [weight for name, weight in choices.weighted_losses(plan.spec.knobs) if _dpo_there(name, tool)]
        if len(known) > 1 or weights not in ([], [1.0]):
            settings["loss_weights"] = weights
        if not known:
            return Line("", 0, {}, note=f"no equivalent: {tool} trains DPO instead")
        return Line("", 0, settings, note="; ".join(there.note for _, there in known if there.note))

    return rule


def second(tool: str) -> Rule:
    """A further loss of a tool's DPOTrainer."""
    def rule(plan: Plan, value: Any) -> Line:
        if value == choices.NO_LOSS:
            return Line("", value, {}, built_in=True)
        if _dpo_there(str(value), tool):
            return Line("", value, {}, built_in=True, note="in loss_type")
        return Line("", value, {}, note=f"{tool} has no such loss to add")

    return rule


def _divergence(plan: Plan, value: Any) -> Line:
    if value != choices.DIVERGENCE.members[0].key and not _takes_divergences(plan):
        return Line("", value, {}, note=_OTHER_LOSSES)
    return choices_of(choices.DIVERGENCE, "DPOTrainer", "it uses the reverse KL", "f_divergence_type")(plan, value)


def _divergence_alpha(plan: Plan, value: Any) -> Line:
    return (to("f_alpha_divergence_coef") if _takes_divergences(plan) else missing(_OTHER_LOSSES))(plan, value)


def _weighting(plan: Plan, value: Any) -> Line:
    """TRL multiplies the losses in place, which torch refuses for two of them."""
    failing = [name for name, there in _of_dpo(plan) if "pair_weighting" in there.refuses]
    if value and failing:
        return Line("", value, {}, note=f"use_weighting with the loss {failing[0]} raises a RuntimeError in "
                    "DPOTrainer, so pairs count the same: leave that loss out to weight them")
    return Line("", value, {"use_weighting": value})


def _takes_divergences(plan: Plan) -> bool:
    """Whether DPOTrainer takes another divergence than the reverse KL with all the losses that it is given."""
    return all("divergence" in there.takes for _, there in _of_dpo(plan))


def _unless(knob: str, neutral: Any, note: str) -> Any:
    """The trainer has nothing like the knob; at `neutral` there is nothing to have."""
    return lambda plan, value: Line("", value, {}, built_in=value == neutral, note="" if value == neutral else note)


_COMMON: Rules = {
    "beta": to("beta"), "pairs_per_step": to("per_device_train_batch_size"),
    "pairs": pairs_of("the experimental OnlineDPOTrainer samples them at every step"),
    "eval_every": MEASURED, "eval_prompts": MEASURED,
    **dict.fromkeys(("pair_prompts", "group_size", "temperature", "top_k", "top_p", "max_new_tokens", *FILTERS),
                    FOR_PAIRS)}
_DPO: Rules = {
    **_COMMON, "preference_loss": losses(DPO), **dict.fromkeys(("second_loss", "third_loss"), second(DPO)),
    **dict.fromkeys(choices.LOSSES.values(), built_in()),
    "reference_every": switch(given(lambda plan, value: {"sync_ref_model": True, "ref_model_sync_steps": value}), 0),
    "reference_mixup": lambda plan, value: (to("ref_model_mixup_alpha") if plan["reference_every"] else built_in())(
        plan, value),
    "divergence": _divergence, "divergence_alpha": only_with("divergence", "alpha", _divergence_alpha),
    "ld_alpha": acting(switch(to("ld_alpha"), 1), "ld_alpha"),
    "pair_weighting": _weighting}


def without(trainer: str) -> Rules:
    """Rules for the knobs that only DPOTrainer has."""
    one = f"{trainer} has one loss only"
    return {**{key: _unless(key, choices.NO_LOSS, one) for key in ("second_loss", "third_loss")},
            "second_weight": built_in(), "third_weight": built_in(),
            "first_weight": _unless("first_weight", 1.0, f"{trainer} has no weight for its loss"),
            "reference_every": _unless("reference_every", 0, f"{trainer} keeps its reference"),
            "reference_mixup": built_in(),
            "divergence": _unless("divergence", "reverse_kl", f"{trainer} uses the reverse KL"),
            "divergence_alpha": only_with("divergence", "alpha", missing(f"{trainer} uses the reverse KL")),
            "ld_alpha": acting(_unless("ld_alpha", 1, f"{trainer} counts all tokens the same"), "ld_alpha"),
            "pair_weighting": _unless("pair_weighting", False, f"{trainer} does not weight pairs")}


_ANSWERS = tuple(each.key for each in choices.PREFERENCE_LOSS if each.own_answer)


def _answers(knob: str) -> Rules:
    """A further loss of TPOTrainer: only that of the answers, whose weight is `tpo_alpha`."""
    weight = choices.LOSSES[knob]
    return {knob: choice({choices.NO_LOSS: ({}, ""), **dict.fromkeys(_ANSWERS, ({}, ""))},
                         "TPOTrainer adds nothing but the SFT loss of the answers"),
            weight: lambda plan, value: (to("tpo_alpha") if plan[knob] in _ANSWERS else built_in())(plan, value)}


RULES: dict[str, Rules] = {
    "DPOTrainer": _DPO,
    "KTOTrainer": {
        **_COMMON, **without("KTOTrainer"),
        "preference_loss": choices_of(choices.PREFERENCE_LOSS, "KTOTrainer", "it has KTO only"),
        "pairs_per_step": given(lambda plan, value: {"per_device_train_batch_size": 2 * value},
                                "in single completions, two of each pair")},
    "CPOTrainer": {
        **_COMMON, **without("CPOTrainer"),
        "preference_loss": choices_of(choices.PREFERENCE_LOSS, "CPOTrainer", "see loss_type"),
        "second_loss": choice({choices.NO_LOSS: ({"cpo_alpha": 0.0}, ""), "sft": ({}, "")},
                              "CPOTrainer adds nothing but the SFT loss"),
        "second_weight": only_with("second_loss", "sft", to("cpo_alpha", note="of the mean over the batch's tokens"))},
    "TPOTrainer": {
        **_COMMON, **without("TPOTrainer"), **_answers("second_loss"), **_answers("third_loss"),
        "preference_loss": choices_of(choices.PREFERENCE_LOSS, "TPOTrainer", "see loss_type")},
    "ORPOTrainer": {
        **_COMMON, **without("ORPOTrainer"),
        "preference_loss": choices_of(choices.PREFERENCE_LOSS, "ORPOTrainer", "it has ORPO only")},
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
