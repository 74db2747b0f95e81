"""Settings of transformers' TrainingArguments for the knobs of the engine, which TRL and ms-swift have in common."""

from __future__ import annotations

from labcore.exports.handover.plan import Rules, choice, given, switch, to

TRAINING_ARGUMENTS: Rules = {
    "learning_rate": to("learning_rate"), "max_grad_norm": to("max_grad_norm"),
    "dtype": given(lambda plan, value: {"bf16": value == "bf16"}), "compile": switch(to("torch_compile"), False),
    "gradient_checkpointing": to("gradient_checkpointing"),
    "schedule": given(lambda plan, value: {"lr_scheduler_type": plan.scheduler}),
    "warmup_steps": given(lambda plan, value: {"warmup_steps": value * plan.passes * plan.parts}),
    **{knob: to(knob) for knob in ("weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon")},
    "optimizer": choice({"adamw": ({}, ""), "adamw_8bit": ({"optim": "adamw_8bit"}, "")}, "see optim")}
