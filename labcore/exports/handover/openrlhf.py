"""The run as a shell script for OpenRLHF: options of its PPO, DPO or SFT command."""

from __future__ import annotations

from typing import Any

from labcore.catalog import choices
from labcore.exports.handover import rules, shell, shell_episodes
from labcore.exports.handover import shared_rules as shared
from labcore.exports.handover.plan import Line, Plan, Rules
from labcore.exports.handover.remarks import remarks, requirement
from labcore.exports.handover.rules import acting, built_in, choice, choices_of, given, missing, only_with, switch, to
from labcore.exports.handover.task_code import brings_pairs, needs_pairs, packages, task_code

VERSION = "0.11.2"
COMMANDS = {"online": "train_ppo_ray", "preference": "train_dpo", "reward_model": "train_rm", "sft": "train_sft"}
ON = True  # a switch: it stands for itself, without a value

_FP32 = "OpenRLHF trains in bfloat16 or float16, and keeps float32 only in the optimizer"
_DTYPE = given(lambda plan, value: {"--ds.param_dtype": "bf16"}, lambda plan, value: "" if value == "bf16" else _FP32)
_COMMON = {**shared.adapter(to("--ds.lora.rank", note=shared.ALL_LINEAR), to("--ds.lora.alpha")), **shared.BASE_RULES,
           **shared.TASK_RULES}
_COMPILE = switch(given(lambda plan, value: {"--ds.deepcompile": ON}), False)
_NO_8_BITS = switch(missing("OpenRLHF has no AdamW in 8 bits: to save that memory, move its moments to the processor "
                            "with --ds.adam_offload"), "adamw")


def _engine(model: str) -> Rules:
    """The knobs of the engine; `model` begins the options of the one that learns."""
    return {"gradient_checkpointing": switch(given(lambda plan, value: {
        f"--{model}.gradient_checkpointing_enable": ON}), False), "optimizer": _NO_8_BITS, "compile": _COMPILE}


def _optimizer(*prefixes: str) -> Rules:
    """The numbers of Adam and the schedule; the last of `prefixes` is the critic's where there are two."""
    def at(option: str, value: Any, plan: Plan) -> dict[str, Any]:
        return {f"--{prefix}{option}": value for prefix in (prefixes if plan.critic else prefixes[:1])}

    betas = given(lambda plan, value: at("adam.betas", plan.betas, plan))
    return {"schedule": given(lambda plan, value: at("lr_scheduler", plan.scheduler, plan)),
            "warmup_steps": given(lambda plan, value: at("lr_warmup_ratio", value / plan.steps, plan)),
            "weight_decay": given(lambda plan, value: at("adam.weight_decay", value, plan)),
            "adam_beta1": betas, "adam_beta2": betas,
            "adam_epsilon": given(lambda plan, value: at("adam.eps", value, plan))}


_CORRECTION = "--algo.advantage.is_correction"
_NO_TOP_K = choice({0: ({}, "")}, "OpenRLHF has no min-p")

_ESTIMATOR = "--algo.advantage.estimator"
_OF_GROUP = ("rloo", "reinforce_baseline", "group_norm", "dr_grpo")  # they refuse groups of one completion
_OWN_BASELINE = (None, "gae", "reinforce")  # nothing is subtracted before rewards are clipped


def _estimator(plan: Plan, advantage: str) -> str | None:
    """OpenRLHF's estimator; None where it has nothing like the run's advantage."""
    alone = plan["group_size"] == 1
    if shell.whitens(plan, "OpenRLHF"):
        return "reinforce" if shell.against(plan) == "batch" or alone else "reinforce_baseline"
    there = choices.ADVANTAGE[advantage].there("OpenRLHF")
    found = there.name if there else ""
    if not found:
        return None
    return "flash_reinforce" if found in _OF_GROUP and alone else found


def _normalised(plan: Plan, value: Any) -> Line:
    return shell.normalisation(plan, value, "OpenRLHF", _ESTIMATOR, _estimator(plan, plan["advantage"]))


def _advantage(plan: Plan, value: Any) -> Line:
    found = _estimator(plan, value)
    if shell.whitens(plan, "OpenRLHF"):
        return shell.advantage(value, "group" if found in _OF_GROUP else "batch", "OpenRLHF")
    there = choices.ADVANTAGE[str(value)].there("OpenRLHF")
    if found is None or there is None or found == there.name:
        return choices_of(choices.ADVANTAGE, "OpenRLHF", f"see {_ESTIMATOR}", _ESTIMATOR)(plan, value)
    return Line("", value, {_ESTIMATOR: found}, note="the mean of the batch is the baseline")


def _of_gspo(plan: Plan) -> str:
    """The fixed aggregation of GSPO's loss in OpenRLHF; empty for another loss."""
    there = choices.RATIO[str(plan["ratio"])].there("OpenRLHF")
    return there.aggregates if there else ""


def _clipped_late(plan: Plan, value: Any) -> str:
    return "" if _estimator(plan, plan["advantage"]) in _OWN_BASELINE else (
        "clipped after the baseline is subtracted, not before")


def _sampler(plan: Plan, value: Any) -> dict[str, Any]:
    """The correction for another sampler; one bound is the upper one. A sequence can only be left out there."""
    level, outside = str(plan["importance_mode"]).split("_")
    floor = plan["importance_floor"]
    return {f"{_CORRECTION}_level": "seq" if level == "sequence" else level,
            f"{_CORRECTION}_mode": "clip" if (level, outside) == ("token", "truncate") else "mask",
            f"{_CORRECTION}_threshold": (floor, value) if floor else value}


def _sampler_note(plan: Plan, value: Any) -> str:
    if _of_gspo(plan):
        return "its gspo takes the ratio to vLLM's own probabilities instead, without a cap"
    if not str(plan["importance_mode"]).startswith("sequence"):
        return ""
    return ("a completion is left out by the geometric mean of its ratios, not by their product, and the others' "
            "tokens are weighed by ratios of their own")


_ONLINE: Rules = {
    "beta": given(lambda plan, value: {"--algo.kl.init_coef": 0.0 if plan["kl_placement"] == "off" else value}),
    "learning_rate": to("--actor.adam.lr"), "max_grad_norm": to("--actor.max_norm"),
    "clip_low": given(lambda plan, value: {"--actor.eps_clip_low_high": (value, plan.get("clip_high", value))}),
    "clip_high": given(lambda plan, value: {"--actor.eps_clip_low_high": (plan.get("clip_low", value), value)}),
    "group_size": to("--rollout.n_samples_per_prompt"), "prompts_per_step": to("--rollout.batch_size"),
    "updates_per_batch": to("--train.max_epochs"),
    "mini_batches": given(lambda plan, value: {"--train.batch_size": _per_update(plan)}),
    "temperature": to("--rollout.temperature"), "top_p": to("--rollout.top_p"), "top_k": _NO_TOP_K,
    "min_p": switch(missing("OpenRLHF has no min-p"), 0.0),
    "repetition_penalty": switch(missing("OpenRLHF has no repetition penalty"), 1.0),
    "max_new_tokens": to("--rollout.max_new_tokens"), "entropy_coef": to("--actor.entropy_coef"),
    **shared.bounds("--actor.dual_clip", "dual_clip", "ε_high"),
    "top_entropy_share": switch(missing("OpenRLHF leaves no tokens out by their entropy"), 1.0),
    "off_policy_threshold": switch(missing("OpenRLHF leaves no off-policy completions out by their mean log-ratio"),
                                   0.0),
    "rollouts": choice({"vllm": ({}, "")}, shared.BY_VLLM),
    "importance_cap": switch(given(_sampler, _sampler_note), 0.0),
    "reference_every": switch(missing("OpenRLHF never moves its reference"), 0), "reference_mixup": built_in(),
    "importance_floor": built_in("with importance_cap"), "importance_mode": built_in("with importance_cap"),
    "recompute_logprobs": built_in(),  # it always does
    **shared.pool_rules("OpenRLHF draws prompts uniformly: sort or filter the data set by pass rate yourself"),
    **shared.stale_rules("OpenRLHF", given(
        lambda plan, value: {"--train.async_enable": ON, "--train.async_queue_size": value},
        "its queue holds at most this many batches, so samples may also be younger"), "vLLM's dtype"),
    **dict.fromkeys(("adaptive_kl_target",), switch(to("--algo.kl.target"), 0.0)),
    "sft_weight": switch(missing("OpenRLHF mixes no demonstrations into RL: ms-swift does (CHORD)"), 0.0),
    "sft_focus": built_in(), "sft_decay_steps": built_in(),
    "entropy_target": switch(missing("OpenRLHF's entropy bonus is constant"), 0.0), "entropy_step": built_in(),
    "adaptive_kl_horizon": lambda plan, value: Line("", value, {"--algo.kl.horizon": int(value)} if plan[
        "adaptive_kl_target"] else {}, built_in=not plan["adaptive_kl_target"]),
    "whiten_rewards": switch(missing("OpenRLHF whitens no rewards of tokens"), False),
    "normalisation": _normalised, "advantage": _advantage,
    "ratio": choices_of(choices.RATIO, "OpenRLHF", "see --actor.policy_loss_type"),
    "surrogate": choices_of(choices.SURROGATE, "OpenRLHF", "it clips the ratio"),
    "shaping": choices_of(choices.SHAPING, "OpenRLHF", "write it into score() below"),
    "reward_clip": only_with("shaping", "clipped", given(
        lambda plan, value: {"--reward.clip_range": (-value, value)}, _clipped_late)),
    **shared.only_between("--reward.clip_range", _clipped_late),
    "selection": choices_of(choices.SELECTION, "OpenRLHF", "see --algo.dynamic_filtering_enable"),
    "overlong_filter": switch(missing("OpenRLHF trains on truncated completions too"), False),
    **shared.REWARD_RULES,
    "kl_estimator": choices_of(choices.KL_ESTIMATOR, "OpenRLHF", "see --algo.kl.estimator"),
    "kl_placement": choice({"loss": ({"--algo.kl.use_loss": ON}, ""), "reward": ({}, ""), "off": ({}, "")}, ""),
    "aggregation": shared.aggregated(_of_gspo, "policy_loss_type gspo", choices_of(
        choices.AGGREGATION, "OpenRLHF", "see --actor.loss_agg_mode")),
    "gamma": to("--algo.advantage.gamma"), "gae_lambda": to("--algo.advantage.lambd"),
    "critic_learning_rate": to("--critic.adam.lr"), "value_clip": to("--critic.value_clip"),
    "whiten_advantages": choice({True: ({}, ""), False: ({"--algo.advantage.no_std_norm": ON}, "the mean is still "
                                                         "subtracted")}, ""),
    "dtype": _DTYPE, **_engine("actor"), **_optimizer("actor.", "critic."), **_COMMON}
_FOR_PAIRS = built_in()
_DPO: Rules = {
    "beta": to("--model.beta"), "learning_rate": to("--adam.lr"), "max_grad_norm": to("--max_norm"),
    "pairs_per_step": to("--train.batch_size"),
    "preference_loss": choices_of(choices.PREFERENCE_LOSS, "OpenRLHF", "OpenRLHF's train_dpo has DPO, cDPO and IPO: it "
                                  "trains DPO instead"),
    "second_loss": choice({choices.NO_LOSS: ({}, ""), "sft": ({}, "switched on by its weight, second_weight")},
                          "no equivalent in OpenRLHF, which adds nothing but the SFT loss"),
    "second_weight": only_with("second_loss", "sft", to(
        "--model.nll_loss_coef", note="OpenRLHF weights all completions equally, the lab all tokens")),
    "third_loss": switch(missing("no equivalent in OpenRLHF, which adds nothing but the SFT loss"), choices.NO_LOSS),
    "third_weight": built_in(),
    "first_weight": switch(missing("OpenRLHF has no weight for its first loss"), 1.0),
    "reference_every": switch(missing("OpenRLHF never moves its reference"), 0), "reference_mixup": built_in(),
    "divergence": choices_of(choices.DIVERGENCE, "OpenRLHF", "it uses the reverse KL"),
    "ld_alpha": acting(choice({1.0: ({}, "")}, "no equivalent in OpenRLHF: all tokens count the same"), "ld_alpha"),
    "pair_weighting": choice({False: ({}, "")}, "no equivalent in OpenRLHF: all pairs count the same"),
    "pairs": shared.pairs_of("OpenRLHF has no online DPO"),
    "eval_every": shared.MEASURED, "eval_prompts": shared.MEASURED, "dtype": _DTYPE,
    **dict.fromkeys(("pair_prompts", "group_size", "temperature", "top_k", "top_p", "max_new_tokens", *shared.FILTERS),
                    _FOR_PAIRS),
    **_engine("model"), **_optimizer(""), **_COMMON}
_SFT: Rules = {
    "learning_rate": to("--adam.lr"), "max_grad_norm": to("--max_norm"),
    "sequences_per_step": to("--train.batch_size"), "dtype": _DTYPE,
    "sft_loss": choices_of(choices.SFT_LOSS, "OpenRLHF", "all tokens count the same"),
    **dict.fromkeys(("eval_every", "eval_prompts", "temperature", "top_k", "top_p", "max_new_tokens"), shared.MEASURED),
    **_engine("model"), **_optimizer(""), **_COMMON}
_RM: Rules = {
    **{knob: _DPO[knob] for knob in ("learning_rate", "max_grad_norm", "pairs_per_step", "eval_every", "dtype",
                                     "pair_prompts", "group_size", "temperature", "top_k", "top_p", "max_new_tokens",
                                     *shared.FILTERS)},
    **shared.LABELS, "margin": lambda plan, value: (given(lambda plan, value: {
        "--model.margin_loss_enable": ON}) if _margins(plan) else built_in())(plan, value),
    "centering": switch(missing("no equivalent in OpenRLHF, which lets the mean score drift"), 0.0),
    "pairs": shared.pairs_of(),
    "eval_pairs": shared.MEASURED, **_engine("model"), **_optimizer(""), **_COMMON}
RULES: dict[str, Rules] = {"online": _ONLINE, "preference": _DPO, "prm": {}, "reward_model": _RM, "sft": _SFT}
_NONE = {"prm": missing(f"no equivalent: OpenRLHF {VERSION} trains no process reward model")}
_NOTHING = {"prm": f'''# OpenRLHF {VERSION} has no trainer for process reward models, so there is nothing to start here:
# take the script for TRL (PRMTrainer, in TRL 1.13).
'''}


def _per_update(plan: Plan) -> int:
    return plan.batch * int(plan["group_size"]) // plan.parts


def mapped(plan: Plan) -> list[Line]:
    """The settings of each knob of the run in OpenRLHF."""
    none = _NONE.get(plan.loop)
    return rules.lines(plan, dict.fromkeys(plan.spec.knobs, none) if none else RULES[plan.loop], "OpenRLHF")


def settings(plan: Plan) -> dict[str, Any]:
    """Options and their values: first the run's knobs, then settings for parts of the lab without a knob."""
    found: dict[str, Any] = {}
    for line in mapped(plan):
        found |= line.settings
    found |= {"--train.seed": plan.spec.seed, "--ckpt.output_dir": "trained", "--ds.zero_stage": 2}
    if plan.loop != "online":
        columns = ({"--data.prompt_key": "prompt", "--data.chosen_key": "chosen", "--data.rejected_key": "rejected"}
                   if needs_pairs(plan) else {"--data.input_key": "prompt", "--data.output_key": "answer"})
        return found | columns | _chat(plan) | {
            "--model.model_name_or_path": "$MODEL", "--data.dataset": "train.jsonl",
            "--train.max_epochs": plan.episodes}
    critic = {"--critic.max_norm": plan["max_grad_norm"], "--critic.num_gpus_per_node": "$GPUS"} if plan.critic else {}
    return found | critic | _chat(plan) | {
        "--train.batch_size": _per_update(plan), "--train.num_episodes": plan.episodes,
        "--actor.model_name_or_path": "$MODEL", "--data.prompt_dataset": "train.jsonl", "--data.input_key": "prompt",
        "--data.label_key": "answer", _REWARDS[plan.spec.task_row.has_turns]: "task.py", "--vllm.num_engines": "$GPUS",
        "--actor.num_gpus_per_node": "$GPUS", "--ref.num_gpus_per_node": "$GPUS", "--train.colocate_all": ON,
        "--ds.enable_sleep": ON, **({} if plan.get("staleness") else {"--vllm.enable_sleep": ON})}  # refused when async


_REWARDS = {False: "--reward.remote_url", True: "--train.agent_func_path"}


def _chat(plan: Plan) -> dict[str, Any]:
    """The switch for prompts that are turns, which the model's own template writes."""
    return {"--data.apply_chat_template": ON} if plan.chat and not plan.spec.task_row.has_turns else {}


def words(option: str, value: Any) -> str:
    """An option with its value or values, as the shell takes them."""
    values = [] if value is ON else value if isinstance(value, tuple) else [value]
    return " ".join([option, *map(shell.quoted, values)])


def _margins(plan: Plan) -> bool:
    """Whether pairs have margins: the run's, or those of your file."""
    return plan.loop == "reward_model" and bool(plan["margin"] or brings_pairs(plan))


def script(plan: Plan) -> str:
    """The whole script."""
    found = mapped(plan)
    if plan.spec.task_row.has_turns and not shell_episodes.plays(plan):
        return shell.no_episodes(found, "OpenRLHF", VERSION)
    if plan.loop in _NOTHING:
        return f"{_NOTHING[plan.loop]}#\n{remarks(found, 'OpenRLHF')}\n"
    command = COMMANDS[plan.loop]
    names: dict[str, str] = {}
    for line in found:
        for key in line.settings:
            names[key] = f"{names[key]}, {line.knob}" if key in names else line.knob
    needs = requirement("openrlhf", VERSION, *(("vllm",) if plan.loop == "online" else ())) + packages(plan)
    top = shell.head(plan, found, "OpenRLHF", "openrlhf", VERSION, needs, f"openrlhf/cli/{command}.py")
    rows = [(words(key, value), names.get(key, "")) for key, value in settings(plan).items()]
    main = _MAINS["online" if plan.loop == "online" else "sft" if not needs_pairs(plan) else
                  "pairs" if brings_pairs(plan) else "sampled"]
    if plan.chat:
        main = main.replace(_PAIRED, _PAIRED_TURNS).replace(_ANSWERED, _ANSWERED_TURNS).replace(
            "write(problems({rows}, {seed}))", "write(conversational(problems({rows}, {seed})))")
    margin = f', "margin": row.get("margin", {plan["margin"]})' if _margins(plan) else ""
    written = shell_episodes.code_openrlhf(plan) if shell_episodes.plays(plan) else main.format(
        rows=plan.rows, seed=plan.spec.seed, margin=margin)
    return "".join([
        top, shell.begin(plan), shell.file("task.py", task_code(plan, written)),
        'python task.py "$MODEL"\n', shell.array(rows),
        f'\n{_STARTS.get(plan.loop, "deepspeed --module")} openrlhf.cli.{command} "${{settings[@]}}" "$@"\n'])


_STARTS = {"online": "python -m"}
_WRITTEN = '''

def write(rows: list[dict[str, str]]) -> None:
    with open("train.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\\n" for row in rows)


if __name__ == "__main__":
'''
_PAIRED = '''    end = tokenizer.eos_token  # else OpenRLHF puts a blank before it
    write([{{**row, "chosen": row["chosen"] + end, "rejected": row["rejected"] + end{margin}}}
           for row in found])
'''
_PAIRED_TURNS = '''    write(conversational([{{**row{margin}}} for row in found]))
'''
_ANSWERED = '''    end = tokenizer.eos_token  # else OpenRLHF puts a blank before it
    write([{{**row, "answer": row["answer"] + end}} for row in problems({rows}, {seed})])
'''
_ANSWERED_TURNS = '''    found = problems({rows}, {seed})
    write([{{"prompt": turns(row["prompt"]), "answer": [{{"role": "assistant", "content": row["answer"]}}]}}
           for row in found])
'''
_TOKENIZER = '''    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
'''
_ENDS = '    Path("special_tokens.json").write_text(json.dumps(tokenizer.all_special_tokens), "utf-8")\n'
_MAINS = {"online": '''

# What a text may end with besides what it says; written below, before the training.
SPECIAL_TOKENS = json.loads(Path("special_tokens.json").read_text("utf-8")) if __name__ != "__main__" else []


def reward_func(queries: list[str], prompts: list[str], labels: list[str], **_) -> dict[str, float]:
    """The reward of one completion. OpenRLHF calls it; a query is the prompt followed by the completion."""
    text = queries[0].removeprefix(prompts[0])
    for token in SPECIAL_TOKENS:
        text = text.removesuffix(token)
    reward = score(text, labels[0])
    return {{"rewards": reward, "scores": reward}}
''' + _WRITTEN + _TOKENIZER + _ENDS + '''    write(problems({rows}, {seed}))
''', "sft": _WRITTEN + _TOKENIZER + _ANSWERED, "pairs": _WRITTEN + _TOKENIZER + '''    found = pairs({rows}, {seed})
''' + _PAIRED, "sampled": _WRITTEN + _TOKENIZER.replace("import ", "import AutoModelForCausalLM, ") + '''
    found = sampled_pairs(AutoModelForCausalLM.from_pretrained(sys.argv[1]), tokenizer)
    found = (found * ({rows} // len(found) + 1))[:{rows}]
''' + _PAIRED}
