"""Rules that several tools share, grouped by the knobs that they map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labcore.catalog import choices
from labcore.catalog.conditions import SAME_DTYPE
from labcore.catalog.llm import environments
from labcore.catalog.llm.difficulty import DIFFICULTY
from labcore.catalog.llm.models import MODELS
from labcore.catalog.llm.staleness import IN_ORDER
from labcore.exports.handover.plan import Line, Plan, Rule, Rules
from labcore.exports.handover.rules import acting, built_in, choice, choices_of, given, missing, only_with, switch, to


def pairs_of(more: str = "") -> Rule:
    """A rule for the source of pairs: the scripts sample pairs once, before training. `more` names an alternative in
    the tool."""
    def rule(plan: Plan, value: Any) -> Line:
        note = "the pairs are sampled once, before training" + (f": {more}" if more else "")
        source = choices.PAIRS[str(value)]
        note += "; the last trainer of such pairs is TRL 1.9.0's XPOTrainer" if source.opposed else ""
        same = source.once or source.from_file
        return Line("", value, {}, built_in=same, note="" if same else note)

    return rule


def only_between(setting: str, note: Callable[[Plan, Any], str] = lambda plan, value: "") -> dict[str, Rule]:
    """The rules for both bounds of the reward shaping `clipped_between`, which the tool has as one `setting`."""
    both = only_with("shaping", "clipped_between", given(
        lambda plan, value: {setting: (plan["reward_low"], plan["reward_high"])}, note))
    return {"reward_low": both, "reward_high": both}


def bounds(name: str, exact: str, high: str) -> dict[str, Rule]:
    """The rules for the two bounds on tokens with a negative advantage. The tool has one setting `name`, which gets the
    smaller bound. The knob `exact` is equivalent to it; the other knob is equivalent only above 1 + `high`."""
    def rule(knob: str) -> Rule:
        other = "" if knob == exact else f"the same wherever it is above 1 + {high}"
        return lambda plan, value: Line("", value, {name: value}, note=other) if value == plan.bound else Line(
            "", value, {}, note=f"in {name}, the smaller of the two bounds")
    return {knob: only_with("surrogate", "bounded_clip", switch(rule(knob), 0.0)) for knob in ("clip_delta",
                                                                                               "dual_clip")}


def aggregated(fixed: Callable[[Plan], str], by: str, rule: Rule) -> Rule:
    """`rule`, unless the tool's loss can aggregate in one way only: then the line has the way that `fixed` returns and
    names the setting `by` that fixes it."""
    def own(plan: Plan, value: Any) -> Line:
        way = fixed(plan)
        if not way:
            return rule(plan, value)
        return Line("", value, {}, built_in=value == way, note="" if value == way else f"always {way}, by its {by}")
    return own


FILTERS = ("min_p", "repetition_penalty")  # filters of sampled tokens besides top_k and top_p

# The knobs of tasks are constants of the data set and the reward, which every script contains.
IN_THE_CODE = built_in("in the code below")
MEASURED = missing("the lab's own measurement by sampling: evaluate the saved model afterwards")
_HELD_OUT = missing("the code below takes every row of your file: remove the rows that you want to evaluate on")
_OF_TURNS = {knob.key: knob for task in environments.ROWS for knob in task.knobs}
TASK_RULES: Rules = {
    "held_out": switch(_HELD_OUT, 0.0), "held_out_file": switch(_HELD_OUT, ""), **dict.fromkeys(
        ("held_out_every", "held_out_prompts", "held_out_samples"), MEASURED),
    "unusable_rows": switch(missing("the code below stops at a row that cannot be used: remove those rows"), "stop"),
    "long_prompts": switch(missing("the code below takes prompts of any length: shorten or remove the long ones"),
                           "stop"),
    "order": missing("the code below draws rows at random, none twice while there are enough"),
    **dict.fromkeys(("letters", "digits", "reward_shape", "verifier", "pattern", "length_low", "length_high",
                     "prompt_length", "piece_length", "label_temperature", "numbers", *_OF_TURNS), IN_THE_CODE),
    "easiest": switch(missing("the code below makes prompts of the highest level only: draw a level for each prompt "
                              "there"), 0),
    "fields": IN_THE_CODE}
_TURNS = "the prompts below are plain text: where the model has a chat template, write each as a list of turns"


def _template(plan: Plan, value: Any) -> Line:
    if value == "chatml":
        return Line("", value, {}, built_in=True, note="the tokenizer in the run's export has it")
    known = plan.chat or value == "off" or plan.spec.model in MODELS
    return (built_in("in the code below") if known else missing(_TURNS))(plan, value)


PROMPT_RULES: Rules = {
    "template": _template, "system_prompt": IN_THE_CODE,
    "thinking": switch(missing("give enable_thinking to the chat template"), "auto"),
    "begins_with": switch(missing("append it to each prompt below, after the template"), "")}
BASE = missing("the base was made before the run: what is trained here starts from the model that you give")
IN_SCORE = "write it into score() below"
SCRIPTS = "verl"  # all scripts have the same reward function, so a source becomes the same in each
REWARD_RULES: Rules = {
    "reward_source": choices_of(choices.REWARD, SCRIPTS, "let score() below give these rewards"),
    **dict.fromkeys(("reward_function", "reward_weights"), only_with("reward_source", "own_function", switch(
        missing(IN_SCORE), ""))),
    "reward_model": lambda plan, value: (missing(IN_SCORE) if choices.needs_reward_model(plan.spec.knobs)
                                         else built_in())(plan, value),
    **dict.fromkeys(("judge_url", "judge_model", "judge_instruction"), lambda plan, value: (
        switch(missing(IN_SCORE), "") if "judge" in choices.sources_of(plan.spec.knobs) else built_in())(plan, value)),
    **dict.fromkeys(("stop_kl", "stop_gold_fall"), switch(missing("no early stopping there: watch the KL and your own "
                                                                  "evaluation"), 0.0))}
_ADD = "add the labelled pairs to those below: their file is kept in uploads/ under that name"
LABELS: Rules = {  # for a reward model
    "labelled_pairs": switch(missing(_ADD), ""),
    "labelled_share": lambda plan, value: Line("", value, {}, built_in=not plan["labelled_pairs"],
                                               note=_ADD if plan["labelled_pairs"] else "")}


def adapter(rank: Rule, alpha: Rule) -> Rules:
    """The rules of LoRA's knobs. If LoRA is off they give no setting."""
    return {"lora_rank": switch(rank, 0),
            "lora_alpha": lambda plan, value: alpha(plan, value) if plan.get("lora_rank") else built_in()(plan, value)}


BY_VLLM = "vLLM samples and rounds differently from the trainer: importance_cap corrects that"
ALL_LINEAR = "on all linear layers there, not only those of attention"
UPKEEP_RULES: Rules = {  # pictures and checkpoints of the lab; they do not change what is learnt
    "probes": built_in(), "ladder_mb": built_in("checkpoints are the tool's own: set how many it keeps there"),
    "gpu_share": built_in("memory is the tool's own matter: its batch sizes set it")}


def _teacher(plan: Plan, value: Any) -> Line:
    """The line of the teacher for a trainer that cannot have one."""
    rule = missing("this trainer takes no teacher") if choices.needs_teacher(plan.spec.knobs) else built_in()
    return rule(plan, value)


def _context_share(plan: Plan, value: Any) -> Line:
    """The line of the share of prompts with a context, in a run of SFT or in the SFT of the run's base."""
    rule = missing("no row below has a context") if plan.loop == "sft" and value else built_in("of the base alone")
    return rule(plan, value)


CONTEXT_RULES: Rules = {  # for a teacher that sees the prompt alone
    "single_step": switch(missing("each token is graded by the log-ratio of the sampled token alone"), False),
    "teacher_context": switch(missing("the teacher sees the prompt alone there"), "nothing"),
    **dict.fromkeys(("context_template", "feedback_template"), built_in()), "context_share": _context_share}
TEACHER_RULES: Rules = {
    "teacher": _teacher, **CONTEXT_RULES,
    "on_policy_share": switch(missing("this trainer learns only from the answers in the rows below"), 0.0),
    "answers": switch(missing("the rows below have the task's answers: replace them with answers of your teacher"),
                      "given")}
BASE_RULES: Rules = {"sft_target": BASE, "sft_steps": BASE, **PROMPT_RULES, **UPKEEP_RULES, **TEACHER_RULES}


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
