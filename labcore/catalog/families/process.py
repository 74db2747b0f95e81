"""Process rewards: where the labels of steps come from, and the rewards that the scores of steps become."""

from labcore.catalog.choice import Choice, Family, Letter, StepLabels
from labcore.catalog.knob import Knob
from labcore.catalog.worked import Worked

SEPARATOR = Knob(
    "step_separator", "Step separator", "", "Text that ends each step of an answer; \\n is a line break. A process "
    "reward model scores the end of each step. Empty: every token is a step.", advanced=True, forkable=True,
    group="reward", before="")
ROLLOUTS = (
    Knob("label_rollouts", "Rollouts per step", 4, "Completions that are sampled from the end of each step. The share "
         "that the verifier accepts is the label of the step. Higher: less noise in the labels, more time. Lower: less "
         "of both.", "next batch", 1, 256, (2, 16), "K", advanced=True, group="reward"),
    Knob("hard_labels", "Hard labels", True, "On: a step is right if any of its rollouts is accepted. Off: its label "
         "is the share of accepted rollouts.", "next batch", advanced=True, group="reward"),
)
STEP_LABELS = Family("step_labels", "source of step labels", "labcore.llm.step_labels", ("session",), (
    StepLabels("dataset", "the labels in your file", r"\mathcal D", asks=("prompts_per_step",), from_file=True),
    StepLabels("step_verifier", "the task's verifier: can the answer still become right?",
               r"1[\exists\, y_{>k}: r(y) = 1]", asks=("prompts_per_step", "group_size")),
    StepLabels("monte_carlo", "the outcome of completions that are sampled from each step",
               r"\tfrac1K\textstyle\sum_j r(y_{\le k}, \tilde y_j)", asks=("prompts_per_step", "group_size"),
               knobs=ROLLOUTS),
))

MIN_TEMPERATURE = Knob(
    "min_temperature", "Temperature of the minimum", 0.1, "How sharply the weights pick the lowest score of an answer. "
    "Lower: only the lowest score counts. Higher: closer to the mean of the scores.", "next batch", 1e-3, 100.0,
    (0.05, 1.0), "T_{min}", "score", scale="log", advanced=True, group="reward", before=0.1)
_S = Letter("s_k", label="score of step k")
STEP_REWARD = Family("step_reward", "reward of a step", "labcore.maths.process", ("scores", "steps"), (
    Choice("each_step", "its score: an answer earns the sum of its scores", r"s_k", letters=(_S,),
           worked=lambda of: Worked("s_k", "{score}")),
    Choice("min_form", "P(right) − P(wrong), weighted towards the lowest step of the answer (PURE)",
           r"\frac{e^{-u_k/T_{min}}}{\sum_j e^{-u_j/T_{min}}}\,u_k,\quad u_k = 2s_k-1", knobs=(MIN_TEMPERATURE,),
           letters=(_S,), worked=lambda of: Worked(
               "exp(−(2s_k − 1)/T) / Σ exp(−(2s_j − 1)/T) × (2s_k − 1)",
               "exp(−(2 × {score} − 1) / {min_temperature:g}) / {weights} × (2 × {score} − 1)")),
    Choice("difference", "the change of the score from the previous step: an answer earns the last score in total",
           r"s_k - s_{k-1},\quad s_0 = 0", letters=(_S,),
           worked=lambda of: Worked("s_k − score of the step before", "{score} − {previous}")),
    Choice("lowest", "0, and at the last step the lowest score", r"1[k = n]\,\min_j s_j", letters=(_S,),
           worked=lambda of: Worked("1[k = n] min s", "{at_end:g} × {lowest}")),
    Choice("product", "0, and at the last step the product of all scores", r"1[k = n]\,\textstyle\prod_j s_j",
           letters=(_S,), worked=lambda of: Worked("1[k = n] Π s", "{at_end:g} × {product}")),
    Choice("last", "0, and at the last step its score", r"1[k = n]\,s_n", letters=(_S,),
           worked=lambda of: Worked("1[k = n] s_n", "{at_end:g} × {score}")),
))
RANKINGS = ("lowest", "product", "last")  # rewards of steps whose sum ranks answers
OUTCOME_WEIGHT = Knob(
    "outcome_weight", "Weight of the outcome", 0.0, "Weight of the verifier's reward, which is added at the last token "
    "to the rewards of the steps. Higher: the outcome counts more. 0: only the steps count.", "next batch", 0.0, 100.0,
    (0.0, 2.0), "w_o", advanced=True, group="reward", before=0.0)
STEP_REWARD_KNOB = Knob(
    "step_reward", "Reward of a step", "each_step", "How the scores of an answer's steps become rewards. The score of "
    "every step pays more for answers with more steps; the other choices do not.", choices=STEP_REWARD.names,
    advanced=True,
    group="reward", before="each_step")
PUBLISHED = (
    Knob("step_tag", "Step tag", "", "Tag after each step at which a published language model scores the step, such as "
         "ки of math-shepherd. Empty: the process reward model is a run of the lab or a token classifier.",
         advanced=True, forkable=True, group="reward", before="", aliases="math-shepherd"),
    Knob("label_tokens", "Label tokens", "+ -", "Tokens by which a language model with a step tag rates a step as "
         "right and as wrong: two texts or two token ids. The score is the probability of the first, relative to both.",
         advanced=True, forkable=True, group="reward", before="+ -"),
)
# Settings for a published step scorer that belongs to no run: a line break ends a step.
OF_PUBLISHED = {knob.key: knob.default for knob in PUBLISHED} | {SEPARATOR.key: "\\n"}
OF_SOURCE = (STEP_REWARD_KNOB, OUTCOME_WEIGHT, SEPARATOR)  # of a source that scores steps
