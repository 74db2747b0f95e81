"""The table of language-model algorithms: one row each, read by the page, the command line, the loops and the tests.

An online algorithm is a choice of advantage, ratio, surrogate, KL and aggregation (`choices.py`) with its own
defaults of the shared knobs. A new one is a new row, plus a function where a choice does not exist yet.
Left out on purpose: classes per algorithm, inheritance between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from labcore.catalog import choices
from labcore.catalog.algorithm import Algorithm
from labcore.catalog.knob import Knob, Value

LEARNING_RATE = Knob(
    "learning_rate", "Learning rate", 1e-3, "Higher: learns faster, until an update overshoots and the policy breaks. "
    "Lower: slow and steady.", "live", 0.0, 1.0, (1e-5, 3e-3), r"\eta", scale="log")
MAX_GRAD_NORM = Knob(
    "max_grad_norm", "Gradient clip", 1.0, "Longer gradients are scaled down to this norm. Higher: lets rare large "
    "steps through; lower: damps all steps.", "live", 1e-6, 1e6, (0.1, 10), scale="log", advanced=True)
TEMPERATURE = Knob(
    "temperature", "Temperature", 1.0, "Higher: more varied completions, more exploration, more mistakes. Lower: "
    "repeats what it is sure of.", "next batch", 0.05, 5.0, (0.5, 1.5), r"\tau")
TOP_K = Knob(
    "top_k", "Top-k", 0, "Sample among the k likeliest tokens only; 0: all. Lower: fewer slips, less exploration.",
    "next batch", 0, 100_000, advanced=True)
TOP_P = Knob(
    "top_p", "Top-p", 1.0, "Sample among the likeliest tokens that hold this probability; 1: all. Lower: fewer slips, "
    "less exploration.", "next batch", 0.01, 1.0, advanced=True)
MAX_NEW_TOKENS = Knob(
    "max_new_tokens", "Length limit", 8, "Longest completion. Higher: nothing is cut, each step costs more. Lower: "
    "cheaper; cut completions cannot earn what comes at the end.", "next batch", 1, 4096, unit="tokens", advanced=True)
DTYPE = Knob(
    "dtype", "Precision", "fp32", "bf16 runs matrix products in bfloat16: faster on processors that have it, with "
    "fewer digits. fp32: exact and repeatable.", choices=("fp32", "bf16"), advanced=True)
SFT_TARGET = Knob(
    "sft_target", "SFT target", 0.4, "Supervised fine-tuning of the base stops at this sampled exact match. Higher: "
    "an easier start, less left for RL to do. 1: only the step limit stops it.", low=0.0, high=1.0, unit="share",
    advanced=True)
EVAL_PROMPTS = Knob(
    "eval_prompts", "Evaluation prompts", 256, "Prompts sampled at each measurement. More: a surer number, a longer "
    "wait; 256 give a standard error of 0.03, 32 one of 0.09. Fewer: quicker.", "next batch", 1, 100_000,
    advanced=True)
SFT_STEPS = Knob(
    "sft_steps", "SFT steps", 400, "Most supervised steps that a built-in model gets before this run; 0: none. "
    "Higher: a better base; lower: more is left to RL.", low=0, high=1_000_000, advanced=True)

_SAMPLING = (TEMPERATURE, TOP_K, TOP_P, MAX_NEW_TOKENS)

_ONLINE = (
    Knob("beta", "KL price", 0.0, "Higher: stays closer to the reference, learns more slowly. Lower: free to move, "
         "and to break or exploit the reward.", "live", 0.0, 10.0, (0.0, 0.2), r"\beta", "reward/nat"),
    LEARNING_RATE.with_default(7e-4),
    Knob("clip_low", "Clip, low side", 0.2, "Higher: bad tokens may lose more probability per batch. Lower: more "
         "careful, slower.", "live", 0.0, 1.0, (0.1, 0.3), r"\varepsilon_{low}"),
    Knob("clip_high", "Clip, high side", 0.2, "Higher: rare good tokens may grow faster, entropy lasts longer. Lower: "
         "more careful, slower.", "live", 0.0, 100.0, (0.1, 0.4), r"\varepsilon_{high}"),
    Knob("group_size", "Group size", 8, "Completions per prompt. Higher: better baselines, fewer groups without "
         "signal, dearer steps. Lower: cheaper, noisier.", "next batch", 1, 1024, (4, 16), "G"),
    Knob("prompts_per_step", "Prompts per step", 32, "Different prompts in a batch. Higher: a steadier gradient, "
         "dearer steps. Lower: cheaper, noisier.", "next batch", 1, 4096, (4, 64), "P"),
    Knob("updates_per_batch", "Updates per batch", 1, "Passes over each batch. Higher: more learning per sample, but "
         "off-policy: ratios leave 1 and the clip starts to work. Lower: always on policy.", "next batch", 1, 64,
         (1, 4), r"\mu"),
    Knob("mini_batches", "Mini-batches", 1, "Equal parts each pass is cut into, one optimizer update per part; must "
         "divide the prompts per step (groups stay whole). Higher: more, noisier updates. Lower: fewer, steadier "
         "ones.", "next batch", 1, 4096, advanced=True),
    *_SAMPLING,
    Knob("entropy_coef", "Entropy bonus", 0.0, "Higher: keeps the policy varied for longer. Lower: lets it commit.",
         "live", 0.0, 1.0, (0.0, 0.02), "c_H", "reward/nat", advanced=True),
    MAX_GRAD_NORM,
    Knob("advantage", "Advantage", "group_standardised", "What a completion's reward is compared with: the better "
         "the baseline, the less noise in the gradient.", choices=choices.ADVANTAGE.names, advanced=True),
    Knob("ratio", "Ratio", "token", "At which level new and old policy are compared: tokens, or the whole sequence.",
         choices=choices.RATIO.names, advanced=True),
    Knob("surrogate", "Surrogate", "clip", "What is maximised: the plain score function, or the clipped ratio that "
         "allows several updates per batch.", choices=choices.SURROGATE.names, advanced=True),
    Knob("kl_estimator", "KL estimator", "k3", "Which estimate of the KL is penalised; they differ in noise and in "
         "the gradient they give.", choices=choices.KL_ESTIMATOR.names, advanced=True),
    Knob("kl_placement", "KL placement", "loss", "Where β × KL is paid. reward: subtracted from it; loss: added to "
         "it; off: nowhere, it is only measured.", choices=choices.KL_PLACEMENTS, advanced=True),
    Knob("aggregation", "Aggregation", "sequence_mean_token_mean", "How token terms become one number: whether long "
         "completions weigh more.", choices=choices.AGGREGATION.names, advanced=True),
    DTYPE, SFT_TARGET, SFT_STEPS,
)

_CRITIC = (
    Knob("gamma", "Discount", 1.0, "Higher: late rewards count in full. Lower: early tokens hear less of the final "
         "reward.", "live", 0.0, 1.0, (0.95, 1.0), r"\gamma"),
    Knob("gae_lambda", "GAE λ", 0.95, "Higher: trusts sampled returns (unbiased, noisy). Lower: trusts the critic "
         "(steady, biased while the critic is wrong).", "live", 0.0, 1.0, (0.9, 1.0), r"\lambda"),
    Knob("critic_learning_rate", "Critic learning rate", 1e-3, "Higher: the critic follows the policy faster. Lower: "
         "a steadier, staler baseline.", "live", 0.0, 1.0, (1e-4, 3e-3), r"\eta_V", scale="log"),
    Knob("value_clip", "Value clip", 0.2, "Higher: the critic may move further per batch. Lower: more careful, "
         "slower.", "live", 0.0, 1e6, (0.1, 1.0), r"\varepsilon_V", "reward", advanced=True),
    Knob("whiten_advantages", "Whiten advantages", True, "On: advantages get mean 0 and spread 1 in each batch, so "
         "the step does not depend on the reward's size. Off: it does.", "live", advanced=True),
)

_PREFERENCE = (
    Knob("beta", "Inverse temperature", 1.0, "Higher: stays closer to the reference. Lower: separates the pairs "
         "more strongly and drifts further. Large models with long answers use about 0.1.", "live", 1e-4, 100.0,
         (0.05, 5), r"\beta", "per nat", scale="log"),
    LEARNING_RATE,
    Knob("pairs_per_step", "Pairs per step", 64, "Pairs in a batch. Higher: a steadier gradient, dearer steps. "
         "Lower: cheaper, noisier.", "next batch", 1, 4096, (8, 128), "B"),
    Knob("pair_prompts", "Prompts for pairs", 1024, "Prompts that the reference answers before training to make the "
         "pairs (unused with your own pairs). More: more varied pairs, a longer wait.", low=1, high=100_000,
         advanced=True),
    Knob("group_size", "Samples per prompt", 8, "Completions per prompt from which pairs are made. More: more prompts "
         "give both a right and a wrong one; a longer wait.", low=2, high=1024, symbol="G", advanced=True),
    Knob("eval_every", "Evaluate every", 10, "Steps between two measurements by sampling. Lower: a finer curve, "
         "slower steps.", "next batch", 1, 1_000_000, unit="steps", advanced=True),
    EVAL_PROMPTS,
    *_SAMPLING, MAX_GRAD_NORM,
    Knob("preference_loss", "Preference loss", "sigmoid", "The function of the pair's log-ratios that is minimised.",
         choices=choices.PREFERENCE_LOSS.names, advanced=True),
    DTYPE, SFT_TARGET, SFT_STEPS,
)

_SFT = (
    LEARNING_RATE,
    Knob("sequences_per_step", "Sequences per step", 64, "Examples in a batch. Higher: steadier, dearer steps. Lower: "
         "cheaper, noisier.", "next batch", 1, 4096, (8, 256), "B"),
    SFT_TARGET,
    Knob("eval_every", "Evaluate every", 5, "Steps between two measurements by sampling. Lower: stops nearer to the "
         "target, slower.", "next batch", 1, 1_000_000, unit="steps", advanced=True),
    EVAL_PROMPTS,
    *_SAMPLING, MAX_GRAD_NORM, DTYPE,
)

_KNOBS = {"online": _ONLINE, "preference": _PREFERENCE, "sft": _SFT}

_ONLINE_PANELS = ("reward", "exact_match", "kl", "entropy", "clip", "surrogate", "length", "truncated")
_LAST_PANELS = ("grad_norm", "loss", "speed", "memory")


def _row(key: str, label: str, loop: str, *, defaults: Mapping[str, Value] = MappingProxyType({}),
         extra_knobs: tuple[Knob, ...] = (), without: tuple[str, ...] = (), **rest) -> Algorithm:
    """A row whose knobs are its loop's (and `extra_knobs`), less `without`, with `defaults` of its own."""
    knobs = tuple(knob.with_default(defaults.get(knob.key, knob.default))
                  for knob in (*_KNOBS[loop], *extra_knobs) if knob.key not in without)
    return Algorithm(key, label, loop, knobs=knobs, **rest)


_ROWS = (
    _row("grpo", "GRPO", "online",
         summary="Compares each completion with its own group: no critic. Clipped ratio per token, KL in the loss.",
         latex=r"L = \frac1B\sum_i\frac1{T_i}\sum_t\Big[-\min\big(\rho_t\hat A_i,\ \operatorname{clip}(\rho_t, "
               r"1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_i\big) + \beta\,k_3 - c_H H_t\Big],\quad "
               r"\hat A_i = \frac{R_i-\bar R_g}{s_g+\epsilon},\quad g = 1\ldots G",
         watch="Groups without signal: when most groups are all right or all wrong, the gradient dies. "
               "The clip does nothing while μ = 1 and there is one mini-batch.",
         paper="Shao et al. 2024, arXiv:2402.03300", defaults={"beta": 0.04},
         models=("policy", "reference"), panels=(*_ONLINE_PANELS, *_LAST_PANELS)),
    _row("reinforce", "REINFORCE", "online",
         summary="Reward minus the batch mean, times the log-probability. One update per batch, no ratio, no clip.",
         latex=r"L = -\frac1B\sum_i\sum_t\big[\hat A_i\log\pi_\theta(y_{i,t}) + c_H H_t\big],\quad "
               r"\hat A_i = R_i-\beta\,k_{1,i}-\overline{(R-\beta k_1)}",
         watch="The batch mean is a crude baseline: easy prompts look good, hard ones bad. Compare its spread "
               "with RLOO's.",
         paper="Williams 1992, Machine Learning 8:229", without=("clip_low", "clip_high", "updates_per_batch",
                                                                 "mini_batches"),
         defaults={"beta": 0.02, "advantage": "batch_mean", "ratio": "none", "surrogate": "score_function",
                   "kl_estimator": "k1", "kl_placement": "reward", "aggregation": "sequence_mean_token_sum"},
         models=("policy", "reference"),
         panels=(*(p for p in _ONLINE_PANELS if p not in ("clip", "surrogate")), *_LAST_PANELS)),
    _row("rloo", "RLOO", "online",
         summary="The baseline of each completion is the mean reward of the others in its group: unbiased, no critic.",
         latex=r"L = -\frac1B\sum_i\Big[\min\big(\rho_i\hat A_i,\ \operatorname{clip}(\rho_i, 1-\varepsilon_{low}, "
               r"1+\varepsilon_{high})\hat A_i\big) + c_H\bar H_i\Big],\quad "
               r"\hat A_i = R'_i-\frac1{G-1}\sum_{j\ne i}R'_j,\quad R' = R-\beta\sum_t k_1",
         watch="The ratio is that of the whole sequence: with long completions it leaves the clip range after "
               "one update.",
         paper="Ahmadian et al. 2024, arXiv:2402.14740",
         defaults={"beta": 0.02, "advantage": "leave_one_out", "ratio": "sequence_sum", "kl_estimator": "k1",
                   "kl_placement": "reward", "aggregation": "sequence_mean_token_mean"},
         models=("policy", "reference"), panels=(*_ONLINE_PANELS, *_LAST_PANELS)),
    _row("ppo", "PPO", "online",
         summary="A separate critic values every token; several clipped passes over each batch in mini-batches.",
         latex=r"\begin{gathered}L = -\frac1{\sum_i T_i}\sum_{i,t}\Big[\min\big(\rho_t\hat A_t,\ "
               r"\operatorname{clip}(\rho_t, 1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A_t\big) + c_H H_t\Big]\\ "
               r"\hat A_t = \sum_l(\gamma\lambda)^l\delta_{t+l},\quad "
               r"\delta_t = r_t+\gamma V_{t+1}-V_t,\quad r_t = -\beta\,k_1+R\,1_{last}\\ "
               r"L^V = \frac1{2\sum_i T_i}\sum_{i,t}\max\big((V_t-\hat R_t)^2,\ (\operatorname{clip}(V_t, "
               r"V^{old}_t\pm\varepsilon_V)-\hat R_t)^2\big)\end{gathered}",
         watch="Explained variance: below 0 the critic misleads. Clipped tokens: above 0.3 the passes go too far.",
         paper="Schulman et al. 2017, arXiv:1707.06347; Ouyang et al. 2022, arXiv:2203.02155",
         extra_knobs=_CRITIC,
         defaults={"beta": 0.02, "advantage": "gae", "kl_estimator": "k1", "kl_placement": "reward",
                   "aggregation": "token_mean", "updates_per_batch": 2, "mini_batches": 2, "group_size": 1,
                   "prompts_per_step": 128},
         models=("policy", "reference", "critic"),
         panels=(*_ONLINE_PANELS, "critic", "explained_variance", *_LAST_PANELS)),
    _row("dpo", "DPO", "preference",
         summary="Learns from pairs without sampling: raises the chosen over the rejected, relative to the reference.",
         latex=r"L = -\log\sigma\Big(\beta\big[\log\tfrac{\pi_\theta(y_w)}{\pi_{ref}(y_w)}-"
               r"\log\tfrac{\pi_\theta(y_l)}{\pi_{ref}(y_l)}\big]\Big)",
         watch="Chosen and rejected log-probs often fall together; the margin is what is trained. Offline pairs take "
               "it less far than the online algorithms on verifiable tasks.",
         paper="Rafailov et al. 2023, arXiv:2305.18290",
         models=("policy", "reference"),
         panels=("accuracy", "exact_match", "margin", "logps", "kl", "entropy", "length", "truncated",
                 *_LAST_PANELS)),
    _row("sft", "SFT", "sft",
         summary="Supervised fine-tuning: raises the log-probability of the given answers.",
         latex=r"L = -\frac1{\sum_i T_i}\sum_{i,t}\log\pi_\theta(y_{i,t})",
         watch="Stops at the target: a base that is already perfect leaves RL nothing to learn.",
         paper="Ouyang et al. 2022, arXiv:2203.02155",
         models=("policy",), steps=400,
         panels=("exact_match", "token_accuracy", "entropy", "length", "truncated", *_LAST_PANELS)),
)

ALGORITHMS: dict[str, Algorithm] = {row.key: row for row in _ROWS}
