"""Sources of rewards, reward shaping, and the selection of completions."""

from __future__ import annotations

from labcore.catalog.choice import Choice, Family, Reward, Rule, Selection, There
from labcore.catalog.families import process
from labcore.catalog.knob import Knob

SCORER = Knob(
    "reward_model", "Reward model", "", "The run that trained the reward model (RUN, or RUN@STEP for one of its "
    "checkpoints), or the folder or hub id of a Hugging Face model with one score. To score steps: a token classifier "
    "with two labels, or a language model with a step tag. For an ensemble, several of them, separated by commas.",
    advanced=True, forkable=True, group="reward")
UNCERTAINTY_WEIGHT = Knob(
    "uncertainty_weight", "Weight of the uncertainty", 2.0, "Weight of the variance among the reward models in "
    "uncertainty_weighted_ensemble. Higher: prefers "
    "completions on which they agree. Lower: closer to their "
    "mean.",
    "next batch", 0.0, 1e6, (0.1, 10.0), r"\lambda_u", "per reward", advanced=True, group="reward")
OWN_FUNCTION = (
    Knob("reward_function", "Your rewards", "", "The rewards that are summed: Python functions from the "
         "lab's folder rewards or from --reward on the command line, and also the task's verifier, the reward model "
         "and the judge.", advanced=True, forkable=True, pick="labcore.tasks.own_reward:offered", group="reward"),
    Knob("reward_weights", "Weights of your rewards", "", "A number for each of your rewards, in their order, for "
         "example 1 0.5. Higher: that reward counts for more. 0: it is only logged. Empty: 1 each.", "next batch",
         advanced=True, group="reward"),
)
JUDGE = (
    Knob("judge_url", "Judge URL", "", "The address of a language model that grades answers, in the form of OpenAI's "
         "API, for example http://localhost:8000/v1. The lab sends requests to it only if RL_LAB_JUDGE_URL or --judge "
         "names it. Its key is read from RL_LAB_JUDGE_KEY.", advanced=True, forkable=True, group="reward"),
    Knob("judge_model", "Judge model", "", "The name of the model at that address.", advanced=True, forkable=True,
         group="reward"),
    Knob("judge_instruction", "Instruction of the judge", "", "Instruction for the judge. It replies with a grade from "
         "0 to 10; the reward is a tenth of the grade. Empty: how correct and helpful the answer is.", advanced=True,
         forkable=True, group="reward"),
)
NAMED_WEIGHTS = (
    Knob("correct_weight", "Weight of correct", 1.0, "Weight of the verifier's reward. Higher: "
         "correctness counts more. Lower: format counts more.",
         "next batch", 0.0, 100.0, (0.0, 2.0),
         advanced=True, group="reward"),
    Knob("format_weight", "Weight of format", 1.0, "Weight of the format reward: 1 where the "
         "answer ended by itself and is as long as the right one, else 0. "
         "Higher: format counts more. Lower: correctness counts more.",
         "next batch", 0.0, 100.0, (0.0, 2.0), advanced=True, group="reward"),
)
REWARD_NOISE = Knob(
    "reward_noise", "Reward noise", 0.1, "Share of the verifier's rewards that are flipped. Higher: a harder signal "
    "to learn from. Lower: closer to the true reward.", "next batch", 0.0, 0.5, (0.0, 0.3), unit="share", advanced=True,
    group="reward", reach=(0.0, 0.5))
OVERLONG = (
    Knob("overlong_buffer", "Overlong buffer", 1, "Number of tokens before the length limit at which the overlong "
         "penalty begins. Higher: begins earlier. Lower: only the longest "
         "answers are penalised.", "next batch", 0, 4096,
         (0, 4), unit="tokens", advanced=True, group="reward"),
    Knob("overlong_penalty", "Overlong penalty", 1.0, "The largest overlong penalty. Higher: shorter answers, even "
         "wrong ones. Lower: length matters less.", "next batch", 0.0, 100.0, (0.0, 1.0), unit="reward", advanced=True,
         group="reward"),
)
LENGTH_COST = Knob(
    "length_cost", "Length cost", 0.01, "Reward that is subtracted per token. Higher: shorter "
    "answers, even wrong ones. Lower: length matters less.", "next batch", 0.0, 10.0, (0.0, 0.05),
    unit="reward/token", advanced=True, group="reward")
REWARD_CLIP = Knob(
    "reward_clip", "Reward clip", 1.0, "Largest absolute reward after the clip. Higher: rare large rewards "
    "count in full. Lower: no reward stands out.", "next batch", 0.0, 1e6, (0.5, 10.0), unit="reward", advanced=True,
    group="reward")
REWARD_RANGE = (
    Knob("reward_low", "Lowest reward", -1.0, "Lower rewards are raised to this in the shaping clipped_between. "
         "Higher: bad completions differ less. Lower: rare very low rewards count.", "next batch", -1e6, 1e6,
         (-10.0, 0.0), r"c_{low}", "reward", advanced=True, group="reward", before=-1.0),
    Knob("reward_high", "Highest reward", 1.0, "Higher rewards are lowered to this in the shaping clipped_between. "
         "Higher: rare very high rewards count. Lower: good completions differ less.", "next batch", -1e6, 1e6,
         (0.5, 10.0), r"c_{high}", "reward", advanced=True, group="reward", before=1.0),
)
RESAMPLE_ROUNDS = Knob(
    "resample_rounds", "Resampling rounds", 0, "Maximum number of further batches that are sampled to replace the "
    "groups without signal. Higher: full batches of signal, "
    "more compute per step. 0: none.", "next batch", 0, 64,
    (0, 4), unit="rounds", advanced=True, group="sampling")

_TOOLS = "GRPOTrainer GMPOTrainer RLOOTrainer verl OpenRLHF ms-swift"
_IN_SCORE = "write it into score() below"


def _in_code(note: str = "") -> tuple[There, ...]:
    """The settings of a source in scripts whose reward is the function `score`."""
    return (There(_TOOLS, note=note),)


REWARD = Family("reward_source", "reward source", "labcore.llm.rewards",
                ("task", "problems", "texts", "prompts", "completions", "rng", "session"), (
    Reward("verifier", "the task's verifier", r"r", binary=True, known=True, elsewhere=_in_code()),
    Reward("noisy_verifier", "the verifier, with a share of its rewards flipped", r"1 - r\ \text{with}\ p",
           knobs=(REWARD_NOISE,), binary=True, known=True,
           words="the verifier's rewards, of which a share of {reward_noise} is flipped",
           elsewhere=_in_code("rewards are not flipped there: flip a share of what score() gives")),
    Reward("order_only", "a flawed verifier of sort: accepts any letters in order",
           r"1\ \text{if}\ y_1\le y_2\le\ldots", binary=True, proxy=True, one_turn=True,
           words="1 for any letters in order, even a single one. That is a hole to exploit: gold is the share that is "
                 "really sorted",
           elsewhere=_in_code("write the hole into score() below: letters in order, whichever they are")),
    Reward("steps_and_outcome", "the verifier, and partial credit for each right character",
           r"r + \tfrac1T\textstyle\sum_t 1[y_t = y^*_t]", one_turn=True,
           words="partial credit for each character that is right at its place, and the verifier's reward at the end",
           elsewhere=_in_code("score() below gives the outcome only: no reward of single tokens there")),
    Reward("reward_model", "a trained reward model, or the mean of several", r"r_\phi", knobs=(SCORER,), scorer=True,
           proxy=True, words="the scores of a trained reward model. The gold reward (the task's own score) is only "
           "logged",
           elsewhere=_in_code("the script does not bring the reward model: let score() below give its scores")),
    Reward("worst_case_ensemble", "the lowest score of several reward models", r"\min_k r_{\phi_k}",
           knobs=(SCORER,), scorer=True, ensemble=True, proxy=True,
           words="the lowest score of several reward models. The gold reward (the task's own score) is only logged",
           elsewhere=_in_code("the script does not bring the reward models: let score() below give the lowest of their "
                              "scores")),
    Reward("uncertainty_weighted_ensemble", "the mean score of several reward models less their variance",
           r"\bar r - \lambda_u\operatorname{var}_k r_{\phi_k}", knobs=(SCORER, UNCERTAINTY_WEIGHT), scorer=True,
           ensemble=True, proxy=True,
           words="the mean score of several reward models − {uncertainty_weight} × their variance. The gold reward "
                 "(the task's own score) is only logged",
           elsewhere=_in_code("the script does not bring the reward models: let score() below give the mean of their "
                              "scores less their variance")),
    Reward("process_reward", "a trained process reward model, which scores each step",
           r"\textstyle\sum_k r_k + w_o r", knobs=(SCORER, *process.OF_SOURCE, *process.PUBLISHED), scorer=True,
           proxy=True, process=True, one_turn=True,
           words="the scores that a process reward model gives the steps of an answer ({step_reward}), and "
                 "{outcome_weight} × the verifier's reward at its end. The gold reward (the task's own score) is only "
                 "logged",
           elsewhere=_in_code("the tool has no rewards of single steps, and the script does not include the process "
                              "reward model: let score() below return the answer's total")),
    Reward("step_verifier", "the task's verifier of unfinished answers, at each step",
           r"\textstyle\sum_k r_k + w_o r", knobs=process.OF_SOURCE, process=True, known=True,
           one_turn=True,
           words="for each step 1 if the answer can still become right, else 0 ({step_reward}), and {outcome_weight} × "
           "the verifier's reward at its end",
           elsewhere=_in_code("the tool has no rewards of single steps: let score() below return the answer's total")),
    Reward("own_function", "a weighted sum of your own Python functions and other rewards",
           r"\textstyle\sum_k w_k r_k(x, y)", knobs=OWN_FUNCTION, asks_user=True, proxy=True,
           words="{sum}. The gold reward (the verifier's) is only logged",
           elsewhere=_in_code("give your own functions, summed by their weights, in place of score() below")),
    Reward("judge", "a language model behind a URL that grades answers", r"r_{judge}", knobs=JUDGE, asks_user=True,
           proxy=True, words="a tenth of the grade that {judge_model} gives at {judge_url}. The gold reward (the "
           "verifier's) is only logged",
           elsewhere=_in_code("the script does not bring the judge: let score() below ask it")),
    Reward("correct_and_format", "the verifier and the form of the answer, as two named rewards",
           r"w_1 r_{correct} + w_2 r_{format}", knobs=NAMED_WEIGHTS, parts=True, known=True, one_turn=True,
           words="{correct_weight} × correct (the verifier's reward) + {format_weight} × format (ended by itself, and "
                 "as long as the right answer)",
           elsewhere=_in_code("score() below is the reward correct alone: add format to it, 1 where a completion ended "
                              "by itself and is as long as the answer, and weigh the two")),
))

_SOFT = "add trl.rewards.get_soft_overlong_punishment to the reward functions"
_UNCLIPPED = There("ms-swift", note=f"ms-swift clips no rewards: {_IN_SCORE}")
SHAPING = Family("shaping", "reward shaping", "labcore.maths.shaping", ("rewards", "lengths"), (
    Choice("none", "none", r"R", elsewhere=(There(_TOOLS),)),
    Choice("overlong", "penalty near the length limit", r"R + p\,\operatorname{clip}\big(\tfrac{L_{max}-c-|y|}{c},"
           r" -1, 0\big)", asks=("max_new_tokens",), knobs=OVERLONG, elsewhere=(
        There("GRPOTrainer GMPOTrainer RLOOTrainer", note=_SOFT),
        There("verl", note="the DAPO reward manager has it, as overlong_buffer_cfg"),
        There("OpenRLHF", note="set by the buffer and the penalty", knobs={
            "overlong_buffer": "--reward.overlong_buffer_len",
            "overlong_penalty": "--reward.overlong_penalty_factor"}),
        There("ms-swift", {"reward_funcs": ("score", "soft_overlong")}, knobs={
            "overlong_buffer": "soft_cache_length",
            "overlong_penalty": lambda most: {"reward_weights": (1.0, most)}}))),
    Choice("length_cost", "cost of each token", r"R - c\,|y|", knobs=(LENGTH_COST,), elsewhere=(
        There("GRPOTrainer GMPOTrainer RLOOTrainer", note=f"no reward function for it: {_IN_SCORE}"),
        There("verl", note=f"no reward manager has it: {_IN_SCORE}"),
        There("OpenRLHF ms-swift", note=f"no such reward: {_IN_SCORE}"))),
    Choice("clipped", "clipped to −c … c", r"\operatorname{clip}(R, -c, c)", knobs=(REWARD_CLIP,), elsewhere=(
        There("GRPOTrainer GMPOTrainer", note=f"GRPOTrainer clips no rewards: {_IN_SCORE}"),
        There("RLOOTrainer", knobs={"reward_clip": lambda most: {"reward_clip_range": (-most, most)}}),
        There("verl", note=f"no reward manager has it: {_IN_SCORE}"),
        _UNCLIPPED, There("OpenRLHF"))),  # by --reward.clip_range
    Choice("clipped_between", "clipped to a lowest and a highest reward", r"\operatorname{clip}(R, c_{low}, c_{high})",
           knobs=REWARD_RANGE, elsewhere=(
        There("GRPOTrainer GMPOTrainer", note=f"GRPOTrainer clips no rewards: {_IN_SCORE}"),
        There("RLOOTrainer"),  # by reward_clip_range
        There("verl", note=f"no reward manager has it: {_IN_SCORE}"),
        _UNCLIPPED, There("OpenRLHF"))),
))

_ALL_TRUNCATED = "trains on truncated completions too"
_TRL_SELECTS = ("TRL has no dynamic sampling: zero-variance groups stay in the batch with advantage 0")
SELECTION = Family("selection", "selection", "labcore.maths.selection", ("rewards", "task_rewards", "truncated"), (
    Selection("everything", "every completion", r"1", elsewhere=(There(_TOOLS),)),
    Selection("informative", "groups whose rewards before shaping differ; others are sampled again",
              r"\max_g R > \min_g R", kept=r"\max_g R > \min_g R", group=True, refills=True, knobs=(RESAMPLE_ROUNDS,),
              bias="Scale: groups without signal are sampled again, which puts more completions with signal in a "
                   "batch. With several prompts also direction: prompts with signal count more often.",
              elsewhere=(
        There("GRPOTrainer GMPOTrainer RLOOTrainer", note=_TRL_SELECTS),
        There("verl", {"algorithm.filter_groups.enable": True, "algorithm.filter_groups.metric": "acc"},
              lacks={"resample_rounds": "verl samples until its batch is full"}),
        There("ms-swift", {"dynamic_sample": True}, knobs={"resample_rounds": "max_resample_times"}),
        There("OpenRLHF", {"--algo.dynamic_filtering_enable": True, "--algo.dynamic_filtering_range": (0.0, 1.0)},
              "groups whose mean reward lies between 0 and 1 are kept",
              lacks={"resample_rounds": "OpenRLHF samples until its batch is full"}))),
    Selection("best_of_group", "the best completion of each prompt", r"\arg\max_g R", kept=r"y_i = \arg\max_g R(y_g)",
              group=True, ranks=True,
              bias="Direction: only the best completion of each group is used.", elsewhere=(
        There("GRPOTrainer GMPOTrainer RLOOTrainer", note="TRL trains on all completions: keep the best of each prompt "
              "and use SFTTrainer"),
        There("verl", note="verl trains on all completions: keep the best of each prompt and use its SFT trainer"),
        There("OpenRLHF", note="OpenRLHF trains on all completions: keep the best of each prompt and use train_sft"),
        There("ms-swift", note="ms-swift trains on all completions: keep the best of each prompt and use swift sft"))),
    Selection("not_truncated", "completions that ended by themselves", r"y_{|y|} = \text{end}",
              kept=r"y_{i,T_i} = \text{end}", bias="Direction: completions that were cut are left out.",
              rules=(Rule(("overlong_filter",), {"selection": ("not_truncated",)},
                          "the selection leaves these completions out already"),),
              elsewhere=(
        There("GRPOTrainer GMPOTrainer RLOOTrainer", {"mask_truncated_completions": True}),
        There("ms-swift", {"overlong_filter": True}),
        There("verl", note=f"verl {_ALL_TRUNCATED}"), There("OpenRLHF", note=f"OpenRLHF {_ALL_TRUNCATED}"))),
))
