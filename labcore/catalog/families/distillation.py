"""The knobs of distillation: the teacher, its context, and the source of the completions that it grades.

The losses are members of `SFT_LOSS`, and the advantages are members of `ADVANTAGE`.
"""

from __future__ import annotations

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.choice import Family, TeacherContext, There
from labcore.catalog.knob import Knob

ANSWERS = ("given", "teacher")
SELF = "self"  # the teacher that is the run's own reference model

TEACHER = Knob(
    "teacher", "Teacher", "", "The model that the policy learns from: a run (RUN, RUN@STEP or RUN@best), or the folder "
    "or hub id of a Hugging Face model. It must have the policy's vocabulary, and may be larger. It stays frozen. "
    "self: the run's own reference model, from which the policy started.",
    forkable=True, group="model", aliases="teacher_model_name_or_path distillation")
TEACHER_DISCOUNT = Knob(
    "teacher_discount", "Discount of later log-ratios", 0.0, "Weight of the log-ratios of later tokens in a token's "
    "advantage, discounted by distance. 0: only the token's own log-ratio, with little noise. Higher: later tokens "
    "count more, with more noise. 1: the gradient is that of the KL of whole "
    "completions.", "live", 0.0, 1.0, (0.0, 1.0),
    r"\gamma_T", group="advantage", aliases="kl_discount_factor")
JSD_BETA = Knob(
    "jsd_beta", "Interpolation of the divergence", 0.5, "Lower: nearer to the forward KL, which makes the policy cover "
    "everything that the teacher may write; 0 is the forward KL. Higher: nearer to the reverse KL, which makes the "
    "policy keep to completions that the teacher finds likely; 1 is the reverse "
    "KL.", "live", 0.0, 1.0, (0.0, 1.0), r"\beta_J", group="loss", aliases="gkd beta")


def taught_by_itself(row: Algorithm) -> bool:
    """Whether a row's teacher is its own reference model; then the defaults of the task and the model do not apply."""
    return any(map(is_itself, row.knobs))


def is_itself(knob: Knob) -> bool:
    """Whether it is the teacher of such a row."""
    return knob.key == TEACHER.key and knob.default == SELF


SINGLE_STEP = Knob(
    "single_step", "Single-step term", False, "On: the KL of each next-token distribution is computed over the whole "
    "vocabulary and added to the loss, and a token's advantage has only the log-ratios of later tokens. The mean "
    "gradient is the same unless advantages are whitened, with less noise; each update takes one more forward pass of "
    "the teacher. Off: the log-ratio of the sampled token estimates this KL.", "live", group="loss", advanced=True,
    aliases="single_step_decomposition", before=False)
_FEEDBACK = {"include_environment_feedback": True, "reprompt_template": "{prompt}{solution}{feedback}"}
_OF_PROMPT = ("TRL reads feedback from the column privileged_context of a prompt, so all its completions, including "
              "right ones, get the same feedback; this script writes the task's answer there if the row has no such "
              "column")
TEACHER_CONTEXT = Family("teacher_context", "context of the teacher", "labcore.llm.teacher_context",
                         ("task", "problems", "texts", "exact", "group_size"), (
    TeacherContext("nothing", "the prompt alone", r"x", elsewhere=(There("DistillationTrainer ms-swift"),)),
    TeacherContext("demonstration", "the task's answer in addition to the prompt", r"x, y^*", trainer="SDFTTrainer",
                   elsewhere=(There("SDFTTrainer"),)),
    TeacherContext("success", "a right completion of the same group in addition to the prompt", r"x, y_{right}",
                   group=True, trainer="SDPOTrainer", elsewhere=(There("SDPOTrainer"),)),
    TeacherContext("feedback", "feedback on the completion in addition to the prompt", r"x, f(y)",
                   feedback=True, trainer="SDPOTrainer", elsewhere=(
        There("SDPOTrainer", {"use_successful_as_teacher": False, **_FEEDBACK}, _OF_PROMPT),)),
    TeacherContext("success_or_feedback", "a right completion of the same group, otherwise feedback, in addition "
                   "to the prompt", r"x, y_{right}\ \text{or}\ f(y)", group=True, feedback=True,
                   trainer="SDPOTrainer", elsewhere=(
        There("SDPOTrainer", {"environment_feedback_only_without_solution": True, **_FEEDBACK}, _OF_PROMPT),)),
))
CONTEXT_TEMPLATE = Knob(
    "context_template", "Prompt with context", "{prompt}\\n\\n{context}", "Template of a prompt with a context. The "
    "lab replaces {prompt} and {context}; \\n is a line break.", group="model",
    advanced=True, aliases="teacher_prompt_template reprompt_template", before="{prompt}\\n\\n{context}")
FEEDBACK_TEMPLATE = Knob(
    "feedback_template", "Prompt with feedback", "{prompt}\\n\\n{context}", "Template of the teacher's prompt if its "
    "context is feedback. The lab replaces {prompt} and {context}; \\n is a line break.",
    group="model", advanced=True, aliases="environment_feedback", before="{prompt}\\n\\n{context}")
CONTEXT = (
    Knob("teacher_context", "Context of the teacher", "nothing", "Text that the teacher reads in addition to the "
         "prompt. nothing: no context. demonstration: the task's answer. success: another, right completion of the "
         "same group. feedback: the column privileged_context of your file for every completion; without this column "
         "for a wrong completion the value of its expression, the last answer of the environment, or the right answer. "
         "Success or feedback: feedback only if the group has no other right completion. A completion without a "
         "context teaches nothing.", choices=TEACHER_CONTEXT.names,
         group="model", advanced=True, aliases="privileged_context reprompt feedback", before="nothing"),
    CONTEXT_TEMPLATE, FEEDBACK_TEMPLATE)
CONTEXT_SHARE = Knob(
    "context_share", "Share with context", 0.5, "Share of the examples in SFT whose prompt also has the answer as a "
    "context. Higher: the model relies on a context sooner. Lower: it learns to answer without one. 0: it never sees a "
    "context, so it cannot use one later.", low=0.0, high=1.0, safe=(0.2, 0.8), unit="share", group="model")

SOURCES = (
    Knob("on_policy_share", "On-policy share", 0.5, "Share of the batches whose answers the policy writes itself, so "
         "it also learns after its own mistakes. Higher: more such batches, which take longer. 0: only answers by the "
         "task or the teacher. 1: only answers by the "
         "policy.", "next batch", 0.0, 1.0, (0.0, 1.0), r"\lambda_{GKD}", "share",
         group="sampling", aliases="lmbda gkd"),
    Knob("answers", "Source of the other answers", "given", "Answers of the batches that the policy does not write "
         "itself. given: the task's answers. teacher: the teacher writes them, so the task needs no answers.",
         choices=ANSWERS, group="sampling", aliases="seq_kd"),
)
