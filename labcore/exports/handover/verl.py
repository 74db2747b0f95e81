"""The run as a shell script for verl: Hydra keys for `verl.trainer.main_ppo`, or for its SFT trainer."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from labcore.catalog import choices
from labcore.catalog.llm.optimizer import COSINE, LINEAR
from labcore.exports.handover import shared_rules as shared
from labcore.exports.handover import shell, shell_episodes
from labcore.exports.handover.plan import Line, Plan, Rule, Rules
from labcore.exports.handover.remarks import remarks, requirement
from labcore.exports.handover.rules import built_in, choice, choices_of, given, lines, missing, switch, to
from labcore.exports.handover.task_code import packages, task_code

VERSION = "0.9.1"
_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
# The texts as they are, an answer with its end token: verl gives every prompt to a chat template.
_TEMPLATE = """
TEMPLATE='{% for message in messages %}{{ message.content }}\
{% if message.role == "assistant" %}{{ eos_token }}{% endif %}{% endfor %}'
"""
_IN_8_BITS = {"optimizer": "AdamW8bit", "optimizer_impl": "bitsandbytes.optim"}
_BF16 = given(lambda plan, value: {f"{_ACTOR}.fsdp_config.dtype": "bfloat16"} if value == "bf16" else {},
              lambda plan, value: "" if value == "bf16" else "verl computes in bfloat16 on weights of float32")


def _of(plan: Plan, actor: str, critic: str) -> list[str]:
    """The settings of the policy, and of the critic where there is one."""
    return [actor, critic] if plan.critic else [actor]


def _of_models(key: str, note: str = "") -> Rule:
    """The knob as a setting of the policy's model, and of the critic's where there is one."""
    return given(lambda plan, value: {
        f"{part}.{key}": value for part in _of(plan, "actor_rollout_ref.model", "critic.model")}, note)


def _optimizer(*places: str) -> Rules:
    """The numbers of AdamW and the schedule, at `places`; the last one is the critic's where there are two."""
    def at(key: str, value: Any, plan: Plan) -> dict[str, Any]:
        return {f"{place}.{key}": value for place in (places if plan.critic else places[:1])}

    def betas(plan: Plan, value: Any) -> Line:
        usual = plan.betas == (0.9, 0.999)
        return Line("", value, {} if usual else at("betas", [*plan.betas], plan), built_in=usual)

    return {
        "schedule": given(lambda plan, value: at("lr_scheduler_type", COSINE if value == LINEAR else value, plan),
                          lambda plan, value: "verl has no linear schedule: half a cosine, which ends at 0 as well"
                          if value == LINEAR else ""),
        "warmup_steps": switch(given(lambda plan, value: at("lr_warmup_steps", value, plan)), 0),
        "weight_decay": given(lambda plan, value: at("weight_decay", value, plan),
                              lambda plan, value: "biases and norms decay too" if value else ""),
        "adam_beta1": betas, "adam_beta2": betas,
        "adam_epsilon": switch(missing(f"set it in {places[0]}.override_optimizer_config"), 1e-8)}


def _compiled(name: str) -> Rule:
    return given(lambda plan, value: {name: value}, lambda plan, value:
                 "of the entropy only: verl compiles no other part of the model" if value else "")


def _kl_estimator(plan: Plan, value: Any) -> Line:
    key = {"loss": f"{_ACTOR}.kl_loss_type", "reward": "algorithm.kl_penalty"}.get(plan["kl_placement"])
    if key is None:
        return Line("", value, {}, note="the KL is placed nowhere")
    return choices_of(choices.KL_ESTIMATOR, "verl", f"see {key}", key)(plan, value)


def _normalised(plan: Plan, value: Any) -> Line:
    found = "reinforce_plus_plus" if shell.against(plan) == "batch" else "reinforce_plus_plus_baseline"
    return shell.normalisation(plan, value, "verl", "algorithm.adv_estimator", found)


def _advantage(plan: Plan, value: Any) -> Line:
    if shell.whitens(plan, "verl"):
        return shell.advantage(value, "batch" if shell.against(plan) == "batch" else "group", "verl")
    return _ADVANTAGE(plan, value)


def _aggregation(plan: Plan, value: Any) -> Line:
    """As set; some losses aggregate in one way only, and then it is the KL and the entropy that the setting is for."""
    line = _AGGREGATION(plan, value)
    there = choices.SURROGATE[str(plan["surrogate"])].there("verl")
    if there is None or there.aggregates in ("", value):
        return line
    return replace(line, note=f"of the KL and the entropy; policy_loss.loss_mode {there.name} always takes the "
                   f"{choices.AGGREGATION[there.aggregates].label}")


_SMALLEST = 1e-8  # verl's lower bound must be above 0


def _sampler(plan: Plan, value: Any) -> dict[str, Any]:
    """The correction for another sampler: one bound truncates there, two leave out what is outside of them."""
    level, outside = str(plan["importance_mode"]).split("_")
    bounds = f"{plan['importance_floor'] or _SMALLEST:g}_{value:g}" if outside == "mask" else value
    return {"algorithm.rollout_correction.rollout_is": level,
            "algorithm.rollout_correction.rollout_is_threshold": bounds}


def _sampler_note(plan: Plan, value: Any) -> str:
    truncated = str(plan["importance_mode"]).endswith("truncate")
    return "verl truncates from above only" if truncated and plan["importance_floor"] else ""


_ADVANTAGE = choices_of(choices.ADVANTAGE, "verl", "see algorithm.adv_estimator")
_AGGREGATION = choices_of(choices.AGGREGATION, "verl", "see loss_agg_mode")
_ONLINE: Rules = {
    "beta": given(lambda plan, value: {
        "loss": {f"{_ACTOR}.kl_loss_coef": value}, "reward": {"algorithm.kl_ctrl.kl_coef": value},
        "off": {f"{_ACTOR}.use_kl_loss": False}}[plan["kl_placement"]]),
    "learning_rate": to(f"{_ACTOR}.optim.lr"), "max_grad_norm": to(f"{_ACTOR}.optim.clip_grad"),
    "clip_low": to(f"{_ACTOR}.clip_ratio_low"), "clip_high": to(f"{_ACTOR}.clip_ratio_high"),
    "group_size": to(f"{_ROLLOUT}.n"), "prompts_per_step": given(lambda plan, value: {
        "data.train_batch_size": value, f"{_ACTOR}.ppo_mini_batch_size": value // plan.parts}),
    "updates_per_batch": to(f"{_ACTOR}.ppo_epochs"),
    "mini_batches": given(lambda plan, value: {f"{_ACTOR}.ppo_mini_batch_size": plan.batch // plan.parts}),
    "temperature": to(f"{_ROLLOUT}.temperature"), "top_p": to(f"{_ROLLOUT}.top_p"),
    "top_k": given(lambda plan, value: {f"{_ROLLOUT}.top_k": value or -1}),
    "min_p": switch(missing("verl's rollout settings have no min-p"), 0.0),
    "repetition_penalty": switch(missing("verl's agent loop always samples with a penalty of 1"), 1.0),
    "max_new_tokens": to("data.max_response_length"), "entropy_coef": to(f"{_ACTOR}.entropy_coeff"),
    **shared.bounds(f"{_ACTOR}.clip_ratio_c", "dual_clip", "clip_ratio_high"),
    "top_entropy_share": switch(missing("verl leaves no tokens out by their entropy"), 1.0),
    "off_policy_threshold": switch(missing("verl has no mask of single off-policy completions by their mean log-ratio: "
                                           "see algorithm.rollout_correction.rollout_rs"), 0.0),
    "rollouts": given(lambda plan, value: {f"{_ROLLOUT}.name": "vllm"},
                      lambda plan, value: "" if value == "vllm" else shared.BY_VLLM),
    "importance_cap": switch(given(_sampler, _sampler_note), 0.0),
    "reference_every": switch(missing("verl never moves its reference"), 0), "reference_mixup": built_in(),
    "importance_floor": built_in("with importance_cap"), "importance_mode": built_in("with importance_cap"),
    "recompute_logprobs": built_in(),  # it always does
    **shared.pool_rules("write a curriculum sampler: see data.sampler.class_path"),
    **shared.stale_rules(
        "verl", missing("main_ppo samples right before the updates of a batch: verl's fully asynchronous trainer has "
                        "async_training.staleness_threshold"), f"{_ROLLOUT}.quantization"),
    "adaptive_kl_target": switch(given(lambda plan, value: {
        "algorithm.kl_ctrl.type": "adaptive", "algorithm.kl_ctrl.target_kl": value}, lambda plan, value:
        "" if plan["kl_placement"] == "reward" else "it moves the KL in the reward only"), 0.0),
    "sft_weight": switch(missing("verl mixes no demonstrations into RL: ms-swift does (CHORD)"), 0.0),
    "sft_focus": built_in(), "sft_decay_steps": built_in(),
    "entropy_target": switch(missing("verl's entropy bonus is constant"), 0.0), "entropy_step": built_in(),
    "adaptive_kl_horizon": lambda plan, value: Line("", value, {"algorithm.kl_ctrl.horizon": value} if plan[
        "adaptive_kl_target"] else {}, built_in=not plan["adaptive_kl_target"]),
    "whiten_rewards": switch(missing("verl whitens no rewards of tokens"), False),
    "normalisation": _normalised, "advantage": _advantage,
    "ratio": choices_of(choices.RATIO, "verl", "see policy_loss.loss_mode"),
    "surrogate": choices_of(choices.SURROGATE, "verl", "see policy_loss.loss_mode"),
    "shaping": choices_of(choices.SHAPING, "verl", "write it into score() below"),
    "selection": choices_of(choices.SELECTION, "verl", "see algorithm.filter_groups"),
    "overlong_filter": switch(missing("verl trains on truncated completions too"), False),
    **shared.REWARD_RULES,
    "kl_estimator": _kl_estimator,
    "kl_placement": given(lambda plan, value: {f"{_ACTOR}.use_kl_loss": value == "loss",
                                               "algorithm.use_kl_in_reward": value == "reward"}),
    "aggregation": _aggregation,
    "gamma": to("algorithm.gamma"), "gae_lambda": to("algorithm.lam"),
    "critic_learning_rate": to("critic.optim.lr"), "value_clip": to("critic.cliprange_value"),
    "whiten_advantages": choice({True: ({}, "")}, "verl always whitens the advantages of a critic"),
    "dtype": _BF16, **shared.BASE_RULES, **shared.TASK_RULES, **_optimizer(f"{_ACTOR}.optim", "critic.optim"),
    "gradient_checkpointing": _of_models("enable_gradient_checkpointing"),
    "optimizer": switch(given(lambda plan, value: {
        f"{part}.{key}": name for part in _of(plan, f"{_ACTOR}.optim", "critic.optim")
        for key, name in _IN_8_BITS.items()}), "adamw"),
    # Not actor.use_torch_compile, which nothing reads.
    "compile": _compiled(f"{_ACTOR}.fsdp_config.use_torch_compile"),
    **shared.adapter(_of_models("lora_rank", shared.ALL_LINEAR), _of_models("lora_alpha"))}
_SFT: Rules = {
    "learning_rate": to("optim.lr"), "max_grad_norm": to("optim.clip_grad"),
    "sequences_per_step": to("data.train_batch_size"),
    "sft_loss": choices_of(choices.SFT_LOSS, "verl", "its SFT counts all tokens the same"),
    "dtype": given(lambda plan, value: {"engine.dtype": "bfloat16"} if value == "bf16" else {},
                   lambda plan, value: "" if value == "bf16" else "verl computes in bfloat16 on weights of float32"),
    **dict.fromkeys(("eval_every", "eval_prompts", "temperature", "top_k", "top_p", "max_new_tokens"), shared.MEASURED),
    "gradient_checkpointing": to("model.enable_gradient_checkpointing"),
    "optimizer": switch(given(lambda plan, value: {f"optim.{key}": name for key, name in _IN_8_BITS.items()}), "adamw"),
    "compile": _compiled("engine.use_torch_compile"), **_optimizer("optim"),
    **shared.adapter(to("model.lora_rank", note=shared.ALL_LINEAR), to("model.lora_alpha")),
    **shared.BASE_RULES, **shared.TASK_RULES}
_NONE = {"preference": missing(f"verl {VERSION} trains no preference loss"),
         **dict.fromkeys(("prm", "reward_model"), missing(f"no equivalent: verl {VERSION} trains no reward model"))}
RULES: dict[str, Rules] = {"online": _ONLINE, "sft": _SFT, "preference": {}, "prm": {}, "reward_model": {}}


def mapped(plan: Plan) -> list[Line]:
    """The settings of each knob of the run in verl."""
    none = _NONE.get(plan.loop)
    return lines(plan, dict.fromkeys(plan.spec.knobs, none) if none else RULES[plan.loop], "verl")


def settings(plan: Plan) -> dict[str, Any]:
    """Hydra keys and their values: first the run's knobs, then settings for parts of the lab without a knob."""
    # verl has no switch for its dual clip: a bound that no ratio reaches turns it off.
    found: dict[str, Any] = {f"{_ACTOR}.clip_ratio_c": 1e6} if plan.loop == "online" else {}
    for line in mapped(plan):
        found |= line.settings
    template = f"{'' if plan.loop == 'sft' else 'actor_rollout_ref.'}model.custom_chat_template"
    plain = {} if plan.chat else {template: "$TEMPLATE"}
    common = {"trainer.nnodes": 1, "trainer.n_gpus_per_node": "$GPUS", "trainer.logger": "[console]",
              "trainer.total_training_steps": plan.steps, "trainer.total_epochs": plan.episodes,
              "trainer.save_freq": plan.steps, "trainer.experiment_name": plan.run}
    if plan.loop == "sft":
        return found | common | {
            "model.path": "$MODEL", **plain, "data.train_files": "train.parquet", "trainer.seed": plan.spec.seed}
    critic = {"critic.model.path": "$MODEL", "critic.optim.clip_grad": plan["max_grad_norm"]} if plan.critic else {}
    return found | common | critic | {
        "actor_rollout_ref.model.path": "$MODEL", **plain,
        "data.train_files": "train.parquet", "data.val_files": "test.parquet", "data.seed": plan.spec.seed,
        **(_EPISODES if plan.spec.task_row.has_turns else {"reward.custom_reward_function.path": "task.py"}),
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ROLLOUT}.tensor_model_parallel_size": 1, f"{_ROLLOUT}.seed": plan.spec.seed,
        "trainer.val_before_train": False, "trainer.test_freq": -1}


_SAID = {"critic.optim.clip_grad": "max_grad_norm", f"{_ACTOR}.clip_ratio_c": "no second clip of bad tokens",
         "trainer.save_freq": "once, at the end", f"{_ACTOR}.use_dynamic_bsz": "as much at a time as fits",
         "actor_rollout_ref.model.custom_chat_template": "the texts as they are; leave it out for a chat model",
         "model.custom_chat_template": "the texts as they are; leave it out for a chat model"}


def override(key: str, value: Any) -> str:
    """A setting as Hydra reads it: texts with other than plain characters stand in quotes."""
    text = str(value)
    if isinstance(value, str) and not re.fullmatch(r"[\w.+-]*|\$(GPUS|MODEL)|\[\w+\]", text):
        text = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"{key}={text}"


def script(plan: Plan) -> str:
    """The whole script; for what learns from pairs a few comments."""
    found = mapped(plan)
    if plan.spec.task_row.has_turns and not shell_episodes.plays(plan):
        return shell.no_episodes(found, "verl", VERSION)
    if plan.loop in _NOTHING:
        return f"{_NOTHING[plan.loop]}#\n{remarks(found, 'verl')}\n"
    needs = requirement("verl", VERSION, *_EXTRAS[plan.loop]) + packages(plan, "antlr4-9-3")  # as Hydra
    if plan["optimizer"] == "adamw_8bit":
        needs += " bitsandbytes"
    top = shell.head(plan, found, "verl", "verl", VERSION, needs, f"verl/trainer/config/{_CONFIGS[plan.loop]}.yaml")
    names = _SAID | {key: line.knob for line in found for key in line.settings}
    rows = [(shell.quoted(override(key, value)), names.get(key, "")) for key, value in settings(plan).items()]
    prompt = 'turns(row["prompt"])' if plan.chat else '[{"role": "user", "content": row["prompt"]}]'
    episodes = shell_episodes.plays(plan)
    main = shell_episodes.code_verl(plan) if episodes else _MAINS[plan.loop].format(
        rows=plan.rows, seed=plan.spec.seed, prompt=prompt)
    agent = shell.file("agent.yaml", shell_episodes.VERL_AGENT) + _IMPORTED if episodes else ""
    return "".join([top, shell.begin(plan), "" if plan.chat else _TEMPLATE, shell.file("task.py", task_code(
        plan, main, every_answer=False)), agent, "python task.py\n", shell.array(rows),
        f'\n{_STARTS[plan.loop]} -m {_MODULES[plan.loop]} "${{settings[@]}}" "$@"\n'])


_EPISODES = {f"{_ROLLOUT}.agent.agent_loop_config_path": "agent.yaml",
             f"{_ROLLOUT}.agent.default_agent_loop": "episodes"}
_IMPORTED = 'export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"  # for task.Episodes\n'
_EXTRAS = {"online": ("fsdp", "vllm"), "sft": ("fsdp",)}
_CONFIGS = {"online": "ppo_trainer", "sft": "sft_trainer_engine"}
_STARTS = {"online": "python", "sft": 'torchrun --standalone --nproc_per_node="$GPUS"'}
_MODULES = {"online": "verl.trainer.main_ppo", "sft": "verl.trainer.sft_trainer"}
_NOTHING = {"preference": f'''# verl {VERSION} has no trainer for preference pairs, so there is nothing to start
# here: take the script for TRL (DPOTrainer) or OpenRLHF (train_dpo). Where the task has a verifier, verl can
# learn from that directly: run GRPO on the task in the lab, and take that run further.
''', "reward_model": f'''# verl {VERSION} has no trainer for reward models, so there is nothing to start here:
# take the script for TRL (RewardTrainer) or OpenRLHF (train_rm). A reward model that these have trained can
# score completions in verl's PPO and GRPO (reward.reward_model).
''', "prm": f'''# verl {VERSION} has no trainer for process reward models, so there is nothing to start here:
# take the script for TRL (PRMTrainer, in TRL 1.13).
'''}
_MAINS = {"online": '''

def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_) -> float:
    """The reward of a completion. verl calls it."""
    return score(solution_str, ground_truth)


if __name__ == "__main__":
    import pandas

    def table(count: int, seed: int) -> pandas.DataFrame:
        return pandas.DataFrame([{{
            "data_source": "task", "prompt": {prompt},
            "extra_info": {{key: value for key, value in row.items() if key not in ("prompt", "answer")}} or None,
            "reward_model": {{"style": "rule", "ground_truth": row["answer"]}}}} for row in problems(count, seed)])

    table({rows}, {seed}).to_parquet("train.parquet")
    table(256, {seed} + 1).to_parquet("test.parquet")
''', "sft": '''

if __name__ == "__main__":
    import pandas

    pandas.DataFrame([{{"messages": [*{prompt}, {{"role": "assistant", "content": row["answer"]}}]}}
                      for row in problems({rows}, {seed})]).to_parquet("train.parquet")
'''}
