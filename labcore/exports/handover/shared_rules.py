"""Rules that several tools share: for the knobs of stale data, of difficulty and of the engine."""

from __future__ import annotations

from labcore.catalog.conditions import SAME_DTYPE
from labcore.catalog.llm.difficulty import DIFFICULTY
from labcore.catalog.llm.staleness import IN_ORDER
from labcore.exports.handover.plan import Rule, Rules, acting, built_in, choice, given, missing, switch, to


def stale_rules(tool: str, staleness: Rule, precision: str) -> Rules:
    """Rules for the knobs of stale data in `tool`. `precision` is its setting for the sampler's weights."""
    return {
        "staleness": switch(staleness, 0),
        "staleness_order": acting(switch(missing(f"in {tool} ages depend on how long completions take"), IN_ORDER),
                                  "staleness_order"),
        "replay_share": switch(missing(f"no equivalent in {tool}, which uses each group in one step only"), 0.0),
        "replay_steps": built_in(),
        "sampler_dtype": switch(missing(f"the script does not round the sampler's weights: see {precision}"),
                                SAME_DTYPE)}


def pool_rules(note: str) -> Rules:
    """Rules for the knobs of difficulty, which have no equivalent; `note` says what to do."""
    pool, *others = (knob.key for knob in DIFFICULTY)
    return {pool: switch(missing(note), 0), **dict.fromkeys(others, built_in("with prompt_pool"))}


# Settings of transformers' TrainingArguments, which TRL and ms-swift have in common.
TRAINING_ARGUMENTS: Rules = {
    "learning_rate": to("learning_rate"), "max_grad_norm": to("max_grad_norm"),
    "dtype": given(lambda plan, value: {"bf16": value == "bf16"}), "compile": switch(to("torch_compile"), False),
    "gradient_checkpointing": to("gradient_checkpointing"),
    "schedule": given(lambda plan, value: {"lr_scheduler_type": plan.scheduler}),
    "warmup_steps": given(lambda plan, value: {"warmup_steps": value * plan.passes * plan.parts}),
    **{knob: to(knob) for knob in ("weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon")},
    "optimizer": choice({"adamw": ({}, ""), "adamw_8bit": ({"optim": "adamw_8bit"}, "")}, "see optim")}
