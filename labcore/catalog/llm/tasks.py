"""The text tasks and their knobs: prompts, verifiers and the user's own files."""

from __future__ import annotations

from labcore.catalog.knob import Knob
from labcore.catalog.llm import environments
from labcore.catalog.llm.difficulty import EASIEST
from labcore.catalog.task import Task

_ALL = ("online", "preference", "reward_model", "sft")  # loops
_STEPS = (*_ALL, "prm")
WITHOUT_ANSWERS = "length, format, regex or json, or contains with a pattern"  # verifiers of prompts alone
# What a completion must be for each verifier to accept it, as `Task.goal` has it.
VERIFIED = {
    "exact": "must write {answer}, and earns 1 if exact",
    "numeric": "earns 1 if the last number is {number}",
    "math": "earns 1 if its result equals {answer}",
    "choice": "earns 1 if it states the letter {letter}",
    "regex": "earns 1 if its answer matches {pattern}",
    "contains": "earns 1 if its answer contains {wanted}",
    "length": "earns 1 if it writes {length_low} to {length_high} characters",
    "format": "earns 1 if its answer has the form {pattern}",
    "json": "earns 1 if it writes JSON{same}",
}
VERIFIERS = tuple(VERIFIED)

_VERIFIER = (
    Knob("verifier", "Verifier", "exact", "How an answer is scored. exact: equal to the answer; numeric: the number "
         "after ####, in \\boxed{} or at the end equals the answer's, which is a whole plain number; math: equal as "
         "mathematics, so 3/4, 0.75 and \\frac{3}{4} are the same; choice: states the answer's letter, A to J; regex: "
         "matches the pattern; contains: holds the pattern, or the answer where the pattern is empty; length: between "
         "the two lengths; format: has the form of the pattern; json: is JSON, and equals an answer that is JSON.",
         choices=VERIFIERS, group="task"),
    Knob("pattern", "Pattern", "", "The regular expression (regex) or text (contains) to look for, or the template "
         "(format), in which … stands for any text: <think>…</think><answer>…</answer>.", group="task"),
    Knob("length_low", "Shortest", 1, "Shortest completion that the length verifier accepts. Higher: "
         "asks for more text; lower: accepts almost anything.", low=0, high=100_000, unit="characters", advanced=True,
         group="task"),
    Knob("length_high", "Longest", 40, "Longest completion that the length verifier accepts. Higher: accepts "
         "almost anything; lower: asks to be brief.", low=1, high=100_000, unit="characters", advanced=True,
         group="task"),
)

FIELDS = Knob("fields", "Field names", "", "Your file's names of the fields prompt, answer, chosen, rejected, "
              "completion, label and system, such as prompt=question,answer=solution. "
              "Empty: the usual names.",
              advanced=True, group="task")
ROWS = (
    FIELDS,
    Knob("unusable_rows", "Unusable rows", "stop", "How to treat rows of your file that the lab cannot read or the "
         "chat template refuses. stop: the run does not start. skip: the run leaves them out, and an event lists them.",
         choices=("stop", "skip"), advanced=True, group="task"),
    Knob("long_prompts", "Prompts longer than the context", "stop", "How to treat prompts that leave no room for a "
         "completion of the length limit. stop: the run does not start. skip: the run leaves them out, and an event "
         "lists them. cut: the run cuts off their beginning.", choices=("stop", "skip", "cut"), advanced=True,
         group="task"),
)

HELD_OUT = (
    Knob("held_out", "Held-out share", 0.1, "Share of your file's rows that are used for evaluation and never for "
         "training. Higher: less noise in held-out metrics, fewer training rows. Lower: the opposite. 0: no held-out "
         "rows.", low=0.0, high=0.5,
         safe=(0.05, 0.2), unit="share", before=0.0, group="evaluation"),
    Knob("held_out_file", "Held-out file", "", "A second file, used for evaluation only, instead of a share of the "
         "first: the name of an upload, which --held-out FILE sets. Empty: hold out a share.", advanced=True,
         group="evaluation"),
    Knob("held_out_every", "Held-out evaluation every", 25, "Steps between two evaluations on held-out rows; the "
         "first runs before training, the last at the end. Lower: a finer curve, more time. Higher: less time. 0: "
         "automatic, 25 steps or more, so that evaluations take about 10 % of the time of the steps.",
         "next batch", 0, 1_000_000, unit="steps", advanced=True, group="evaluation"),
    Knob("held_out_prompts", "Held-out prompts", 32, "Maximum held-out rows per evaluation, always the same rows. "
         "More: less noise, more time; the standard error is up to 0.09 with 32 rows and 0.03 with 256. Fewer: faster.",
         "next batch", 1, 100_000, advanced=True, group="evaluation"),
    Knob("held_out_samples", "Samples per held-out prompt", 4, "Completions sampled for each held-out prompt at the "
         "run's temperature, in addition to a greedy one; pass@k is estimated up to this k. Higher: less noise, more "
         "time. Lower: faster.", "next batch", 1, 64, advanced=True, group="evaluation"),
)
ORDER = Knob("order", "Order of rows", "shuffled", "shuffled: each epoch goes once through all rows of your file, in a "
             "new order. random: each step draws rows at random, so some rows repeat before others appear.",
             choices=("shuffled", "random"), advanced=True, before="random", group="task")
MEASURED = frozenset(knob.key for knob in HELD_OUT if knob.effect == "next batch")  # these change no training
_FILE_KNOBS = (*ROWS, *HELD_OUT, ORDER)

# Real text: SFT stops at its step limit, and sampling long completions takes too long for many evaluation prompts.
_FILE = {"sft_target": 1.0, "eval_prompts": 32}
# A file's prompts may be hundreds of tokens long: a short SFT of small batches, so that a first run takes a minute.
_LINES = _FILE | {"max_new_tokens": 64, "sft_steps": 50, "prompts_per_step": 8, "pairs_per_step": 8}
_STEP_LABELS = {"step_labels": "dataset", "step_separator": "\\n"}
_LINES_SFT = {"sequences_per_step": 8, "eval_every": 25, "held_out_every": 50, "held_out_samples": 1}


# Two models that come with the lab.
SORT_TEACHER = "SFT base b1482f67ad01"  # 98 % of its answers are right
SORT_SCORER = "PRM 4d9dca14dc60"  # it scores each letter, with an AUC of 0.91


TASKS: dict[str, Task] = {
    task.key: task
    for task in (
        Task("sort", "Sort letters", "Write the letters in alphabetical order.", "labcore.tasks.sort:Sort",
             _STEPS, (
                 Knob("letters", "Letters", 6, "Letters in a prompt. More: a harder task, longer completions.",
                      low=2, high=20, safe=(4, 8), group="task"), EASIEST,
             ), defaults={"max_new_tokens": 8, "teacher": SORT_TEACHER}, scorer=SORT_SCORER,
             example="dbcaef= → abcdef"),
        Task("add", "Add two numbers", "Two-digit sums.", "labcore.tasks.add:Add", _STEPS, (
            Knob("reward_shape", "Reward", "exact", "exact: 1 for the right sum, else 0. shaped: the share of digits "
                 "that are right, so that a near miss gets some reward.", choices=("exact", "shaped"), group="task"),
            Knob("digits", "Digits", 2, "Digits of each number. More: a harder task, longer completions.",
                 low=1, high=6, safe=(1, 3), group="task"), EASIEST,
        ), defaults={"max_new_tokens": 5, "sft_steps": 1500, "sft_target": 0.3},
            sft={"learning_rate": 3e-3, "sequences_per_step": 128, "eval_every": 10}, example="47+85= → 132",
            goal={"exact": "must write {answer}, and earns 1 if exact",
                  "shaped": "must write {answer}, and earns the share of digits that are right"}, graded=("shaped",)),
        Task("countdown", "Countdown", "Reach the target with all of the numbers and +, − and ×.",
             "labcore.tasks.countdown:Countdown", _STEPS, (
                 Knob("numbers", "Numbers", 3, "Numbers in a prompt. More: a harder task, longer completions.", low=2,
                      high=5, safe=(2, 4), group="task"), EASIEST,
             ), defaults={"max_new_tokens": 16, "sft_steps": 800, "sft_target": 0.3},
             sft={"learning_rate": 3e-3, "sequences_per_step": 128, "eval_every": 10},
             example="2,7,3:13= → 2*3+7", right="Target reached",
             goal={"": "must reach the target, for example by {answer}, and earns 1 if each number is used once"}),
        Task("reviews", "Film reviews", "Continue a film review. Its gold score, sentiment times the square of "
             "fluency, is hidden from the policy where a reward model gives the rewards.",
             "labcore.tasks.reviews:Reviews", _ALL, (
                 Knob("label_temperature", "Label temperature", 0.1, "Noise of the preference labels: P(first is "
                      "chosen) = σ(difference of the gold scores / temperature). Higher: more labels are wrong. "
                      "Lower: nearer to the gold score; 0: no noise.", low=0.0, high=10.0, safe=(0.0, 0.5),
                      unit="gold score", group="task"),
             ), pairs=True, defaults={"max_new_tokens": 40, "sft_steps": 400, "sft_target": 0.9},
             reward_model={"pairs": "dataset"},
             online={"beta": 0.2},  # with less a policy soon exploits a reward model
             sft={"learning_rate": 3e-3, "eval_every": 25}, example="the plot was → very good and fun → so dull",
             right="Fluent", goal={"": "must continue it, and earns sentiment × fluency²: {reward} for {answer}"},
             graded=("",)),
        *environments.ROWS,
        Task("prompts", "Your own prompts", "A file of prompts and answers (JSONL, JSON, CSV or Parquet) and a "
             "verifier.",
             "labcore.tasks.prompts:Prompts", _STEPS, (*_VERIFIER, *_FILE_KNOBS), data="prompts",
             defaults=_LINES, sft=_LINES_SFT, prm=_STEP_LABELS, example="question, answer → ####",
             sees="is asked", goal=VERIFIED),
        Task("preferences", "Your own preferences", "A file with prompt, chosen and rejected (JSONL, JSON, CSV or "
             "Parquet); for KTO also with prompt, completion and label (true or false).",
             "labcore.tasks.preferences:Preferences", ("preference", "reward_model", "sft"), _FILE_KNOBS,
             data="preferences", verifiable=False, pairs=True,
             defaults=_LINES | {"pairs": "dataset"}, sft=_LINES_SFT,
             example="a prompt → the chosen answer → the rejected one", sees="is asked"),
        Task("text", "Your own text", "A plain text file, cut into pieces: SFT learns to continue it, RL rewards "
             "continuations that the verifier accepts.", "labcore.tasks.text:Text", _ALL, (
                 *(knob.with_default("length") if knob.key == "verifier" else knob for knob in _VERIFIER),
                 Knob("prompt_length", "Prompt length", 32, "Characters of the text given as prompt. More: an easier "
                      "continuation, more compute per step.", low=1, high=1024, unit="characters", group="task"),
                 Knob("piece_length", "Piece length", 128, "Characters of a training piece in SFT. More: a longer "
                      "memory, more compute per step.", low=8, high=2048, unit="characters", group="task"),
                 *HELD_OUT, ORDER,
             ), data="text", defaults=_FILE | {"max_new_tokens": 48},
             example="a slice of your text → its continuation", sees="reads", goal=VERIFIED),
    )
}
