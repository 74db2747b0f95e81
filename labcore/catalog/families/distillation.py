"""The knobs of distillation: the teacher, and who writes the completions that it is asked about.

The losses are members of `SFT_LOSS` and the advantages of `ADVANTAGE`, where the functions are that they name.
"""

from __future__ import annotations

from labcore.catalog.knob import Knob

ANSWERS = ("given", "teacher")

TEACHER = Knob(
    "teacher", "Teacher", "", "The model that the policy learns from: a run (RUN, RUN@STEP or RUN@best), or the folder "
    "or hub id of a Hugging Face model. It must have the policy's vocabulary, and may be larger. It stays frozen.",
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
