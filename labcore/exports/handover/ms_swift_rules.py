"""Arguments of ms-swift's trainers for the knobs of runs.

Where the code differs from TRL's although the argument has the same name, the note says so. Source: ms-swift 4.6.0,
swift/rlhf_trainers and swift/rl_core.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from labcore.catalog import choices
from labcore.exports.handover import shared_rules as shared
from labcore.exports.handover import shell
from labcore.exports.handover.conversations import thinking
from labcore.exports.handover.plan import Line, Plan, Rule, Rules
from labcore.exports.handover.rules import acting, built_in, choice, choices_of, given, missing, only_with, switch, to
from labcore.exports.handover.trl_distillation import teacher, teacher_line
from labcore.exports.handover.trl_online import generations
from labcore.exports.handover.trl_pairs import FOR_PAIRS, losses, second, without

TOOL = "ms-swift"
DEMONSTRATIONS = "demonstrations.jsonl"
_ROWS = "per_device_train_batch_size"


def per_device(rows: int) -> str:
    """As many rows of an update as each GPU gets, for the shell to compute."""
    return f"$(({rows} / $GPUS))"


def _thinking(plan: Plan, value: Any) -> Line:
    """An argument of the chat template, by which the code below writes the prompts."""
    return Line("", value, {}, built_in=True, note="in the code below" if thinking(plan) else "")


_COMMON: Rules = {
    **shared.TRAINING_ARGUMENTS, **shared.BASE_RULES, **shared.TASK_RULES, "thinking": _thinking,
    **shared.adapter(given(lambda plan, value: {
        "lora_rank": value, "lora_dropout": 0.0, "target_modules": "all-linear"}, shared.ALL_LINEAR), to("lora_alpha"))}
SFT: Rules = {
    **_COMMON, "sequences_per_step": given(lambda plan, value: {_ROWS: per_device(value)}),
    "sft_loss": choices_of(choices.SFT_LOSS, TOOL, "all tokens count the same"),
    **dict.fromkeys(("eval_every", "eval_prompts", "temperature", "top_k", "top_p", "max_new_tokens"), shared.MEASURED)}


# ---------------------------------------------------------------- teachers

def _teacher(plan: Plan, value: Any) -> Line:
    """The teacher, which is a model of the same unknown family as the policy."""
    if not choices.needs_teacher(plan.spec.knobs):
        return Line("", value, {}, built_in=True)
    return replace(teacher_line(plan, value), built_in=False, settings={
        "teacher_model": teacher(plan), "teacher_model_type": "any_model"})


_GKD: Rules = {
    **SFT, "teacher": _teacher, "on_policy_share": to("lmbda"),
    "answers": switch(missing("ms-swift has no answers of the teacher: put them into the rows below"), "given"),
    "temperature": to("temperature"), "max_new_tokens": to("max_completion_length"), "top_p": to("top_p"),
    "top_k": given(lambda plan, value: {"top_k": value or -1}),
    "sft_loss": choices_of(choices.SFT_LOSS, TOOL, "see beta")}


# ---------------------------------------------------------------- online

def _kl_estimator(plan: Plan, value: Any) -> Line:
    return choices_of(choices.KL_ESTIMATOR, f"{TOOL}/{plan['kl_placement']}", "ms-swift has k3 in the loss and k1 in "
                      "the reward")(plan, value)


def _advantage(plan: Plan, value: Any) -> Line:
    return shell.advantage(value, "group", TOOL) if shell.whitens(plan, TOOL) else _BASELINE(plan, value)


def _own_aggregation(plan: Plan) -> str:
    """The fixed aggregation of a surrogate with its own loss_type; empty for other surrogates."""
    there = choices.SURROGATE[str(plan["surrogate"])].there(TOOL)
    return there.aggregates if there else ""


def _by_vllm(rule: Rule) -> Rule:
    """`rule` where vLLM samples and the run corrects for that; else the setting says nothing."""
    return lambda plan, value: rule(plan, value) if plan["rollouts"] == "vllm" and plan["importance_cap"] else Line(
        "", value, {}, built_in=True)


def _sampler(plan: Plan, value: Any) -> Line:
    if plan["rollouts"] == "vllm" and value:
        return Line("", value, {f"{_CORRECTION}_mode": plan["importance_mode"], f"{_CORRECTION}_threshold": value})
    return switch(missing(f"ms-swift corrects so only where vLLM samples ({_CORRECTION}_mode)"), 0.0)(plan, value)


def _sampler_mode(plan: Plan, value: Any) -> str:
    return "the ratio of a completion is the geometric mean of its tokens', not their product" if str(
        value).startswith("sequence") else ""


def _demonstrations(plan: Plan, value: Any) -> dict[str, Any]:
    """CHORD's constant weight of the rows in a second data set."""
    return {"chord_sft_dataset": DEMONSTRATIONS, "chord_mu_peak": value, "chord_mu_valley": value,
            "chord_sft_per_device_train_batch_size": per_device(int(plan["prompts_per_step"]) // plan.parts),
            "chord_mu_warmup_steps": 0, "chord_mu_decay_steps": 0}


def _with_demonstrations(rule: Rule) -> Rule:
    return lambda plan, value: rule(plan, value) if plan["sft_weight"] else Line("", value, {}, built_in=True)


_CORRECTION = "rollout_importance_sampling"
_STAYS = "β stays as it is in ms-swift: give the value that it had reached"
_NO_CRITIC = missing("ms-swift trains a critic only on the scores of a reward model (--rlhf_type ppo): the baseline is "
                     "the group's mean instead")
_BASELINE = choices_of(choices.ADVANTAGE, TOOL, "ms-swift has the group's mean as its baseline: scale_rewards says "
                       "what it is divided by")
_GROUPS = given(lambda plan, value: {"num_generations": generations(plan)},
                lambda plan, value: "" if value > 1 else "ms-swift compares completions of one prompt, so "
                f"{generations(plan)} of fewer prompts make the same batch")
_MASKED = "ms-swift also counts masked rows in its mean, so the gradient is smaller by the share that is kept"
ONLINE: Rules = {
    **_COMMON, **shared.REWARD_RULES, "teacher": _teacher,
    "teacher_discount": switch(missing("the advantage of each token is its own log-ratio only"), 0.0),
    **shared.pool_rules("ms-swift draws prompts uniformly: sort or filter the data set by pass rate yourself"),
    **shared.stale_rules(TOOL, missing("ms-swift samples right before the updates of a batch, or one batch earlier "
                                       "with --async_generate"), "vllm_engine_kwargs"),
    "beta": given(lambda plan, value: {"beta": value if plan["kl_placement"] != "off" else 0.0}),
    "kl_placement": given(lambda plan, value: {"kl_in_reward": value == "reward"}), "kl_estimator": _kl_estimator,
    "adaptive_kl_target": switch(missing(_STAYS), 0.0), "adaptive_kl_horizon": lambda plan, value: Line(
        "", value, {}, built_in=not plan["adaptive_kl_target"], note=_STAYS if plan["adaptive_kl_target"] else ""),
    "group_size": _GROUPS, "prompts_per_step": given(lambda plan, value: {_ROWS: per_device(max(
        int(value) * int(plan["group_size"]) // plan.parts, generations(plan)))}),
    "updates_per_batch": to("num_iterations"), "mini_batches": to("steps_per_generation"),
    "clip_low": to("epsilon"), "clip_high": to("epsilon_high"), **shared.bounds("delta", "clip_delta", "epsilon_high"),
    "temperature": to("temperature"), "top_p": to("top_p"), "top_k": given(lambda plan, value: {"top_k": value or -1}),
    "min_p": switch(to("min_p"), 0.0), "repetition_penalty": switch(to("repetition_penalty"), 1.0),
    "max_new_tokens": to("max_completion_length"),
    "entropy_coef": switch(missing("ms-swift has no entropy bonus"), 0.0),
    "entropy_target": switch(missing("ms-swift has no entropy bonus"), 0.0), "entropy_step": built_in(),
    "sft_weight": switch(given(_demonstrations, "of newly drawn prompts, not of the batch's prompts"), 0.0),
    "sft_focus": _with_demonstrations(given(lambda plan, value: {"chord_enable_phi_function": value})),
    "sft_decay_steps": _with_demonstrations(switch(given(lambda plan, value: {
        "chord_mu_decay_steps": value * plan.passes * plan.parts, "chord_mu_valley": 0.0}), 0)),
    "top_entropy_share": switch(to("top_entropy_quantile"), 1.0),
    "off_policy_threshold": switch(missing("ms-swift 4.6.0 stops with an error at off_policy_sequence_mask_delta"),
                                   0.0),
    "rollouts": choice({"engine": ({}, ""), "vllm": ({"use_vllm": True, "vllm_mode": "colocate"}, "")}, "see use_vllm"),
    "importance_cap": _sampler, "importance_mode": _by_vllm(given(
        lambda plan, value: {f"{_CORRECTION}_mode": value}, _sampler_mode)),
    "importance_floor": _by_vllm(switch(missing("ms-swift has no lower bound of these ratios"), 0.0)),
    "recompute_logprobs": switch(missing("ms-swift recomputes them where a batch is used more than once"), False),
    "reference_every": switch(given(lambda plan, value: {"sync_ref_model": True, "ref_model_sync_steps": value}), 0),
    "reference_mixup": lambda plan, value: (to("ref_model_mixup_alpha") if plan["reference_every"] else built_in())(
        plan, value),
    "whiten_rewards": switch(missing("ms-swift whitens no rewards of tokens"), False),
    "whiten_advantages": lambda plan, value: (switch(missing("ms-swift whitens no advantages of tokens"), False) if (
        choices.needs_teacher(plan.spec.knobs)) else built_in())(plan, value),  # of others only those of a critic
    "advantage": _advantage, "normalisation": choices_of(choices.NORMALISATION, TOOL, "see scale_rewards"),
    "ratio": choices_of(choices.RATIO, TOOL, "it uses ratios of tokens"),
    "surrogate": choices_of(choices.SURROGATE, TOOL, "it clips the ratio"),
    "aggregation": shared.aggregated(_own_aggregation, "loss_type", choices_of(
        choices.AGGREGATION, TOOL, "loss_type stays at its default")),
    "shaping": choices_of(choices.SHAPING, TOOL, "write it into score() below"),
    "selection": choices_of(choices.SELECTION, TOOL, "ms-swift trains on all completions"),
    "overlong_filter": switch(to("overlong_filter", note=_MASKED), False),
    "gamma": _NO_CRITIC, "gae_lambda": _NO_CRITIC, "critic_learning_rate": _NO_CRITIC, "value_clip": _NO_CRITIC}


# ---------------------------------------------------------------- pairs

_PAIRS: Rules = {
    **_COMMON, "beta": to("beta"), "pairs_per_step": given(lambda plan, value: {_ROWS: per_device(value)}),
    "pairs": shared.pairs_of("ms-swift has no online DPO"),
    **dict.fromkeys(("eval_every", "eval_prompts"), shared.MEASURED),
    **dict.fromkeys(("pair_prompts", "group_size", "temperature", "top_k", "top_p", "max_new_tokens", *shared.FILTERS),
                    FOR_PAIRS)}
_DPO: Rules = {
    **_PAIRS, "preference_loss": losses(TOOL), **dict.fromkeys(("second_loss", "third_loss"), second(TOOL)),
    **dict.fromkeys(choices.LOSSES.values(), built_in()),
    "reference_every": switch(missing("ms-swift's DPO keeps its reference"), 0), "reference_mixup": built_in(),
    "divergence": choices_of(choices.DIVERGENCE, TOOL, "ms-swift uses the reverse KL"),
    "divergence_alpha": only_with("divergence", "alpha", missing("ms-swift uses the reverse KL")),
    "ld_alpha": acting(switch(to("ld_alpha", note="applied to the policy's log-probs, not to the "
                                 "reference's"), 1), "ld_alpha"),
    "pair_weighting": switch(missing("ms-swift does not weight pairs"), False)}


def _one_loss(kind: str) -> Rules:
    """An algorithm that has no second loss."""
    return {**_PAIRS, **without(f"--rlhf_type {kind}"),
            "preference_loss": choices_of(choices.PREFERENCE_LOSS, TOOL, f"--rlhf_type {kind} has another loss")}


RULES: dict[str, Rules] = {  # by the algorithm that `swift rlhf` is asked for; SFT is a command of its own
    "grpo": ONLINE, "sft": SFT, "gkd": _GKD, "dpo": _DPO, "orpo": _one_loss("orpo"),
    "kto": {**_one_loss("kto"), "pairs_per_step": given(lambda plan, value: {_ROWS: per_device(2 * value)},
                                                        "in single completions, two of each pair")},
    "cpo": {**_one_loss("cpo"), "second_loss": choice({choices.NO_LOSS: ({"cpo_alpha": 0.0}, ""), "sft": ({}, "")},
                                                      "--rlhf_type cpo adds nothing but the SFT loss"),
            "second_weight": only_with("second_loss", "sft", to("cpo_alpha"))},
    "rm": {**_PAIRS, **shared.LABELS, "margin": built_in("in the rows below"), "eval_pairs": shared.MEASURED,
           "centering": switch(to("center_rewards_coefficient"), 0.0)}}
# The algorithm for TRL's trainer, which the run's choices name.
OF_TRAINER = {"DPOTrainer": "dpo", "KTOTrainer": "kto", "CPOTrainer": "cpo", "ORPOTrainer": "orpo",
              "SFTTrainer": "sft", "GKDTrainer": "gkd", "RewardTrainer": "rm",
              **dict.fromkeys(("GRPOTrainer", "RLOOTrainer", "GMPOTrainer", "DistillationTrainer"), "grpo")}
