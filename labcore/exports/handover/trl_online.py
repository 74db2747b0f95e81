"""Settings of TRL's GRPOTrainer, GMPOTrainer and RLOOTrainer for the knobs of online runs."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from labcore.catalog import choices, reward_terms
from labcore.catalog.reward_terms import JUDGE, REWARD_MODEL
from labcore.exports.handover import shared_rules as shared
from labcore.exports.handover.plan import Line, Plan, Rules
from labcore.exports.handover.remarks import comment
from labcore.exports.handover.rules import built_in, choice, choices_of, given, missing, only_with, switch, to
from labcore.runs.spec.model_names import is_published, members

# ---------------------------------------------------------------- trl rewards
# The rewards of an online run as what TRL's trainers take as reward functions.

_FUNCTION = '''

def reward(completions: list, answer: list[str], **_) -> list[float]:
    """The rewards. TRL calls it with the completions and the column `answer` of their rows."""
    return [score({said}, right) for text, right in zip(completions, answer)]
'''
_ABSENT = '''

def {name}(completions: list, **_) -> list[float]:
    """The rewards of the lab's {name}, which this script does not bring."""
    raise SystemExit("Write {name}() here: a number for each completion.")
'''


def functions(plan: Plan) -> tuple[str, str]:
    """The code of the run's reward functions, and the name by which the trainer is given them."""
    named = reward_terms.of(plan.spec.knobs)
    if not named:
        found, code = _other(plan, str(plan["reward_source"]))
        return code, found
    terms = [_other(plan, term.key) if not term.function else
             (f"import_module({PurePath(term.file).stem!r}).{term.function}", "") for term in named]
    files = dict.fromkeys(term.file for term in named if term.function)
    listed = "\n".join(f"    {found}," for found, _ in terms)
    own = comment(f"Your own functions: put {' and '.join(files)} beside this script.") if files else ""
    imported = "from importlib import import_module\n\n" if files else ""
    code = "".join(dict.fromkeys(code for _, code in terms))
    return f"{code}\n\n{imported}{own}\nREWARDS = [\n{listed}\n]\n", "REWARDS"


def _other(plan: Plan, source: str) -> tuple[str, str]:
    """The name of a source that is no function of the user's, and its code."""
    if source == REWARD_MODEL and (published := _published(plan)):
        return repr(published), ""
    if source == JUDGE or (source == REWARD_MODEL and plan["reward_source"] != source):
        return source, _ABSENT.format(name=source)
    return "reward", _FUNCTION.format(said='text[0]["content"]' if plan.chat else "text")


def _published(plan: Plan) -> str:
    """The folder or hub id of the run's reward model, which TRL loads by itself; empty where it has no such one."""
    models = members(str(plan["reward_model"]))
    return models[0] if len(models) == 1 and is_published(models[0]) else ""


def _source(plan: Plan, value: str) -> Line:
    here = value == reward_terms.SOURCE or (value == REWARD_MODEL and _published(plan))
    return (built_in() if here else shared.REWARD_RULES["reward_source"])(plan, value)


def _model(plan: Plan, value: str) -> Line:
    here = REWARD_MODEL in choices.sources_of(plan.spec.knobs) and _published(plan)
    return (built_in() if here else shared.REWARD_RULES["reward_model"])(plan, value)


def _weights(plan: Plan, value: str) -> Line:
    count = len(reward_terms.of(plan.spec.knobs))
    return Line("", value, {"reward_weights": reward_terms.weights(value, count)} if count else {}, built_in=not count)


TRL_REWARDS: Rules = {**shared.REWARD_RULES, "reward_source": _source, "reward_model": _model,
                      "reward_function": built_in(), "reward_weights": _weights}


# ---------------------------------------------------------------- trl online

def generations(plan: Plan) -> int:
    """Completions of a prompt: the run's, or where that is 1, as many as still cut its batch into whole groups."""
    group, rows = int(plan["group_size"]), int(plan["prompts_per_step"]) // plan.parts
    return group if group > 1 else next((n for n in (8, 4, 2) if rows % n == 0), 2)


def _per_update(plan: Plan, _: Any) -> dict[str, Any]:
    rows = int(plan["prompts_per_step"]) * int(plan["group_size"]) // plan.parts
    return {"per_device_train_batch_size": max(rows, generations(plan))}


def _whitened(plan: Plan, value: Any) -> Line:
    if not plan.critic:  # the run whitens only what comes from a critic
        return Line("", value, {}, built_in=True)
    return Line("", value, {"scale_rewards": "batch" if value else "none"},
                note="by the rewards' spread, not the advantages'")


_NO_CRITIC = missing("TRL has no trainer with a critic (PPOTrainer is gone since 1.13): the baseline is the "
                     "group's mean instead")
_SELECTED = {
    "selection": choices_of(choices.SELECTION, "GRPOTrainer", "TRL trains on all completions"),
    "overlong_filter": switch(to("mask_truncated_completions", note="TRL also counts masked rows in its mean, so "
                                 "the gradient is smaller by the share that is kept"), False)}
_GROUPS = given(lambda plan, value: {"num_generations": generations(plan)},
                lambda plan, value: "" if value > 1 else "TRL compares completions of one prompt, so "
                f"{generations(plan)} of fewer prompts make the same batch")
_STAYS = "β stays as it is in TRL: give the value that it had reached"
_CORRECTION = "vllm_importance_sampling"
_ROLLOUTS = choice({"engine": ({}, ""), "vllm": ({"use_vllm": True, "vllm_mode": "colocate"}, "")}, "see use_vllm")


def _sampler(plan: Plan, value: Any) -> Line:
    """The line of the correction for another sampler, which GRPOTrainer applies by itself if vLLM samples."""
    if plan["rollouts"] == "vllm":
        return Line("", value, {f"{_CORRECTION}_mode": plan["importance_mode"], f"{_CORRECTION}_clip_max": value}
                    if value else {f"{_CORRECTION}_correction": False})
    return switch(missing(f"TRL corrects so only where vLLM samples ({_CORRECTION}_correction)"), 0.0)(plan, value)


def _by_vllm(settings: Any, off: Any) -> Any:
    """A further knob of that correction, which acts where both are on."""
    return lambda plan, value: Line("", value, settings(value), note="") if (
        plan["rollouts"] == "vllm" and plan["importance_cap"] and value != off) else Line("", value, {}, built_in=True)


_RECOMPUTED = ("GRPOTrainer recomputes them where vLLM samples and it corrects, and where a batch is used more than "
               "once")


_NO_SHAPE = "write it into score() below"
_ONLINE: Rules = {
    "adaptive_kl_target": switch(missing(_STAYS), 0.0), "adaptive_kl_horizon": lambda plan, value: Line(
        "", value, {}, built_in=not plan["adaptive_kl_target"], note=_STAYS if plan["adaptive_kl_target"] else ""),
    "sft_weight": switch(missing("TRL mixes no demonstrations into RL: ms-swift does (CHORD)"), 0.0),
    "sft_focus": built_in(), "sft_decay_steps": built_in(),
    "entropy_target": switch(missing("TRL's entropy bonus is constant"), 0.0), "entropy_step": built_in(),
    "reference_every": switch(given(lambda plan, value: {"sync_ref_model": True, "ref_model_sync_steps": value}), 0),
    "reference_mixup": lambda plan, value: (to("ref_model_mixup_alpha") if plan["reference_every"] else built_in())(
        plan, value),
    "rollouts": _ROLLOUTS, "importance_cap": _sampler, "importance_mode": built_in("with importance_cap"),
    "importance_floor": _by_vllm(lambda value: {f"{_CORRECTION}_clip_min": value}, 0.0),
    "recompute_logprobs": switch(missing(_RECOMPUTED), False),
    **shared.pool_rules("TRL draws prompts uniformly: sort or filter the data set by pass rate yourself"),
    **shared.stale_rules(
        "TRL", missing("GRPOTrainer samples right before the updates of a batch: trl.experimental.async_grpo has "
                       "max_staleness"), "the dtype and quantization of vLLM"),
    "whiten_rewards": switch(missing("TRL whitens no rewards of tokens"), False),
    **TRL_REWARDS, **_SELECTED, "shaping": choices_of(choices.SHAPING, "GRPOTrainer", _NO_SHAPE),
    "group_size": _GROUPS, "prompts_per_step": given(_per_update), "updates_per_batch": to("num_iterations"),
    "mini_batches": to("steps_per_generation"),
    "clip_low": to("epsilon"), "clip_high": to("epsilon_high"), "temperature": to("temperature"),
    "top_k": to("top_k"), "top_p": to("top_p"), "min_p": switch(to("min_p"), 0.0),
    "repetition_penalty": switch(to("repetition_penalty"), 1.0), "max_new_tokens": to("max_completion_length"),
    "gamma": _NO_CRITIC, "gae_lambda": _NO_CRITIC, "critic_learning_rate": _NO_CRITIC, "value_clip": _NO_CRITIC}


def _own_aggregation(plan: Plan) -> str:
    """The fixed aggregation of a surrogate with its own loss_type; empty for other surrogates."""
    there = choices.SURROGATE[str(plan["surrogate"])].there("GRPOTrainer")
    return there.aggregates if there else ""


def _of_entropy(plan: Plan, value: Any) -> str:
    """A note on TRL's entropy bonus, where it differs; empty without an entropy bonus."""
    said = ("TRL takes the mean over tokens for it, whatever the loss_type" if plan["aggregation"] != "token_mean" else
            "", "it acts on the tokens of top_entropy_quantile only" if plan["top_entropy_share"] < 1 else "")
    return "; ".join(filter(None, said)) if value else ""


_CLIPPED = "it clips the ratio"
_GRPO: Rules = {
    **_ONLINE,
    "beta": given(lambda plan, value: {"beta": value if plan["kl_placement"] != "off" else 0.0}),
    "entropy_coef": given(lambda plan, value: {"entropy_coef": value}, _of_entropy),
    **shared.bounds("delta", "clip_delta", "epsilon_high"),
    "top_entropy_share": switch(to("top_entropy_quantile"), 1.0),
    "off_policy_threshold": switch(to("off_policy_mask_threshold"), 0.0),
    "normalisation": choices_of(choices.NORMALISATION, "GRPOTrainer", "see scale_rewards"),
    "advantage": choices_of(choices.ADVANTAGE, "GRPOTrainer", "GRPOTrainer has the group's mean as its baseline: "
                            "scale_rewards says what it is divided by"),
    "whiten_advantages": _whitened,
    "ratio": choices_of(choices.RATIO, "GRPOTrainer", "it uses ratios of tokens"),
    "surrogate": choices_of(choices.SURROGATE, "GRPOTrainer", _CLIPPED),
    "kl_estimator": choices_of(choices.KL_ESTIMATOR, "GRPOTrainer", "it uses k3"),
    "kl_placement": choice({"loss": ({}, ""), "off": ({}, "")},
                           "GRPOTrainer adds the KL to the loss; RLOOTrainer subtracts it from the reward"),
    "aggregation": shared.aggregated(_own_aggregation, "loss_type", choices_of(
        choices.AGGREGATION, "GRPOTrainer", "loss_type stays at its default")),
}
_RLOO: Rules = {
    **_ONLINE,
    "beta": given(lambda plan, value: {"beta": value if plan["kl_placement"] != "off" else 0.0}),
    "entropy_coef": missing("RLOOTrainer has no entropy bonus: GRPOTrainer has (entropy_coef)"),
    **dict.fromkeys(("importance_cap", "importance_floor"), switch(missing(
        "RLOOTrainer has no such switch: GRPOTrainer has where vLLM samples"), 0.0)),
    "recompute_logprobs": built_in(),  # it always does
    "advantage": choices_of(choices.ADVANTAGE, "RLOOTrainer", "RLOOTrainer compares with the mean of the others in the "
                            "group"),
    "normalisation": choices_of(choices.NORMALISATION, "RLOOTrainer", "see normalize_advantages"),
    "shaping": choices_of(choices.SHAPING, "RLOOTrainer", _NO_SHAPE),
    **shared.only_between("reward_clip_range"),
    **dict.fromkeys(("clip_delta", "dual_clip"), only_with("surrogate", "bounded_clip", switch(missing(
        "RLOOTrainer has no such switch: GRPOTrainer has"), 0.0))),
    "off_policy_threshold": switch(missing("RLOOTrainer has no such switch: GRPOTrainer has"), 0.0),
    "top_entropy_share": switch(missing("RLOOTrainer has no such switch: GRPOTrainer has"), 1.0),
    "whiten_advantages": built_in(),  # the run whitens only what comes from a critic
    "ratio": choices_of(choices.RATIO, "RLOOTrainer", "a ratio of the whole sequence, which is 1 while a batch is used "
                        "once: its gradient is then that of the score function"),
    "surrogate": choices_of(choices.SURROGATE, "RLOOTrainer", _CLIPPED),
    "kl_estimator": choices_of(choices.KL_ESTIMATOR, "RLOOTrainer", "RLOOTrainer uses k1"),
    "kl_placement": choice({"reward": ({}, ""), "off": ({}, "")},
                           "RLOOTrainer subtracts the KL from the reward; GRPOTrainer adds it to the loss"),
    "aggregation": built_in(),  # one ratio for all tokens of a completion
}
_IGNORED = "GMPOTrainer does not read this setting, but GRPOTrainer does"
_GMPO: Rules = {
    **_GRPO, "surrogate": choices_of(choices.SURROGATE, "GMPOTrainer", "GMPOTrainer has the geometric mean only"),
    "ratio": choices_of(choices.RATIO, "GMPOTrainer", "GMPOTrainer clips the ratios of tokens"),
    "aggregation": choices_of(choices.AGGREGATION, "GMPOTrainer", "GMPOTrainer averages over completions"),
    "kl_estimator": choices_of(choices.KL_ESTIMATOR, "GMPOTrainer", "GMPOTrainer uses k3 without the ratio, whose "
                               "gradient is that of KL(π_ref‖π)"),
    "top_entropy_share": switch(to("top_entropy_quantile", note="the geometric mean is that of the kept tokens alone"),
                                1.0),
    **dict.fromkeys(("entropy_coef", "off_policy_threshold", "importance_cap", "importance_floor"), switch(missing(
        _IGNORED), 0.0)),
}
RULES: dict[str, Rules] = {"GRPOTrainer": _GRPO, "GMPOTrainer": _GMPO, "RLOOTrainer": _RLOO}
