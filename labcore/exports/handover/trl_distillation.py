"""Settings of TRL's GKDTrainer and DistillationTrainer for the knobs of runs that learn from a teacher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labcore.catalog import choices
from labcore.exports.folder import TEACHER
from labcore.exports.handover.plan import (
    MEASURED,
    Line,
    Plan,
    Rules,
    built_in,
    choices_of,
    given,
    missing,
    switch,
    to,
)
from labcore.exports.handover.trl_online import RULES as ONLINE
from labcore.runs.spec.model_names import may_be_hub_id

TAUGHT = ("GKDTrainer", "DistillationTrainer")


def teacher(plan: Plan) -> str:
    """The argument `teacher_model`: a folder or an id of the hub."""
    name = str(plan.get("teacher", ""))
    return name if _published(name) else TEACHER


# GKDTrainer takes conversations only: this writes one as the plain text that the run has.
PLAIN_TEMPLATE = """tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    """


def messages(plan: Plan, rows: str) -> str:
    """The rows as conversations with the answer as their last turn, as code."""
    asked = 'turns(row["prompt"])' if plan.chat else '[{"role": "user", "content": row["prompt"]}]'
    return f'[{{"messages": [*{asked}, {{"role": "assistant", "content": row["answer"]}}]}} for row in {rows}]'


def _published(name: str) -> bool:
    return may_be_hub_id(name) or (bool(name) and Path(name).is_dir())


def teacher_line(plan: Plan, value: Any) -> Line:
    """The teacher as an argument of the script's code."""
    there = _published(str(value))
    note = "" if there else f"the folder {TEACHER} in the run's export"
    return Line("", value, {}, built_in=there, note=note)


_GKD: Rules = {
    "sequences_per_step": to("per_device_train_batch_size"), "teacher": teacher_line,
    "sft_loss": choices_of(choices.SFT_LOSS, "GKDTrainer", "see beta"),
    "on_policy_share": to("lmbda"), "answers": given(lambda plan, value: {"seq_kd": value == "teacher"}),
    "temperature": to("temperature"), "max_new_tokens": to("max_new_tokens"),
    "top_k": switch(missing("GKDTrainer samples from all tokens"), 0),
    "top_p": switch(missing("GKDTrainer samples from all tokens"), 1.0),
    **dict.fromkeys(("eval_every", "eval_prompts"), MEASURED)}
_NO_GRADE = "DistillationTrainer has no rewards, ratios or clip: its loss is the KL to the teacher alone"
_SAMPLED = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_new_tokens", "rollouts")
_ONCE = switch(missing("DistillationTrainer uses each batch for one update"), 1)
_DISTILLATION: Rules = {
    **dict.fromkeys(ONLINE["GRPOTrainer"], missing(_NO_GRADE)),
    **{knob: ONLINE["GRPOTrainer"][knob] for knob in _SAMPLED},
    "prompts_per_step": given(lambda plan, value: {"per_device_train_batch_size": value * int(plan["group_size"])}),
    "group_size": switch(built_in("one completion of more prompts: the batch is as large"), 1),
    "updates_per_batch": _ONCE, "mini_batches": _ONCE, "teacher": teacher_line,
    "advantage": choices_of(choices.ADVANTAGE, "DistillationTrainer", "see beta"),
    "teacher_discount": switch(missing("DistillationTrainer holds the prefix of each token fixed"), 0.0),
    "whiten_advantages": switch(missing(_NO_GRADE), False)}
RULES: dict[str, Rules] = {"GKDTrainer": _GKD, "DistillationTrainer": _DISTILLATION}
