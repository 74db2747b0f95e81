"""Settings of TRL's GKDTrainer, DistillationTrainer, SDFTTrainer and SDPOTrainer for runs that learn from a teacher."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labcore.catalog import choices
from labcore.catalog.families.distillation import SELF
from labcore.exports.folder import TEACHER
from labcore.exports.handover.plan import Line, Plan, Rule, Rules
from labcore.exports.handover.rules import built_in, choices_of, given, missing, switch, to
from labcore.exports.handover.shared_rules import MEASURED
from labcore.exports.handover.trl_online import RULES as ONLINE
from labcore.exports.handover.trl_online import TRL_REWARDS
from labcore.runs.spec.model_names import may_be_hub_id

TAUGHT = ("GKDTrainer", "DistillationTrainer")  # by a teacher that is an argument
SDFT, SDPO = "SDFTTrainer", "SDPOTrainer"  # by themselves


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
    note = "" if there else f"put the folder {TEACHER} of the run's export beside this script"
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
    "whiten_advantages": switch(missing(_NO_GRADE), False),
    "single_step": built_in("its loss is the KL over the whole vocabulary")}


# ---------------------------------------------------------------- self-distillation

def _template(names: Mapping[str, str]) -> Rule:
    """The teacher's prompt as a Python format string with the trainer's names for its parts; all other braces are
    doubled."""
    def rule(plan: Plan, value: Any) -> Line:
        text = str(value).replace("\\n", "\n").replace("{", "{{").replace("}", "}}")
        text = text.replace("{{prompt}}", "{prompt}")
        return Line("", value, {setting: text.replace("{{context}}", part) for setting, part in names.items()})
    return rule


def _follows(plan: Plan, value: Any) -> Line:
    """The settings of a teacher that is the run's initial model, or a moving average of the policy."""
    return Line("", value, {"teacher_model_kind": "ema", "teacher_sync_steps": value} if value else {
        "teacher_model_kind": "base"})


_ALONE = "the trainer has no such setting: its loss is the KL to its own teacher alone"
_SELF: Rules = {
    **dict.fromkeys(ONLINE["GRPOTrainer"], missing(_ALONE)),
    **{knob: ONLINE["GRPOTrainer"][knob] for knob in _SAMPLED},
    "prompts_per_step": given(lambda plan, value: {"per_device_train_batch_size": value * int(plan["group_size"])}),
    "group_size": to("num_generations"), "updates_per_batch": to("num_iterations"), "mini_batches": _ONCE,
    "advantage": choices_of(choices.ADVANTAGE, SDFT, "see distillation_mode"),
    "teacher": switch(missing("in TRL the teacher is the model itself"), SELF),
    "teacher_discount": switch(missing("prefixes are held fixed"), 0.0),
    "single_step": given(lambda plan, value: {"distillation_mode": "full_logits" if value else "sampled_token",
                                              "distillation_alpha": 1.0}),
    "whiten_advantages": switch(missing(_ALONE), False), "reference_every": _follows,
    "reference_mixup": lambda plan, value: (to("teacher_update_rate") if plan["reference_every"] else built_in())(
        plan, value),
    "aggregation": switch(missing("the mean over completions of each completion's token mean"),
                          "sequence_mean_token_mean"),
    **dict.fromkeys(("ratio", "surrogate"), built_in()),
    "kl_placement": switch(missing(_ALONE), "off"), **dict.fromkeys(("beta", "kl_estimator"), built_in()),
    "selection": switch(missing(_ALONE), "everything")}
_SDFT: Rules = {**_SELF, "context_template": _template({"teacher_prompt_template": "{privileged_context}"}),
                "teacher_context": choices_of(choices.TEACHER_CONTEXT, SDFT, "the task's answer"),
                "feedback_template": built_in()}


def _part(setting: str, text: str) -> Rule:
    """The template of one part of the teacher's prompt; SDPOTrainer appends this part to the prompt."""
    def rule(plan: Plan, value: Any) -> Line:
        before, _, after = _template({setting: text})(plan, value).settings[setting].partition("{prompt}")
        return Line("", value, {setting: after}, note="TRL puts the prompt first" if before else "")
    return rule


def _success_template(plan: Plan, value: Any) -> Line:
    """The template of a prompt with a right completion. For runs with feedback, TRL has one template for each part."""
    if choices.TEACHER_CONTEXT[str(plan["teacher_context"])].feedback:
        return _part("solution_template", "{successful_previous_attempt}")(plan, value)
    return Line("", value, {**_template({"reprompt_template": "{solution}"})(plan, value).settings,
                            "solution_template": "{successful_previous_attempt}"},
                note="TRL counts a completion as right if its reward is 1")


def _feedback_template(plan: Plan, value: Any) -> Line:
    """The template of feedback, for runs whose teacher reads feedback."""
    rule = _part("feedback_template", "{feedback_raw}") if choices.TEACHER_CONTEXT[
        str(plan["teacher_context"])].feedback else built_in()
    return rule(plan, value)


_SDPO: Rules = {
    **_SELF, **TRL_REWARDS, "context_template": _success_template, "feedback_template": _feedback_template,
    "teacher_context": choices_of(choices.TEACHER_CONTEXT, SDPO, "a right completion of the group")}
RULES: dict[str, Rules] = {"GKDTrainer": _GKD, "DistillationTrainer": _DISTILLATION, SDFT: _SDFT, SDPO: _SDPO}
