"""Baselines that are subtracted from a completion's reward, and normalisations of advantages."""

from __future__ import annotations

from math import log

from labcore.catalog.choice import Advantage, Caution, Family, Letter, Normalisation, There
from labcore.catalog.conditions import kl_in
from labcore.catalog.families.distillation import CONTEXT, SINGLE_STEP, TEACHER, TEACHER_DISCOUNT
from labcore.catalog.families.rewards import REWARD
from labcore.catalog.knob import Knob
from labcore.catalog.worked import Numbers, Unrecorded, Worked

GAMMA = Knob(
    "gamma", "Discount", 1.0, "Factor by which a reward counts less for each token before it. 1: late rewards count in "
    "full. Lower: early tokens get less of the final reward.", "live", 0.0, 1.0, (0.95, 1.0), r"\gamma",
    group="advantage")
GAE_LAMBDA = Knob(
    "gae_lambda", "GAE λ", 0.95, "Mixture of sampled returns and the critic's values. Higher: trusts sampled returns "
    "(unbiased, noisy). Lower: trusts the critic (steady, biased while the critic is wrong).", "live", 0.0, 1.0,
    (0.9, 1.0), r"\lambda", group="advantage")
VALUE = (
    Knob("value_beta", "Temperature of the best value", 0.5, "Higher: V* is nearer to the mean reward of the "
         "reference's completions. Lower: nearer to the best of these "
         "rewards.", "next batch", 1e-3, 100.0, (0.1, 1.0), r"\beta_1",
         "reward/nat", scale="log", group="advantage", aliases="beta1"),
    Knob("value_samples", "Samples for the best value", 8, "Completions of the reference for each new prompt, used to "
         "estimate its V*. More: less noise, but the first visit of a prompt takes longer. Fewer: "
         "quicker.", "next batch", 1, 1024, (4, 16), "N",
         group="advantage", aliases="num_value_samples"),
)
PASS_K = Knob(
    "pass_k", "k of pass@k", 2, "The training maximises the expected best reward of k completions of a prompt. Higher: "
    "variety pays more. 1: the mean reward, as in GRPO. It must be below the group "
    "size.", "next batch", 1, 1024, (2, 8),
    group="advantage")
TRACKER_HALF_LIFE = Knob(
    "tracker_half_life", "Half-life of the tracker", 8.0, "Updates of the policy after which earlier rewards of a "
    "prompt count half. The factor per visit of a prompt stays within 0.875 and 0.96. Higher: a steadier baseline that "
    "lags more. Lower: the baseline follows a fast-learning "
    "policy.", "next batch", 0.1, 1e6, (2.0, 64.0), unit="updates", group="advantage")

MIXTURE_SHARE = Knob(
    "mixture_share", "Reference's share of the mixture", 0.5, "The opponent samples from a geometric mixture of policy "
    "and reference. Higher: nearer to the reference, an opponent that stays the same. Lower: nearer to the policy, "
    "which then plays against itself. 1: the reference alone.", "next batch", 0.0, 1.0, (0.1, 0.9), r"\alpha_m",
    "share", group="advantage", aliases="mixture_coef")

# What the other tools call their settings.
_SCALE, _VERL, _BY_STD, _OPENRLHF = ("scale_rewards", "algorithm.adv_estimator", "algorithm.norm_adv_by_std_in_grpo",
                                     "--algo.advantage.estimator")
_WHITENED = ("advantages are whitened over the batch's tokens, not divided by the spread of its rewards")
_IN_GROUP = "Scale: a completion's own reward is in the group mean, so the gradient is (1 − 1/G) as long."
_BASELINE = "{reward} − {baseline:b}"  # where the baseline itself is not in a file

_NO_TEACHER = (
    There("ms-swift", {"teacher_kl_coef": 1.0}),
    There("DistillationTrainer", {"beta": 1.0}, "the reverse KL over the whole vocabulary: the mean gradient of the "
          "log-ratio with a discount of 0, with less noise"),
    There("SDFTTrainer SDPOTrainer"),
    There("verl", {_VERL: "grpo"}, "verl's trainer takes no teacher here, so this script trains another algorithm: "
          "GRPO on the rewards"),
    There("OpenRLHF", note="OpenRLHF takes no teacher, so this script trains another algorithm: REINFORCE on the "
          "rewards", name="reinforce"))


def _of_teacher(of: Numbers) -> Worked:
    """The token's own log-ratio. A discount adds those of later tokens, which are not among the token's numbers."""
    if of["teacher_discount"] or of.get("single_step"):
        return Worked("log π_T − log π_old, and those of later tokens", "{advantage}")
    return Worked("log π_T − log π_old", "{teacher_logprobs} − {old_logprobs:b}")


DIGITS = 4  # of a reward that is computed from an advantage; further digits are rounding errors of the record


def _of_opponent(of: Numbers) -> Worked:
    """The win probability and the opponent's reward, computed from the recorded advantage; unknown if the probability
    is 0 or 1, or if the advantage was normalised."""
    chance = of["reward"] - of["baseline"] + 0.5
    if not 0 < chance < 1:
        raise Unrecorded("opponent")
    return Worked("σ(R − R of the opponent) − ½", "1 / (1 + exp({opponent} − {reward:b})) − 0.5",
                  f"beats the opponent with probability {chance:.2f}",
                  {"opponent": round(of["reward"] - log(chance / (1 - chance)), DIGITS) + 0.0})  # + 0.0: no −0


def _swift(scale: str, estimator: str = "grpo", note: str = "") -> There:
    return There("ms-swift", {"advantage_estimator": estimator, _SCALE: scale}, note)


ADVANTAGE = Family("advantage", "advantage", "labcore.maths.advantages",
                   ("rewards", "lengths", "greedy_rewards", "opponent_rewards", "past_rewards", "reward_parts",
                    "part_weights",
                    "token_rewards", "values", "completion_mask", "scored_tokens", "old_logprobs", "square_sums",
                    "teacher_logprobs", "step_ends", "group_size", "prompt_values"), (
    Advantage("batch_mean", "reward − batch mean", r"R - \bar R", "sequence", against="batch", exact=True,
              worked=lambda of: Worked("R − mean R of the batch", _BASELINE),
              bias="Scale: a completion's own reward is in the batch mean, so the gradient is (1 − 1/B) as long.",
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "none"}, "GRPOTrainer subtracts the group's mean, not the batch's"),
        There("verl", {_VERL: "reinforce_plus_plus"}, "the advantages of the batch's tokens are also divided by their "
              "spread"),
        _swift("none", note="ms-swift subtracts the group's mean, not the batch's"),
        There("OpenRLHF", name="flash_reinforce"))),
    Advantage("leave_one_out", "reward − mean of the others in its group",
              r"R_i - \tfrac{1}{G-1}\textstyle\sum_{j\ne i}R_j", "sequence", group=True, against="group", exact=True,
              worked=lambda of: Worked("R − mean of the others' R", "{reward} − {others:b}"),
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "none"}, "GRPOTrainer subtracts the mean of the whole group: the advantage is "
              "smaller by the factor (G − 1)/G"),
        There("RLOOTrainer"), There("verl", {_VERL: "rloo"}), There("OpenRLHF", name="rloo"),
        _swift("none", "rloo"))),
    Advantage("group_mean", "reward − group mean", r"R - \bar R_g", "sequence", group=True, against="group", exact=True,
              worked=lambda of: Worked("R − mean R", "{reward} − {mean:b}"),
              bias=_IN_GROUP,
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "none"}), There("verl", {_VERL: "grpo", _BY_STD: False}),
        There("OpenRLHF", name="dr_grpo"), _swift("none"))),
    Advantage("group_standardised", "reward − group mean, over the group's standard deviation",
              r"\frac{R - \bar R_g}{s_g + \epsilon}", "sequence", group=True, scaled=True, against="group",
              worked=lambda of: Worked("(R − mean R) / (std R + 10⁻⁴)", "({reward} − {mean:b}) / ({std} + 0.0001)"),
              bias="Direction: dividing by the group's standard deviation gives groups with a small spread of rewards "
                   "as much weight as groups with a large one.",
              cautions=(
        Caution("Divided by the group's standard deviation, prompts that are nearly always or nearly never solved "
                "count most (bias by difficulty). The advantage `group_mean` has no such bias."),),
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "group"}), There("verl", {_VERL: "grpo", _BY_STD: True}),
        There("OpenRLHF", name="group_norm"), _swift("group"))),
    Advantage("batch_standardised", "reward − group mean, over the batch's standard deviation",
              r"\frac{R - \bar R_g}{s + \epsilon}", "sequence", group=True, scaled=True, against="group", exact=True,
              worked=lambda of: Worked("(R − mean R) / (std R of the batch + 10⁻⁴)",
                                       "({reward} − {mean:b}) / ({batch_std} + 0.0001)"),
              bias="Direction: the batch's standard deviation depends on the same rewards that it divides.",
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "batch"}),
        There("verl", {_VERL: "reinforce_plus_plus_baseline"}, _WHITENED),
        There("OpenRLHF", note=_WHITENED, name="reinforce_baseline"), _swift("batch"))),
    Advantage("greedy_baseline", "reward − reward of the greedy completion", r"R - R_{greedy}", "sequence",
              rollouts=("greedy",), against="batch",
              worked=lambda of: Worked("R − R of the greedy completion", _BASELINE),
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "none"}, "GRPOTrainer subtracts the group's mean, not the reward of a greedy "
              "completion"),
        There("verl", {_VERL: "remax", "trainer.use_v1": False}, "only verl's older trainer samples the greedy "
              "completion"),
        _swift("none", note="ms-swift subtracts the group's mean, not the reward of a greedy completion"),
        There("OpenRLHF", note="the baseline is the mean of the others in the group, not the reward of a greedy "
              "completion", name="rloo"))),
    Advantage("win_probability", "probability of beating a completion of the mixture, less ½",
              r"\sigma(R - R_{opp}) - \tfrac12", "sequence", rollouts=("mixture",), knobs=(MIXTURE_SHARE,),
              letters=(Letter("opp", r"R_{opp}=R(y'),\quad y'\sim\pi_\theta^{1-\alpha_m}\pi_{ref}^{\alpha_m}"),),
              worked=_of_opponent, bias="Direction: it maximises the probability of beating the mixture of policy and "
              "reference, not the mean reward.",
              elsewhere=(
        There("verl", {_VERL: "grpo"}, "verl has no opponent, so this script trains another algorithm: GRPO on the "
              "rewards"),
        There("OpenRLHF", note="OpenRLHF has no opponent, so this script trains another algorithm: REINFORCE on the "
              "rewards", name="reinforce"))),
    Advantage("moving_average", "reward − mean of all rewards of earlier steps", r"R - \bar R_{past}", "sequence",
              against="batch", exact=True,
              worked=lambda of: Worked("R − mean of all earlier R", _BASELINE),
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "none"}, "GRPOTrainer subtracts the group's mean, not that of all earlier "
              "rewards"),
        There("verl", {_VERL: "reinforce_plus_plus"}, "the baseline is the mean of this batch's tokens, and advantages "
              "are divided by their spread"),
        _swift("none", note="ms-swift subtracts the group's mean, not that of all earlier rewards"),
        There("OpenRLHF", note="the baseline is the mean of this batch, not of all earlier ones",
              name="flash_reinforce"))),
    Advantage("optimal_value", "reward − optimal value of the prompt", r"R - \beta_1\log\tfrac1N\textstyle\sum_n"
              r"e^{R(y_n)/\beta_1},\ y_n\sim\pi_{ref}", "sequence", of_prompt="optimal_values", knobs=VALUE,
              against="batch",
              worked=lambda of: Worked("R − V* of the prompt", _BASELINE),
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "none"}, "GRPOTrainer subtracts the group's mean: A*-PO is TRL's A2POTrainer"),
        There("verl", {_VERL: "reinforce_plus_plus"}, "the baseline is the mean of this batch's tokens, not a value "
              "of each prompt"),
        There("OpenRLHF", note="the baseline is the mean of this batch, not a value of each prompt",
              name="flash_reinforce"))),
    Advantage("tracked_value", "reward − tracked mean reward of the prompt", r"R - \hat v(x)", "sequence",
              of_prompt="tracked_values", knobs=(TRACKER_HALF_LIFE,), against="batch",
              worked=lambda of: Worked("R − tracked mean R of the prompt", _BASELINE),
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "none"}, "GRPOTrainer subtracts the group's mean: no equivalent of SPO"),
        There("verl", {_VERL: "reinforce_plus_plus"}, "the baseline is the mean of this batch's tokens: SPO is a "
              "recipe of verl's, not a setting"),
        There("OpenRLHF", note="the baseline is the mean of this batch: no equivalent of SPO",
              name="flash_reinforce"))),
    Advantage("beta_normalised", "reward − group mean, over a Beta density at that mean",
              r"\frac{R - \bar R_g}{f_{Beta}(\bar R_g;\,a', b')}", "sequence", group=True, against="group",
              worked=lambda of: Worked("(R − mean R) / Beta density", "({reward} − {mean:b}) / {density}"),
              bias="Direction: the density that it divides by depends on the same rewards; a completion's own reward "
                   "is in the group mean as well.", alone=_IN_GROUP,  # the density is then 1
              cautions=(
        Caution("The Beta density is fitted to rewards of 0 and 1: with others it is a wrong scale.",
                lambda v: v["shaping"] != "none" or kl_in(v, "reward") or not REWARD[v["reward_source"]].binary),),
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "group"}, "GRPOTrainer divides by the group's standard deviation: its loss_type "
              "bnpo is something else: the mean over tokens"),
        There("verl", {_VERL: "grpo", _BY_STD: True}, "divided by the group's standard deviation: no equivalent of "
              "BNPO's Beta density"),
        _swift("group", note="ms-swift divides by the group's standard deviation: its loss_type bnpo is the mean over "
               "tokens"),
        There("OpenRLHF", note="divided by the group's standard deviation: no equivalent of BNPO's Beta density",
              name="group_norm"))),
    Advantage("parts_standardised", "each named reward over its own group's standard deviation, then summed",
              r"\operatorname{norm}\Big(\textstyle\sum_k w_k\tfrac{R_k - \bar R_{k,g}}{s_{k,g}+\epsilon}\Big)",
              "sequence", group=True, by_part=True, scaled=True, against="group",
              bias="Direction: every named reward is divided by its own standard deviation, so the sum is another "
                   "objective.",
              cautions=(
        Caution("There is one named reward only, so comparing rewards by name changes nothing: use the reward "
                "source `correct_and_format`.", lambda v: not REWARD[v["reward_source"]].parts),),
              elsewhere=(
        There("GRPOTrainer", {"multi_objective_aggregation": "normalize_then_sum"}, "make the named rewards two reward "
              "functions, and weigh them by reward_weights"),
        There("verl", {_VERL: "gdpo"}, "return a dict of score and the named rewards from compute_score(), and add "
              "+algorithm.gdpo_reward_keys=[correct,format] and +algorithm.gdpo_reward_weights=[…] to the settings: "
              "without them verl stops"),
        _swift("gdpo", note="write each named reward as a reward function, and weight them by reward_weights"),
        There("OpenRLHF", note="the rewards are summed before they are compared: no equivalent of GDPO",
              name="group_norm"))),
    Advantage("mean_scaled", "reward − group mean, over that mean", r"\frac{R - \bar R_g}{\bar R_g}", "sequence",
              group=True, scaled=True, against="group",
              worked=lambda of: Worked("(R − mean R) / mean R", "({reward} − {mean:b}) / {mean:b}"),
              bias="Direction: a prompt counts by 1 / its share of right completions, which is the gradient of the "
                   "log-likelihood of a right completion, not of the mean reward.",
              cautions=(
        Caution("The advantage is divided by the group's mean reward. With negative rewards this mean may be 0 or "
                "negative, and then the group has advantage 0. Use rewards of at least 0.",
                lambda v: v["shaping"] != "none" or kl_in(v, "reward") or not REWARD[v["reward_source"]].binary),),
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "none"}, "the group's mean is subtracted, but the advantage is not divided by "
              "it: prompts that are seldom solved count for less than in MaxRL"),
        There("verl", {_VERL: "grpo", _BY_STD: False}, "not divided by the group's mean: no equivalent of MaxRL"),
        There("OpenRLHF", note="not divided by the group's mean: no equivalent of MaxRL", name="dr_grpo"),
        _swift("none", note="not divided by the group's mean: no equivalent of MaxRL"))),
    Advantage("best_over_rest", "lead of the group's best completion over the second best; 0 for all others",
              r"\max_g R - \max_{j\ne i}R_j", "sequence", group=True, nonnegative=True, against="group",
              worked=lambda of: Worked("max(R − max of the others' R, 0)", "max({reward} − {rest:b}, 0)"),
              bias="Direction: it is the gradient of the best reward of G completions (pass@G), not of the mean "
                   "reward.",
              cautions=(
        Caution("Only the best completion of a group has an advantage, which is never negative. A normalisation would "
                "also give one to the others.", lambda v: v["normalisation"] != "none"),),
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "none"}, "GRPOTrainer compares all completions with the group's mean: no "
              "equivalent of pass@k"),
        There("verl", {_VERL: "grpo_passk", _BY_STD: False}),
        _swift("none", note="all completions are compared with the group's mean: no equivalent of pass@k"),
        There("OpenRLHF", note="all completions are compared with the group's mean: no equivalent of pass@k",
              name="dr_grpo"))),
    Advantage("best_of_subsets", "gain of the best of k by this completion, divided by the spread of the best of k",
              r"\frac{E[M\mid i\in S]-E[M]}{s_M+\epsilon},\ M = \max_{S}R,\ |S| = k", "sequence", group=True,
              scaled=True, against="group", knobs=(PASS_K,),
              bias="Direction: the gradient is that of the best reward of k completions (pass@k), divided by the "
              "spread of this best reward.",
              cautions=(
        Caution("`pass_k` is at least the group size, so the group has one subset and no completion has an advantage. "
                "Set `pass_k` below `group_size`, or use the advantage `best_over_rest`.",
                lambda v: int(v["pass_k"]) >= int(v["group_size"])),),
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "none"}, "GRPOTrainer compares all completions with the group's mean: no "
              "equivalent of pass@k"),
        There("verl", {_VERL: "grpo_passk", _BY_STD: True}, "verl's pass@k has k = the group size, so that only the "
              "best completion has an advantage"),
        There("OpenRLHF", note="all completions are compared with the group's mean: no equivalent of pass@k",
              name="group_norm"))),
    Advantage("length_weighted", "reward − mean of the group weighted by length",
              r"R - \frac{\sum_g T_g R_g}{\sum_g T_g}", "sequence", group=True, against="group",
              bias="Direction: the baseline contains the completion's own reward, weighted by its length.",
              worked=lambda of: Worked("R − mean R of the group, weighted by length", _BASELINE),
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "none"}, "GRPOTrainer subtracts the plain mean of the group"),
        There("verl", {_VERL: "opo"}),
        There("OpenRLHF", note="the plain mean of the group is subtracted", name="dr_grpo"),
        _swift("none", note="the plain mean of the group is subtracted"))),
    Advantage("group_mean_active", "reward − group mean, over the share of groups whose rewards differ",
              r"\frac{R - \bar R_g}{\operatorname{mean}_g 1[\max_g R > \min_g R]}", "sequence", group=True,
              against="group",
              bias="Direction: the number of groups with signal depends on the same rewards.",
              worked=lambda of: Worked("(R − mean R) / share of groups with signal",
                                       "({reward} − {mean:b}) / {active}"),
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "none"}, "zero-variance groups stay in the mean, so the gradient is "
              "smaller by their share"),
        There("verl", {_VERL: "gpg"}, "verl divides by the share of completions whose reward is not 0, not of groups "
              "whose rewards differ"),
        _swift("none", note="zero-variance groups stay in the mean, so the gradient is smaller by their share"),
        There("OpenRLHF", note="zero-variance groups stay in the mean, so the gradient is smaller by their share",
              name="dr_grpo"))),
    Advantage("one", "1: imitate", r"1", "sequence", constant=True, nonnegative=True,
              worked=lambda of: Worked("1", ""),
              bias="Direction: it imitates the selected completions and never lowers bad ones; there is no baseline.",
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "none"}, "GRPOTrainer subtracts the group's mean: to imitate, use SFTTrainer"),
        There("verl", {_VERL: "grpo"}, "verl has no advantage of 1: to imitate the best completions, use its SFT "
              "trainer"),
        _swift("none", note="ms-swift has no advantage of 1: to imitate the best completions, use swift sft"),
        There("OpenRLHF", note="OpenRLHF has no advantage of 1: to imitate the best completions, use train_sft"))),
    Advantage("reward_to_go_whitened", "return from this token on, whitened over the batch's tokens",
              r"\operatorname{whiten}\big(\textstyle\sum_{s\ge t}\gamma^{s-t}r_s\big)", knobs=(GAMMA,),
              against="batch", exact=True,
              bias="Direction: whitening divides by a spread, and takes off a mean, of the same rewards.",
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "batch"}, "GRPOTrainer subtracts the group's mean and divides by the spread of "
              "the batch's rewards, not of its tokens' returns"),
        _swift("batch", "reinforce_plus_plus", "ms-swift subtracts the group's mean, and divides by the spread of the "
               "batch's advantages of completions, not of tokens"),
        There("verl", {_VERL: "reinforce_plus_plus"}), There("OpenRLHF", name="reinforce"))),
    Advantage("steps_standardised", "sum of this and later steps' rewards, each standardised over all steps of the "
              "group",
              r"\textstyle\sum_{k:\,end_k\ge t}\tfrac{r_k - \bar r_g}{s_g + \epsilon}", group=True, scaled=True,
              against="group",
              bias="Direction: dividing by the standard deviation of a group's steps gives groups with a small spread "
              "as much weight as groups with a large one, and the mean reward of a step is subtracted once for each "
              "remaining step.",
              letters=(Letter(r"end_k", label="last token of step k"),),
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "group"}, "one reward per completion: no equivalent of rewards of steps"),
        There("verl", {_VERL: "grpo", _BY_STD: True}, "one reward per completion: no equivalent of rewards of steps"),
        There("OpenRLHF", note="one reward per completion: no equivalent of rewards of steps", name="group_norm"))),
    Advantage("optimal_token_baseline", "return − baseline of least variance at each token, over the group",
              r"G_t - \frac{\sum_g G_t W_t}{\sum_g W_t},\ W_t = \textstyle\sum_{s\le t}\big(1-2\pi_s+\sum_v\pi_v^2"
              r"\big)", group=True, squares=True, against="group",
              bias="Direction: the baseline contains the completion's own return, weighted by its squared gradient.",
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "none"}, "GRPOTrainer subtracts the plain mean of the group from all tokens"),
        There("verl", {_VERL: "optimal_token_baseline", "actor_rollout_ref.actor.calculate_sum_pi_squared": True}),
        There("OpenRLHF", note="the plain mean of the group is subtracted from all tokens: no equivalent of OTB",
              name="dr_grpo"))),
    Advantage("turn_return", "return from this turn on − mean return of the group's other episodes",
              r"G_{i,k} - \tfrac1{n_k}\textstyle\sum_{j\ne i}G_{j,k}", group=True,
              against="group",
              letters=(Letter(r"G_{i,k}", r"G_{i,k} = \textstyle\sum_{l\ge k}r_{i,l}", "Return from turn k on"),),
              elsewhere=(
        There("GRPOTrainer", {_SCALE: "none"}, "one advantage for the whole episode: no equivalent of a return from "
              "each turn on"),
        There("verl", {_VERL: "rloo"}, "one advantage for the whole episode: no equivalent of a return from each turn "
              "on"),
        There("OpenRLHF", note="one advantage for the whole episode: no equivalent of a return from each turn on",
              name="rloo"))),
    Advantage("turn_gae", "generalised advantage estimate whose steps are turns",
              r"\textstyle\sum_{l}(\gamma\lambda)^l\delta_{k+l}", critic=True, knobs=(GAMMA, GAE_LAMBDA),
              elsewhere=(
        There("verl", {_VERL: "gae"}, "verl's steps are tokens: γ and λ count once for each token"),
        There("OpenRLHF", note="its steps are tokens: γ and λ count once for each token", name="gae"))),
    Advantage("gae", "generalised advantage estimate with a critic",
              r"\textstyle\sum_{l}(\gamma\lambda)^l\delta_{t+l}", critic=True, knobs=(GAMMA, GAE_LAMBDA),
              elsewhere=(There("verl", {_VERL: "gae"}), There("OpenRLHF", name="gae"))),
    Advantage("teacher_log_ratio", "log-ratio of teacher to policy, plus discounted log-ratios of later tokens",
              r"\textstyle\sum_{s\ge t}\gamma_T^{s-t}\log\tfrac{\pi_T(y_s)}{\pi_{old}(y_s)}", teacher=True,
              knobs=(TEACHER, TEACHER_DISCOUNT, SINGLE_STEP, *CONTEXT), worked=_of_teacher, elsewhere=_NO_TEACHER,
              trainer="DistillationTrainer"),
    Advantage("teacher_mean_log_ratio", "mean log-ratio of teacher to policy from this token on",
              r"\frac{\sum_{s\ge t}\gamma_T^{s-t}\log\frac{\pi_T(y_s)}{\pi_{old}(y_s)}}{\sum_{s\ge t}\gamma_T^{s-t}}",
              teacher=True, knobs=(TEACHER, TEACHER_DISCOUNT, SINGLE_STEP, *CONTEXT), worked=_of_teacher, elsewhere=(
        There("ms-swift", {"teacher_kl_coef": 1.0}, "the log-ratio of the token itself"), *_NO_TEACHER),
              trainer="DistillationTrainer",
              bias="Direction: the mean over the rest of a completion gives its last tokens more weight."),
))

_OVER_TOKENS = "by the spread of the batch's rewards, not of its "
NORMALISATION = Family("normalisation", "normalisation of advantages", "labcore.maths.normalisation",
                       ("advantages", "scored", "completion_mask"), (
    Normalisation("none", "none", r"\hat A", elsewhere=(
        There("GRPOTrainer verl OpenRLHF ms-swift"), There("RLOOTrainer", {"normalize_advantages": False}))),
    Normalisation("sequences", "mean 0 and standard deviation 1 over the batch's completions",
                  r"\frac{\hat A - \overline{\hat A}}{s_{\hat A} + \epsilon}", elsewhere=(
        There("GRPOTrainer", {_SCALE: "batch"}, f"{_OVER_TOKENS}advantages"),
        There("RLOOTrainer", {"normalize_advantages": True}), _swift("batch", "reinforce_plus_plus"),
        There("verl OpenRLHF", note="whitened over tokens, so long completions weigh more"))),
    Normalisation("tokens", "mean 0 and standard deviation 1 over the batch's tokens", r"\operatorname{whiten}(\hat A)",
                  elsewhere=(
        There("GRPOTrainer", {_SCALE: "batch"}, f"{_OVER_TOKENS}tokens' advantages"),
        There("RLOOTrainer", {"normalize_advantages": True}, "over completions, so that all of them have the same "
              "weight"),
        _swift("batch", "reinforce_plus_plus", "over completions, so that all of them have the same weight"),
        There("verl OpenRLHF"))),
))
