"""The run as a Python script for TRL.

One trainer stands for several algorithms, and it is the run's choices that pick it, not the algorithm's name: ratios
of whole sequences and the plain score function go to RLOOTrainer, ratios of tokens to GRPOTrainer, their geometric mean
to GMPOTrainer.
"""

from __future__ import annotations

from typing import Any

from labcore.catalog import choices
from labcore.catalog.choice import Family
from labcore.catalog.watch import TWIN
from labcore.exports.handover import environments, trl_distillation, trl_episodes, trl_online, trl_pairs, trl_process
from labcore.exports.handover import shared_rules as shared
from labcore.exports.handover.conversations import thinking
from labcore.exports.handover.plan import Line, Plan, Rules
from labcore.exports.handover.remarks import remarks, requirement
from labcore.exports.handover.rules import choices_of, lines, to
from labcore.exports.handover.task_code import brings_pairs, learns_singles, packages, task_code

VERSION = "1.16.0"
TRAINERS = {f"{name}Trainer": f"{name}Config" for name in (
    "GRPO", "GMPO", "RLOO", "DPO", "KTO", "CPO", "ORPO", "TPO", "SFT", "Reward", "PRM", "GKD", "Distillation", "SDFT",
    "SDPO")}
MODULES = {f"{name}Trainer": f"trl.experimental.{name.lower()}" for name in (
    "CPO", "GKD", "GMPO", "ORPO", "PRM", "SDFT", "SDPO", "TPO")}  # others: trl
LAST = {"PRMTrainer": "1.13.0"}  # the last version with a trainer that VERSION lacks
_OF_LOOPS = {"prm": "PRMTrainer", "reward_model": "RewardTrainer"}
# Of others the first of these choices that has a trainer of its own says which, else it is the usual one.
_FAMILIES: dict[str, tuple[tuple[Family[Any], ...], str]] = {
    "online": ((choices.TEACHER_CONTEXT, choices.ADVANTAGE, choices.SURROGATE, choices.RATIO), "GRPOTrainer"),
    "sft": ((choices.SFT_LOSS,), "SFTTrainer"),
    "preference": ((choices.PREFERENCE_LOSS,), "DPOTrainer")}


def trainer(plan: Plan) -> str:
    """The trainer that does the same as the run, or the nearest one."""
    if plan.loop in _OF_LOOPS:
        return _OF_LOOPS[plan.loop]
    if plan.spec.task_row.has_turns:  # no other trainer plays episodes
        return "GRPOTrainer"
    families, usual = _FAMILIES[plan.loop]
    if plan.loop == "preference" and (both := _of_losses(plan)):
        return both
    chosen = (family[str(plan[family.key])].trainer for family in families if family.key in plan.spec.knobs)
    return next(filter(None, chosen), usual)


def _of_losses(plan: Plan) -> str:
    """The trainer of a loss that is added to another one, where it has that too."""
    first, *added = choices.chosen(choices.PREFERENCE_LOSS, plan.spec.knobs)
    return next((each.trainer for each in added if each.trainer and first.there(each.trainer)), "")


def _thinking(plan: Plan, value: Any) -> Line:
    """An argument of the template: of the trainer where it samples, else of every row."""
    arguments = {"chat_template_kwargs": thinking(plan)} if plan.chat and thinking(plan) else {}
    return Line("", value, arguments if plan.loop == "online" else {}, built_in=plan.loop != "online" or not arguments)


_COMMON: Rules = {**shared.TRAINING_ARGUMENTS, **shared.BASE_RULES, **shared.TASK_RULES, "thinking": _thinking,
                  **shared.adapter(shared.IN_THE_CODE, shared.IN_THE_CODE)}
_SFT: Rules = {
    **_COMMON, "sequences_per_step": to("per_device_train_batch_size"),
    "sft_loss": choices_of(choices.SFT_LOSS, "SFTTrainer", "see loss_type of SFTConfig"),
    **dict.fromkeys(("eval_every", "eval_prompts", "temperature", "top_k", "top_p", "max_new_tokens"), shared.MEASURED)}
_TABLES = (trl_online.RULES, trl_pairs.RULES, trl_distillation.RULES)
RULES = {"SFTTrainer": _SFT, "PRMTrainer": {**_COMMON, **trl_process.RULES},
         **{name: {**_COMMON, **rules} for table in _TABLES for name, rules in table.items()}}


def mapped(plan: Plan) -> list[Line]:
    """The settings of each knob of the run in TRL."""
    rules = {**RULES[trainer(plan)], **(trl_episodes.RULES if plan.spec.task_row.has_turns else {})}
    return lines(plan, rules, trainer(plan))


def settings(plan: Plan) -> dict[str, Any]:
    """The trainer's configuration: first the run's knobs, then settings for parts of the lab without a knob."""
    found: dict[str, Any] = {}
    for line in mapped(plan):
        found |= line.settings
    return found | {"seed": plan.spec.seed, **({"max_length": None} if plan.loop != "online" else {})}


def script(plan: Plan) -> str:
    """The whole script."""
    name, found = trainer(plan), mapped(plan)
    code, arguments_first = _first(plan, name)
    named = {key: line.knob for line in found for key in line.settings}
    width = max(len(f"{key}={value!r},") for key, value in settings(plan).items())
    arguments = "\n".join(f"        {f'{key}={value!r},':<{width}}  # {named[key]}" if key in named
                          else f"        {key}={value!r}," for key, value in settings(plan).items())
    steps = plan.steps * plan.passes * plan.parts
    return _SCRIPT.format(
        label=plan.spec.row.label, task=plan.spec.task, run=plan.run, version=LAST.get(name, VERSION),
        remarks=remarks(found, name),
        needs=requirement("trl", LAST.get(name, VERSION), *_extras(plan)) + packages(plan),
        model=plan.model, trainer=name, config=TRAINERS[name], module=MODULES.get(name, "trl"), steps=steps,
        peft=_peft(plan), import_peft="    from peft import LoraConfig\n" if plan.get("lora_rank") else "",
        task_code=task_code(plan, trl_process.CODE.get(plan.get("step_labels"), "") or (
            trl_pairs.LABELLED if learns_singles(plan) else ""), arguments=plan.loop != "online").strip(),
        watched=f"{plan.run} with TRL", twin={TWIN: plan.run}, per_step=_per_step(plan), arguments=arguments,
        data=_data(plan), **_model(plan), reward=code, given=arguments_first)


def _first(plan: Plan, name: str) -> tuple[str, str]:
    """The code of the reward functions of a trainer that takes some, and its arguments before the configuration."""
    if name in trl_distillation.TAUGHT:
        return "", f"teacher_model={trl_distillation.teacher(plan)!r}, "
    if plan.loop != "online" or name == trl_distillation.SDFT:
        return "", ""
    if plan.spec.task_row.has_turns:
        return trl_episodes.code(plan)
    code, rewards = trl_online.functions(plan)
    return code, f"{rewards}, "


def _extras(plan: Plan) -> list[str]:
    """The extras of TRL's package that the run's knobs need."""
    used = {"peft": bool(plan.get("lora_rank")), "quantization": plan["optimizer"] == "adamw_8bit",
            "vllm": plan.get("rollouts") == "vllm"}
    return [name for name, needed in used.items() if needed]


def _model(plan: Plan) -> dict[str, str]:
    """The model that the trainer gets, and the classes that are imported for it."""
    if plan.loop == "prm":
        return {"loaded": f"model = {_STEPS}", "classes": "AutoModelForTokenClassification, AutoTokenizer"}
    if plan.loop != "reward_model":
        plain = trainer(plan) == "GKDTrainer" and not plan.chat
        return {"loaded": f"{trl_distillation.PLAIN_TEMPLATE if plain else ''}model = {_CAUSAL}",
                "classes": "AutoModelForCausalLM, AutoTokenizer"}
    if brings_pairs(plan):
        return {"loaded": f"model = {_SCORER}", "classes": "AutoModelForSequenceClassification, AutoTokenizer"}
    return {"loaded": f"sampler = {_CAUSAL}\n    model = {_SCORER}",
            "classes": "AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer"}


def _peft(plan: Plan) -> str:
    """LoRA as an argument of the trainer, on the layers that peft takes for the architecture."""
    if not plan.get("lora_rank"):
        return ""
    return f", peft_config=LoraConfig(r={plan['lora_rank']}, lora_alpha={plan['lora_alpha']})"


def _per_step(plan: Plan) -> str:
    updates = plan.passes * plan.parts
    return f"  # {plan.steps} steps of the lab, {updates} optimizer updates each" if updates > 1 else ""


def _data(plan: Plan) -> str:
    """The rows that the trainer learns from, as code."""
    if trainer(plan) == "GKDTrainer":
        return trl_distillation.messages(plan, f"problems({plan.rows}, seed={plan.spec.seed})")
    if plan.spec.task_row.has_turns and not environments.has_tools(plan):
        return _rows(plan)  # the rollout writes prompts
    rows = f"conversational({_rows(plan)})" if plan.chat else _rows(plan)
    if trainer(plan) == trl_distillation.SDFT or any(
            each.feedback for each in choices.chosen(choices.TEACHER_CONTEXT, plan.spec.knobs)):
        return f'[{{**row, "privileged_context": row.get("privileged_context") or row["answer"]}} for row in {rows}]'
    return rows


def _rows(plan: Plan) -> str:
    asked = f"({plan.rows}, seed={plan.spec.seed})"
    if plan.loop == "reward_model":
        pairs = f"pairs{asked}" if brings_pairs(plan) else "sampled_pairs(sampler, tokenizer)"
        return f'[{{"margin": {plan["margin"]}, **row}} for row in {pairs}]' if (
            plan["margin"] or brings_pairs(plan)) else pairs
    if plan.loop == "prm":
        return f"labelled_steps{asked}"
    if plan.loop == "preference":
        pairs = f"pairs{asked}" if brings_pairs(plan) else "sampled_pairs(model, tokenizer)"
        return f"labelled({pairs})" if learns_singles(plan) else pairs
    if plan.loop == "sft":
        return f'[{{"prompt": row["prompt"], "completion": row["answer"]}} for row in problems{asked}]'
    return f"problems{asked}"


_CAUSAL = 'AutoModelForCausalLM.from_pretrained(options.model, dtype="float32")'
_SCORER = """AutoModelForSequenceClassification.from_pretrained(
        options.model, num_labels=1, dtype="float32", pad_token_id=tokenizer.pad_token_id)"""
_STEPS = """AutoModelForTokenClassification.from_pretrained(
        options.model, num_labels=2, dtype="float32")"""
_SCRIPT = '''# {label} on "{task}" with TRL {version}, with the settings of the run {run}
# of RL Visual Lab as they were at its end.
#
#     pip install {needs}
#     python {run}-trl.py --model {model}
#     python -m labcore import trained/log_history.csv --label "TRL {trainer}"    # its curves, beside the run's own
#
# "{model}" is the folder of that name in the run's export: what it has learnt. Give the model that the run began with
# to do the run again, or any causal language model of the Hugging Face hub to do the same with that one.
#
{remarks}

import argparse

WATCH = False  # True: the lab shows this training live; needs the package labcore and RL_LAB_HOME
{task_code}
{reward}

def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="{model}", help="a folder or an id of the hub")
    parser.add_argument("--max-steps", type=int, default={steps}){per_step}
    parser.add_argument("--out", default="trained")
    options = parser.parse_args()

    import pandas
    import torch
    from datasets import Dataset
{import_peft}    from transformers import {classes}
    from {module} import {config}, {trainer}

    config = {config}(
        output_dir=options.out, max_steps=options.max_steps, logging_steps=1, save_strategy="no", report_to="none",
        use_cpu=not torch.accelerator.is_available(),  # else a processor is refused bf16
{arguments}
    )
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    {loaded}
    data = Dataset.from_list({data})
    trainer = {trainer}(model, {given}args=config, train_dataset=data, processing_class=tokenizer{peft})
    if WATCH:
        from labcore.watch.trl import LabCallback

        trainer.add_callback(LabCallback({watched!r}, config={twin!r}))
    trainer.train()
    trainer.save_model(options.out)
    pandas.DataFrame(trainer.state.log_history).to_csv(f"{{options.out}}/log_history.csv", index=False)


if __name__ == "__main__":
    main()
'''
