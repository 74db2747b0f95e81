"""What becomes of the knobs of online runs in TRL: in GRPOTrainer, GMPOTrainer and RLOOTrainer."""

from __future__ import annotations

from typing import Any

from labcore.exports.handover import trl_rewards
from labcore.exports.handover.plan import (
    Line,
    Plan,
    Rules,
    aggregated,
    bounds,
    built_in,
    choice,
    given,
    missing,
    only_with,
    switch,
    to,
)


def generations(plan: Plan) -> int:
    """Completions of a prompt: the run's, or where that is 1, as many as still cut its batch into whole groups."""
    group, rows = int(plan["group_size"]), int(plan["prompts_per_step"]) // plan.parts
    return group if group > 1 else next((n for n in (8, 4, 2) if rows % n == 0), 2)


def _per_update(plan: Plan, _: Any) -> dict[str, Any]:
    rows = int(plan["prompts_per_step"]) * int(plan["group_size"]) // plan.parts
    return {"per_device_train_batch_size": max(rows, generations(plan))}


def _whitened(plan: Plan, value: Any) -> Line:
    if plan["advantage"] != "gae":  # the run whitens only what comes from a critic
        return Line("", value, {}, built_in=True)
    return Line("", value, {"scale_rewards": "batch" if value else "none"},
                note="by the rewards' spread, not the advantages'")


_NO_CRITIC = missing("TRL has no trainer with a critic (PPOTrainer is gone since 1.13): the baseline is the "
                     "group's mean instead")
_SHAPES: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({}, ""), "overlong": ({}, "add trl.rewards.get_soft_overlong_punishment to the reward functions"),
    "length_cost": ({}, "no reward function for it: write it into score() below"),
    "clipped": ({}, "GRPOTrainer clips no rewards: write it into score() below")}
_SHAPING: Rules = {
    "shaping": choice(_SHAPES, "see trl.rewards"),
    "reward_clip": only_with("shaping", "clipped", missing("GRPOTrainer clips no rewards: write it into score() "
                                                           "below")),
    **dict.fromkeys(("overlong_buffer", "overlong_penalty"), only_with("shaping", "overlong", missing(
        "add trl.rewards.get_soft_overlong_punishment to the reward functions"))),
    "selection": choice({
        "everything": ({}, ""), "not_truncated": ({"mask_truncated_completions": True}, ""),
        "informative": ({}, "TRL has no dynamic sampling: zero-variance groups stay in the batch with advantage 0"),
        "best_of_group": ({}, "TRL trains on all completions: keep the best of each prompt and use SFTTrainer"),
    }, "see mask_truncated_completions"),
    "overlong_filter": switch(to("mask_truncated_completions", note="masked rows stay in TRL's number of sequences: "
                                 "smaller by the share kept"), False),
    "resample_rounds": only_with("selection", "informative", missing(
        "TRL has no dynamic sampling: zero-variance groups stay in the batch with advantage 0"))}
_GROUPS = given(lambda plan, value: {"num_generations": generations(plan)},
                lambda plan, value: "" if value > 1 else "TRL compares completions of one prompt, so "
                f"{generations(plan)} of fewer prompts make the same batch")
_STAYS = "β stays as it is in TRL: give the value that it had reached"
_CORRECTION = "vllm_importance_sampling"
_ROLLOUTS = choice({"engine": ({}, ""), "vllm": ({"use_vllm": True, "vllm_mode": "colocate"}, "")}, "see use_vllm")


def _sampler(plan: Plan, value: Any) -> Line:
    """What becomes of the correction for another sampler, which GRPOTrainer makes where vLLM samples, by itself."""
    if plan["rollouts"] == "vllm":
        return Line("", value, {f"{_CORRECTION}_mode": "token_truncate", f"{_CORRECTION}_clip_max": value} if value else
                    {f"{_CORRECTION}_correction": False})
    return switch(missing(f"TRL corrects so only where vLLM samples ({_CORRECTION}_correction)"), 0.0)(plan, value)


_ONLINE: Rules = {
    "adaptive_kl_target": switch(missing(_STAYS), 0.0), "adaptive_kl_horizon": lambda plan, value: Line(
        "", value, {}, built_in=not plan["adaptive_kl_target"], note=_STAYS if plan["adaptive_kl_target"] else ""),
    "rollouts": _ROLLOUTS, "importance_cap": _sampler,
    "whiten_rewards": switch(missing("TRL whitens no rewards of tokens"), False),
    **trl_rewards.RULES, **_SHAPING, "group_size": _GROUPS, "prompts_per_step": given(_per_update),
    "updates_per_batch": to("num_iterations"), "mini_batches": to("steps_per_generation"),
    "clip_low": to("epsilon"), "clip_high": to("epsilon_high"), "temperature": to("temperature"),
    "top_k": to("top_k"), "top_p": to("top_p"), "max_new_tokens": to("max_completion_length"),
    "gamma": _NO_CRITIC, "gae_lambda": _NO_CRITIC, "critic_learning_rate": _NO_CRITIC, "value_clip": _NO_CRITIC}

# The surrogates with a loss type of their own, which aggregates in one way only.
_OWN_AGGREGATION = {"detached_weight": "token_mean", "soft_gate": "sequence_mean_token_mean",
                    "gamma_weight": "token_mean"}


def _of_entropy(plan: Plan, value: Any) -> str:
    """What is different about the entropy bonus there, where there is one."""
    said = ("TRL takes the mean over tokens for it, whatever the loss_type" if plan["aggregation"] != "token_mean" else
            "", "it acts on the tokens of top_entropy_quantile only" if plan["top_entropy_share"] < 1 else "")
    return "; ".join(filter(None, said)) if value else ""


_GRPO: Rules = {
    **_ONLINE,
    "beta": given(lambda plan, value: {"beta": value if plan["kl_placement"] != "off" else 0.0}),
    "entropy_coef": given(lambda plan, value: {"entropy_coef": value}, _of_entropy),
    **bounds("delta", "clip_delta", "epsilon_high"),
    "top_entropy_share": switch(to("top_entropy_quantile"), 1.0),
    "off_policy_threshold": switch(to("off_policy_mask_threshold"), 0.0),
    "normalisation": choice({
        "none": ({}, ""),
        "sequences": ({"scale_rewards": "batch"}, "by the spread of the batch's rewards, not of its advantages"),
        "tokens": ({"scale_rewards": "batch"}, "by the spread of the batch's rewards, not of its tokens' advantages"),
    }, "see scale_rewards"),
    "advantage": choice({
        "group_standardised": ({"scale_rewards": "group"}, ""), "group_mean": ({"scale_rewards": "none"}, ""),
        "batch_standardised": ({"scale_rewards": "batch"}, ""),
        "leave_one_out": ({"scale_rewards": "none"}, "GRPOTrainer subtracts the mean of the whole group: the advantage "
                          "is smaller by the factor (G − 1)/G"),
        "batch_mean": ({"scale_rewards": "none"}, "GRPOTrainer subtracts the group's mean, not the batch's"),
        "greedy_baseline": ({"scale_rewards": "none"}, "GRPOTrainer subtracts the group's mean, not the reward of a "
                            "greedy completion"),
        "moving_average": ({"scale_rewards": "none"}, "GRPOTrainer subtracts the group's mean, not that of all earlier "
                           "rewards"),
        "beta_normalised": ({"scale_rewards": "group"}, "GRPOTrainer divides by the group's standard deviation: its "
                            "loss_type bnpo is another thing, the mean over tokens"),
        "parts_standardised": ({"multi_objective_aggregation": "normalize_then_sum"}, "make the named rewards two "
                               "reward functions, and weigh them by reward_weights"),
        "one": ({"scale_rewards": "none"}, "GRPOTrainer subtracts the group's mean: to imitate, use SFTTrainer"),
        "reward_to_go_whitened": ({"scale_rewards": "batch"}, "GRPOTrainer subtracts the group's mean and divides by "
                                  "the spread of the batch's rewards, not of its tokens' returns"),
    }, "GRPOTrainer has the group's mean as its baseline: scale_rewards says what it is divided by"),
    "whiten_advantages": _whitened,
    "ratio": choice({"token": ({"importance_sampling_level": "token"}, ""),
                     "sequence_mean": ({"importance_sampling_level": "sequence"}, ""),
                     "sequence_mean_token": ({"importance_sampling_level": "sequence"}, "the same gradient as long as "
                                             "all tokens of a completion have one advantage")},
                    "ratios of tokens instead"),
    "surrogate": choice({
        "clip": ({}, ""), "bounded_clip": ({}, ""), "detached_weight": ({"loss_type": "cispo"}, ""),
        "soft_gate": ({"loss_type": "sapo"}, ""),
        "gamma_weight": ({"loss_type": "vespo"}, ""),
    }, "always clipped: the same as long as a batch is used once"),
    "ratio_cap": to("epsilon_high"), "gate_positive": to("sapo_temperature_pos"),
    "gate_negative": to("sapo_temperature_neg"),
    "gamma_power_positive": to("vespo_k_pos"), "gamma_rate_positive": to("vespo_lambda_pos"),
    "gamma_power_negative": to("vespo_k_neg"), "gamma_rate_negative": to("vespo_lambda_neg"),
    "kl_estimator": choice({
        "k3": ({"use_bias_correction_kl": False}, ""), "ratio_k3": ({"use_bias_correction_kl": True}, ""),
        "k1": ({"use_bias_correction_kl": True}, "k3 × ratio in the loss: the gradient of each token's KL with its "
               "prefix held fixed; k1 in the reward has that of the KL of whole completions, which is the same only "
               "for completions of one token"),
        "k2": ({"use_bias_correction_kl": True}, "k3 × ratio, which on policy has the same expected gradient"),
    }, "k3 instead"),
    "kl_placement": choice({"loss": ({}, ""), "off": ({}, "")},
                           "GRPOTrainer adds the KL to the loss; RLOOTrainer subtracts it from the reward"),
    "aggregation": aggregated(lambda plan: _OWN_AGGREGATION.get(plan["surrogate"], ""), "loss_type", choice({
        "sequence_mean_token_mean": ({"loss_type": "grpo"}, ""), "token_mean": ({"loss_type": "dapo"}, ""),
        "constant_length": ({"loss_type": "dr_grpo"}, ""),
        "sequence_mean_token_sum": ({"loss_type": "luspo"}, ""),
    }, "loss_type stays at its default")),
}
_RLOO: Rules = {
    **_ONLINE,
    "beta": given(lambda plan, value: {"beta": value if plan["kl_placement"] != "off" else 0.0}),
    "entropy_coef": missing("RLOOTrainer has no entropy bonus: GRPOTrainer has (entropy_coef)"),
    "importance_cap": switch(missing("RLOOTrainer has no such switch: GRPOTrainer has where vLLM samples"), 0.0),
    "advantage": choice({"leave_one_out": ({}, "")}, "RLOOTrainer compares with the mean of the others in the group"),
    "normalisation": choice({
        "none": ({"normalize_advantages": False}, ""), "sequences": ({"normalize_advantages": True}, ""),
        "tokens": ({"normalize_advantages": True}, "over completions, which then weigh alike"),
    }, "see normalize_advantages"),
    "shaping": choice({**_SHAPES, "clipped": ({}, "")}, "see trl.rewards"),  # clipped by reward_clip_range
    "reward_clip": only_with("shaping", "clipped", given(lambda plan, value: {"reward_clip_range": (-value, value)})),
    **dict.fromkeys(("clip_delta", "dual_clip"), only_with("surrogate", "bounded_clip", switch(missing(
        "RLOOTrainer has no such switch: GRPOTrainer has"), 0.0))),
    "off_policy_threshold": switch(missing("RLOOTrainer has no such switch: GRPOTrainer has"), 0.0),
    "top_entropy_share": switch(missing("RLOOTrainer has no such switch: GRPOTrainer has"), 1.0),
    "whiten_advantages": built_in(),  # the run whitens only what comes from a critic
    "ratio": choice({"sequence_sum": ({}, "")}, "a ratio of the whole sequence, which is 1 while a batch is used once: "
                    "its gradient is then that of the score function"),
    "surrogate": choice({"clip": ({}, "")}, "always clipped: the same as long as a batch is used once"),
    **dict.fromkeys(("ratio_cap", "gate_positive", "gate_negative", "gamma_power_positive", "gamma_rate_positive",
                     "gamma_power_negative", "gamma_rate_negative"), missing("RLOOTrainer clips, and has no other "
                                                                             "surrogate: GRPOTrainer has")),
    "kl_estimator": choice({"k1": ({}, "")}, "RLOOTrainer takes k1"),
    "kl_placement": choice({"reward": ({}, ""), "off": ({}, "")},
                           "RLOOTrainer subtracts the KL from the reward; GRPOTrainer adds it to the loss"),
    "aggregation": built_in(),  # one ratio for all tokens of a completion
}
_IGNORED = "GMPOTrainer does not read this setting, but GRPOTrainer does"
_GMPO: Rules = {
    **_GRPO, "surrogate": choice({"geometric_clip": ({}, "")}, "GMPOTrainer has the geometric mean only"),
    "ratio": choice({"token": ({}, "")}, "GMPOTrainer clips the ratios of tokens"),
    "aggregation": choice({"sequence_mean_token_mean": ({}, "")}, "GMPOTrainer takes the mean over completions"),
    "kl_estimator": choice({"k3": ({}, "")}, "GMPOTrainer takes k3 without the ratio, whose gradient is that of "
                           "KL(π_ref‖π)"),
    "top_entropy_share": switch(to("top_entropy_quantile", note="the geometric mean is that of the kept tokens alone"),
                                1.0),
    **dict.fromkeys(("entropy_coef", "off_policy_threshold", "importance_cap"), switch(missing(_IGNORED), 0.0)),
}
RULES: dict[str, Rules] = {"GRPOTrainer": _GRPO, "GMPOTrainer": _GMPO, "RLOOTrainer": _RLOO}
