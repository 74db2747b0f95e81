"""The choices that make an algorithm, family by family, and the functions that they name.

    prompts → generate → reward → shape → select → credit → (ratio, surrogate, KL, aggregation) → update

    L(θ) = agg_mask[ −S(ρ_t(θ), Â_t) + β·KL_t ]

Each choice's key is the name of a function in its family's module. A function asks for what it needs by its parameter
names: quantities that the family provides, and the knobs that the choice needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from labcore.catalog import reward_terms
from labcore.catalog.choice import Choice, Family

REWARD = Family("reward_source", "reward source", "labcore.llm.rewards",
                ("task", "problems", "texts", "prompts", "completions", "rng", "session"), (
    Choice("verifier", "the task's verifier", r"r"),
    Choice("noisy_verifier", "the verifier, with a share of its rewards flipped", r"1 - r\ \text{with}\ p",
           needs=("reward_noise",)),
    Choice("order_only", "a verifier of sort with a hole: letters in order, whichever they are",
           r"1\ \text{if}\ y_1\le y_2\le\ldots"),
    Choice("steps_and_outcome", "the verifier, and a share for each character that is right",
           r"r + \tfrac1T\textstyle\sum_t 1[y_t = y^*_t]"),
    Choice("reward_model", "a trained reward model; of several the mean", r"r_\phi", needs=("reward_model",),
           scorer=True),
    Choice("worst_case_ensemble", "the lowest score of several reward models", r"\min_k r_{\phi_k}",
           needs=("reward_model",), scorer=True, ensemble=True),
    Choice("uncertainty_weighted_ensemble", "the mean score of several reward models less their variance",
           r"\bar r - \lambda_u\operatorname{var}_k r_{\phi_k}", needs=("reward_model", "uncertainty_weight"),
           scorer=True, ensemble=True),
    Choice("own_function", "a weighted sum of your own Python functions and other rewards",
           r"\textstyle\sum_k w_k r_k(x, y)", needs=("reward_function", "reward_weights"), asks_user=True),
    Choice("judge", "a language model behind a URL that grades answers", r"r_{judge}",
           needs=("judge_url", "judge_model", "judge_instruction"), asks_user=True),
    Choice("correct_and_format", "the verifier and the form of the answer, as two named rewards",
           r"w_1 r_{correct} + w_2 r_{format}", needs=("correct_weight", "format_weight")),
))

SHAPING = Family("shaping", "reward shaping", "labcore.maths.shaping", ("rewards", "lengths"), (
    Choice("none", "none", r"R"),
    Choice("overlong", "penalty near the length limit", r"R + p\,\operatorname{clip}\big(\tfrac{L_{max}-c-|y|}{c},"
           r" -1, 0\big)", needs=("max_new_tokens", "overlong_buffer", "overlong_penalty")),
    Choice("length_cost", "cost of each token", r"R - c\,|y|", needs=("length_cost",)),
    Choice("clipped", "clipped to −c … c", r"\operatorname{clip}(R, -c, c)", needs=("reward_clip",)),
))

SELECTION = Family("selection", "selection", "labcore.maths.selection", ("rewards", "task_rewards", "truncated"), (
    Choice("everything", "every completion", r"1"),
    Choice("informative", "groups whose rewards before shaping differ; others are sampled again",
           r"\max_g R > \min_g R", group=True,
           refills=True, needs=("resample_rounds",)),
    Choice("best_of_group", "the best completion of each prompt", r"\arg\max_g R", group=True),
    Choice("not_truncated", "completions that ended by themselves", r"y_{|y|} = \text{end}"),
))

ADVANTAGE = Family("advantage", "advantage", "labcore.maths.advantages",
                   ("rewards", "greedy_rewards", "past_rewards", "reward_parts", "part_weights", "token_rewards",
                    "values", "completion_mask"), (
    Choice("batch_mean", "reward − batch mean", r"R - \bar R", "sequence"),
    Choice("leave_one_out", "reward − mean of the others in its group",
           r"R_i - \tfrac{1}{G-1}\textstyle\sum_{j\ne i}R_j", "sequence", group=True),
    Choice("group_mean", "reward − group mean", r"R - \bar R_g", "sequence", group=True),
    Choice("group_standardised", "reward − group mean, over the group's standard deviation",
           r"\frac{R - \bar R_g}{s_g + \epsilon}", "sequence", group=True),
    Choice("batch_standardised", "reward − group mean, over the batch's standard deviation",
           r"\frac{R - \bar R_g}{s + \epsilon}", "sequence", group=True),
    Choice("greedy_baseline", "reward − reward of the greedy completion", r"R - R_{greedy}", "sequence",
           rollouts=("greedy",)),
    Choice("moving_average", "reward − mean of all rewards of earlier steps", r"R - \bar R_{past}", "sequence"),
    Choice("beta_normalised", "reward − group mean, over a Beta density at that mean",
           r"\frac{R - \bar R_g}{f_{Beta}(\bar R_g;\,a', b')}", "sequence", group=True),
    Choice("parts_standardised", "each named reward by itself over its group's standard deviation, summed",
           r"\operatorname{norm}\Big(\textstyle\sum_k w_k\tfrac{R_k - \bar R_{k,g}}{s_{k,g}+\epsilon}\Big)", "sequence",
           group=True, by_part=True),
    Choice("one", "1: imitate", r"1", "sequence", constant=True),
    Choice("reward_to_go_whitened", "rewards from here on, whitened over the batch's tokens",
           r"\operatorname{whiten}\big(\textstyle\sum_{s\ge t}\gamma^{s-t}r_s\big)", needs=("gamma",)),
    Choice("gae", "generalised advantage estimate with a critic",
           r"\textstyle\sum_{l}(\gamma\lambda)^l\delta_{t+l}", critic=True, needs=("gamma", "gae_lambda")),
))

NORMALISATION = Family("normalisation", "normalisation of advantages", "labcore.maths.normalisation",
                       ("advantages", "scored", "completion_mask"), (
    Choice("none", "none", r"\hat A", "sequence"),
    Choice("sequences", "mean 0 and standard deviation 1 over the batch's completions",
           r"\frac{\hat A - \overline{\hat A}}{s_{\hat A} + \epsilon}", "sequence"),
    Choice("tokens", "mean 0 and standard deviation 1 over the batch's tokens", r"\operatorname{whiten}(\hat A)",
           "sequence"),
))

RATIO = Family("ratio", "ratio", "labcore.maths.ratios", ("logprobs", "old_logprobs", "completion_mask"), (
    Choice("none", "none: the score function on policy", "1"),
    Choice("token", "per token", r"\frac{\pi_\theta(y_t)}{\pi_{old}(y_t)}"),
    Choice("sequence_sum", "whole sequence", r"\prod_t\frac{\pi_\theta(y_t)}{\pi_{old}(y_t)}", "sequence"),
    Choice("sequence_mean", "whole sequence, geometric mean",
           r"\Big(\prod_t\frac{\pi_\theta(y_t)}{\pi_{old}(y_t)}\Big)^{1/T}", "sequence"),
    Choice("sequence_mean_token", "whole sequence, geometric mean; the gradient of each token its own",
           r"\operatorname{sg}(s)\frac{\pi_\theta(y_t)}{\operatorname{sg}(\pi_\theta(y_t))}", "sequence"),
))

SURROGATE = Family("surrogate", "surrogate", "labcore.maths.surrogates",
                   ("ratio", "logprobs", "advantages", "completion_mask"), (
    Choice("score_function", "advantage × log-probability", r"\hat A\,\log\pi_\theta"),
    Choice("clip", "clipped", r"\min\big(\rho\hat A,\ \operatorname{clip}(\rho, 1-\varepsilon_{low}, "
           r"1+\varepsilon_{high})\hat A\big)", needs_ratio=True, cut="clip_cut", needs=("clip_low", "clip_high")),
    Choice("bounded_clip", "clipped, and bounded where the advantage is negative: dual clip c, two-sided clip δ",
           r"\max\big(\min\big(\min(\rho, \delta)\hat A,\ \operatorname{clip}(\rho)\hat A\big),\ c\hat A\,"
           r"1_{\hat A<0}\big)", needs_ratio=True, cut="bounded_cut",
           needs=("clip_low", "clip_high", "clip_delta", "dual_clip")),
    Choice("geometric_clip", "geometric mean of token ratios, each clipped on the side of its advantage",
           r"\Big(\prod_t \rho'_t\Big)^{1/T}\hat A,\ \rho'_t = \min(\rho_t, e^{\varepsilon_{high}})\ "
           r"\text{if}\ \hat A > 0\ \text{else}\ \max(\rho_t, e^{-\varepsilon_{low}})",
           needs_ratio=True, log_bounds=True, cut="geometric_cut", needs=("clip_low", "clip_high")),
    Choice("detached_weight", "capped ratio as a fixed weight of the log-probability",
           r"\operatorname{sg}\big(\min(\rho, \varepsilon_{max})\big)\hat A\,\log\pi_\theta", needs_ratio=True,
           cut="cap_cut", needs=("ratio_cap",)),
    Choice("soft_gate", "smooth gate of the ratio in place of a clip",
           r"\tfrac4\tau\,\sigma\big(\tau(\rho-1)\big)\hat A", needs_ratio=True,
           needs=("gate_positive", "gate_negative")),
    Choice("gamma_weight", "Gamma-shaped function of the whole sequence's ratio as a fixed weight of the "
           "log-probability", r"\operatorname{sg}\big(\rho^k e^{\lambda(1-\rho)}\big)\hat A\,\log\pi_\theta",
           needs_ratio=True, own_ratio="sequence_sum",
           needs=("gamma_power_positive", "gamma_rate_positive", "gamma_power_negative", "gamma_rate_negative")),
))

KL_ESTIMATOR = Family("kl_estimator", "KL estimator", "labcore.maths.kl", ("logprobs", "ref_logprobs", "ratio"), (
    Choice("k1", "k1: log-ratio", r"\log\tfrac{\pi}{\pi_{ref}}"),
    Choice("k2", "k2: half the squared log-ratio", r"\tfrac12\log^2\tfrac{\pi}{\pi_{ref}}"),
    Choice("k3", "k3: never negative", r"\tfrac{\pi_{ref}}{\pi} - 1 - \log\tfrac{\pi_{ref}}{\pi}"),
    Choice("ratio_k3", "ratio × k3: its gradient is that of each token's KL",
           r"\rho\big(\tfrac{\pi_{ref}}{\pi} - 1 - \log\tfrac{\pi_{ref}}{\pi}\big)"),
))

AGGREGATION = Family("aggregation", "aggregation", "labcore.maths.aggregation",
                     ("token_losses", "completion_mask", "total_rows", "total_tokens", "max_new_tokens"), (
    Choice("sequence_mean_token_mean", "mean over sequences of token means",
           r"\tfrac1B\sum_i\tfrac1{T_i}\sum_t"),
    Choice("token_mean", "mean over all tokens of the update", r"\tfrac1{\sum_i T_i}\sum_i\sum_t"),
    Choice("constant_length", "sum over tokens, divided by B × the length limit",
           r"\tfrac1{B\,L_{max}}\sum_i\sum_t"),
    Choice("sequence_mean_token_sum", "mean over sequences of token sums", r"\tfrac1B\sum_i\sum_t"),
))

_compared = partial(Choice, level="sequence", reference=True)  # with the reference
_difference = partial(_compared, differences=True)
_free = partial(Choice, level="sequence")

PREFERENCE_LOSS = Family("preference_loss", "preference loss", "labcore.maths.preferences",
                         ("log_ratio_chosen", "log_ratio_rejected", "logprob_chosen", "logprob_rejected",
                          "ref_logprob_chosen", "ref_logprob_rejected", "whole_log_ratio_chosen",
                          "whole_log_ratio_rejected", "whole_logprob_chosen", "length_chosen", "length_rejected",
                          "mismatched_kl"), (
    _difference("sigmoid", "DPO: logistic loss of the difference of log-ratios", r"-\log\sigma(\beta\Delta)",
              needs=("beta",)),
    _difference("cdpo", "cDPO: the logistic loss with smoothed labels",
              r"-(1-\varepsilon)\log\sigma(\beta\Delta) - \varepsilon\log\sigma(-\beta\Delta)",
              needs=("beta", "label_smoothing")),
    _difference("robust", "robust DPO: the logistic loss, unbiased under flipped labels",
              r"\tfrac{-(1-\varepsilon)\log\sigma(\beta\Delta) + \varepsilon\log\sigma(-\beta\Delta)}{1-2\varepsilon}",
              needs=("beta", "label_smoothing")),
    _difference("ipo", "IPO, summed: squared distance of the difference from its target",
              r"\big(\Delta - \tfrac1{2\beta}\big)^2", needs=("beta",)),
    _difference("ipo_mean", "IPO, per token: the same of mean log-ratios per token",
              r"\big(\tfrac{c}{T_w} - \tfrac{r}{T_l} - \tfrac1{2\beta}\big)^2", needs=("beta",)),
    _difference("hinge", "SLiC: hinge loss of the difference", r"\max(0, 1-\beta\Delta)", needs=("beta",)),
    _difference("exo_pair", "EXO: reverse KL to the labels", r"q_w\log\tfrac{q_w}{1-\varepsilon_l} + q_l\log"
              r"\tfrac{q_l}{\varepsilon_l}", needs=("beta", "exo_epsilon")),
    _compared("nca_pair", "NCA: noise contrastive, each side by itself",
              r"-\log\sigma(\beta c)-\tfrac12\log\sigma(-\beta c)-\tfrac12\log\sigma(-\beta r)", needs=("beta",)),
    _compared("bco_pair", "BCO: a classifier of each side", r"-\log\sigma(\beta c)-\log\sigma(-\beta r)",
              needs=("beta",)),
    _compared("sppo_hard", "SPPO: squared distance of each side from its target",
              r"\big(c-\tfrac1{2\beta}\big)^2+\big(r+\tfrac1{2\beta}\big)^2", needs=("beta",)),
    _compared("apo_zero", "APO-zero: the chosen up, the rejected down", r"1-\sigma(\beta c)+\sigma(\beta r)",
              needs=("beta",)),
    _compared("apo_down", "APO-down: both down, the rejected more", r"\sigma(\beta c)+1-\sigma(\beta\Delta)",
              needs=("beta",)),
    _compared("aot", "AOT: sorted margins against the reference's", r"-(1-\varepsilon)\log\sigma(\beta\delta_i)-"
              r"\varepsilon\log\sigma(-\beta\delta_i),\ \delta_i=\Delta^\pi_{(i)}-\Delta^{ref}_{(i)}",
              needs=("beta", "label_smoothing"), whole_batch=True, pairwise=False),
    _compared("aot_unpaired", "AOT, unpaired: sorted chosen against sorted rejected",
              r"-(1-\varepsilon)\log\sigma(\beta\delta_i)-\varepsilon\log\sigma(-\beta\delta_i),\ "
              r"\delta_i=c_{(i)}-r_{(i)}", needs=("beta", "label_smoothing"), whole_batch=True, pairwise=False),
    _difference("discopop", "DiscoPOP: logistic and exponential, mixed by the margin",
              r"(1-w)(-\log\sigma(\beta\Delta)) + w\,e^{-\beta\Delta},\ w=\sigma(\beta\Delta/\tau_w)",
              needs=("beta", "discopop_tau")),
    _difference("sigmoid_norm", "length-normalised DPO: mean log-ratios per token",
              r"-\log\sigma\big(\beta(\tfrac{c}{T_w}-\tfrac{r}{T_l})\big)", needs=("beta",)),
    _compared("kto", "KTO: each completion against the KL of the batch",
              r"\lambda_D(1-\sigma(\beta(c-z))) + \lambda_U(1-\sigma(\beta(z-r)))",
              needs=("beta", "desirable_weight", "undesirable_weight"), whole_batch=True, pairwise=False, unpaired=True,
              every_token=True, mismatched=True),
    _free("simpo", "SimPO: mean log-probs with a target margin, no reference",
          r"-\log\sigma\big(\tfrac\beta{T_w}\ell_w-\tfrac\beta{T_l}\ell_l-\gamma\big)",
          needs=("beta", "target_margin")),
    _free("orpo", "ORPO: SFT and an odds ratio, no reference",
          r"-\tfrac{\ell_w}{\bar T_w} - \beta\log\sigma\big(\log\tfrac{odds_w}{odds_l}\big)", needs=("beta",),
          whole_batch=True),
    _free("sft", "SFT: log-likelihood of the chosen side", r"-\tfrac{\ell_w}{\bar T_w}", whole_batch=True,
          every_token=True),
))

DIVERGENCE = Family("divergence", "divergence", "labcore.maths.divergences", ("log_ratios",), (
    Choice("reverse_kl", "reverse KL: DPO's own", r"\log u", "sequence"),
    Choice("forward_kl", "forward KL", r"1-\tfrac1u", "sequence"),
    Choice("jensen_shannon", "Jensen–Shannon", r"\log\tfrac{2u}{1+u}", "sequence"),
    Choice("alpha", "α-divergence", r"\tfrac{u^{\alpha-1}-1}{\alpha-1}", "sequence", needs=("divergence_alpha",)),
))

SFT_LOSS = Family("sft_loss", "SFT loss", "labcore.maths.supervised", ("logprobs",), (
    Choice("nll", "negative log-likelihood", r"-\log\pi_\theta"),
    Choice("dft", "DFT: weighted by the token's own probability", r"-\operatorname{sg}(\pi_\theta)\log\pi_\theta"),
))

PAIRS = Family("pairs", "source of pairs", "labcore.llm.pairs", ("session",), (
    Choice("dataset", "the task's own pairs", r"\mathcal D", from_file=True, needs=("pairs_per_step",)),
    Choice("reference_once", "the reference's completions, once before the first step", r"\pi_{ref}", once=True,
           needs=("pairs_per_step", "pair_prompts", "group_size")),
    Choice("policy_each_step", "the policy's own completions, at every step", r"\pi_\theta",
           needs=("pairs_per_step", "group_size")),
))

FAMILIES = (REWARD, SHAPING, SELECTION, ADVANTAGE, NORMALISATION, RATIO, SURROGATE, KL_ESTIMATOR, AGGREGATION,
            PREFERENCE_LOSS, DIVERGENCE, PAIRS, SFT_LOSS)

KL_PLACEMENTS = ("reward", "loss", "off")

NO_LOSS = "none"  # of the second loss


def sources_of(knobs: Mapping[str, Any]) -> list[str]:
    """The reward sources of a run: the chosen one, and those that a sum of rewards has as terms; none in a loop that
    has no such choice."""
    if "reward_source" not in knobs:
        return []
    return [str(knobs["reward_source"]), *(term.key for term in reward_terms.of(knobs) if not term.function)]


def needs_reward_model(knobs: Mapping[str, Any]) -> bool:
    """Whether the rewards of a run come from trained reward models, if only in part."""
    return any(REWARD[source].scorer for source in sources_of(knobs))


def ratio_of(knobs: Mapping[str, Any]) -> Choice:
    """The ratio of a run's surrogate: its own where it has one, else the chosen one."""
    return RATIO[SURROGATE[str(knobs["surrogate"])].own_ratio or str(knobs["ratio"])]


def losses_of(knobs: Mapping[str, Any]) -> list[str]:
    """The preference losses that a run adds up; none where its loop has no such loss."""
    named = [knobs.get("preference_loss", NO_LOSS), knobs.get("second_loss", NO_LOSS)]
    return [str(name) for name in named if name != NO_LOSS]
