"""Ratios of new to old policy, and the surrogates that are maximised."""

from __future__ import annotations

from math import exp, log

from labcore.catalog.choice import Caution, Family, Letter, Ratio, Rule, Surrogate, There
from labcore.catalog.conditions import ONE_UPDATE, one_update
from labcore.catalog.families.regressions import REGRESSIONS
from labcore.catalog.knob import Knob
from labcore.catalog.metric import Metric
from labcore.catalog.worked import Branch, Numbers, Worked

# What the other tools call their settings.
_LEVEL, _VERL_MODE, _OPENRLHF = ("importance_sampling_level", "actor_rollout_ref.actor.policy_loss.loss_mode",
                                 "--actor.policy_loss_type")
_ACTOR = "actor_rollout_ref.actor"
_SAME_ADVANTAGE = "the same gradient as long as all tokens of a completion have one advantage"
_ONE_WHILE = "ratios of tokens, which are 1 while a batch is used once"
_SAME_WHILE = "ratios of tokens: the same gradient as long as a batch is used once"


def _of_sequence(formula: str, numbers: str) -> Worked:
    return Worked(formula, numbers, "of the whole completion")


RATIO = Family("ratio", "ratio", "labcore.maths.ratios", ("logprobs", "old_logprobs", "completion_mask"), (
    Ratio("none", "none: the score function on policy", "1", sign="1", elsewhere=(
        There("verl", {_VERL_MODE: "gpg"}),
        There("OpenRLHF", {_OPENRLHF: "ppo"}, _ONE_WHILE), There("ms-swift", {_LEVEL: "token"}, _ONE_WHILE)),
          trainer="RLOOTrainer"),
    Ratio("token", "per token", r"\frac{\pi_\theta(y_t)}{\pi_{old}(y_t)}", sign=r"\rho_t", elsewhere=(
        There("GRPOTrainer ms-swift", {_LEVEL: "token"}), There("GMPOTrainer"), There("verl"),
        There("OpenRLHF", {_OPENRLHF: "ppo"})),
          worked=lambda of: Worked("exp(log π − log π_old)", "exp({logprobs} − {old_logprobs:b})")),
    Ratio("sequence_sum", "whole sequence", r"\prod_t\frac{\pi_\theta(y_t)}{\pi_{old}(y_t)}", "sequence", sign="s_i",
          whole=True, product=True, elsewhere=(
        There("RLOOTrainer"),
        There("verl", {_VERL_MODE: "vanilla"}, _SAME_WHILE), There("OpenRLHF", {_OPENRLHF: "ppo"}, _SAME_WHILE),
        There("ms-swift", {_LEVEL: "token"}, _SAME_WHILE)),
          trainer="RLOOTrainer",
          worked=lambda of: _of_sequence("exp(Σ (log π − log π_old))", "exp({apart})")),
    Ratio("sequence_mean", "whole sequence, geometric mean",
          r"\Big(\prod_t\frac{\pi_\theta(y_t)}{\pi_{old}(y_t)}\Big)^{1/T}", "sequence", sign="s_i", whole=True,
          near_one=True, elsewhere=(
        There("GRPOTrainer ms-swift", {_LEVEL: "sequence"}), There("verl", {_VERL_MODE: "gspo"}),
        There("OpenRLHF", {_OPENRLHF: "gspo"}, aggregates="sequence_mean_token_mean")),
          worked=lambda of: _of_sequence("exp(1/T Σ (log π − log π_old))", "exp({apart} / {length:g})")),
    Ratio("sequence_mean_token", "whole sequence, geometric mean; the gradient of each token its own",
          r"\operatorname{sg}(s)\frac{\pi_\theta(y_t)}{\operatorname{sg}(\pi_\theta(y_t))}", "sequence", sign="s_{i,t}",
          near_one=True, elsewhere=(
        There("GRPOTrainer", {_LEVEL: "sequence"}, _SAME_ADVANTAGE), There("verl", {_VERL_MODE: "gspo"}),
        There("OpenRLHF", {_OPENRLHF: "gspo"}, _SAME_ADVANTAGE, aggregates="sequence_mean_token_mean"),
        There("ms-swift", {_LEVEL: "sequence_token"})),
          worked=lambda of: _of_sequence("exp(1/T Σ (log π − log π_old))", "exp({apart} / {length:g})")),
))

CLIP_LOW = Knob(
    "clip_low", "Clip, low side", 0.2, "Distance of the ratio's lower bound from 1. Higher: tokens with negative "
    "advantage may lose more probability per batch. Lower: more careful, slower.", "live", 0.0, 1.0, (0.1, 0.3),
    r"\varepsilon_{low}", group="clip", reach=(0.0, 1.0), aliases="epsilon cliprange")
CLIP_HIGH = Knob(
    "clip_high", "Clip, high side", 0.2, "Distance of the ratio's upper bound from 1. Higher: rare tokens with "
    "positive advantage may grow faster, entropy lasts longer. Lower: more careful, slower.", "live", 0.0, 100.0,
    (0.1, 0.4), r"\varepsilon_{high}", group="clip", reach=(0.0, 5.0), aliases="epsilon_high cliprange")
DUAL_CLIP = Knob(
    "dual_clip", "Dual clip c", 3.0, "Upper bound of the ratio for tokens with negative advantage, "
    "where the plain clip has none. Lower: one such token cannot dominate an update. Higher: "
    "only extreme ratios are bounded. "
    "0: off.", "live", 0.0, 1e6, (1.5, 10.0), advanced=True, group="clip")
CLIP_DELTA = Knob(
    "clip_delta", "Two-sided clip δ", 0.0, "Upper bound of the unclipped ratio, as in TRL. Set it above 1 + ε_high, so "
    "that it bounds only tokens with negative advantage. Lower: one such token cannot dominate an update. Higher: only "
    "extreme ratios are bounded. 0: off.", "live", 0.0, 1e6, (0.0, 10.0), advanced=True, group="clip")
RATIO_CAP = Knob(
    "ratio_cap", "Ratio cap", 5.0, "The largest weight that a token's ratio can give it. Higher: tokens that became "
    "likelier count for more, with more noise. Lower: steadier.", "live", 0.0, 100.0, (1.0, 20.0), r"\varepsilon_{max}",
    group="clip")
GATES = (
    Knob("gate_positive", "Gate, positive advantages", 1.0, "How sharply the gate closes for tokens with positive "
         "advantage as their ratio leaves 1. Higher: more careful. Lower: freer to move.", "live", 1e-3, 100.0,
         (0.5, 2.0), r"\tau_{+}", group="clip"),
    Knob("gate_negative", "Gate, negative advantages", 1.05, "How sharply the gate closes for tokens with negative "
         "advantage as their ratio leaves 1. Higher: steadier, their probability falls more slowly; usually a little "
         "above the gate for positive advantages. Lower: it may fall further per batch.",
         "live", 1e-3, 100.0, (0.5, 2.0), r"\tau_{-}", group="clip"),
)
GAMMA_WEIGHT = (
    Knob("gamma_power_positive", "Power, positive advantages", 2.0, "How fast the weight of a completion with positive "
         "advantage falls as it becomes less likely. Higher: sooner. Lower: later.", "live", 0.0, 100.0, (0.5, 5.0),
         "k_{+}", group="clip"),
    Knob("gamma_rate_positive", "Rate, positive advantages", 3.0, "How fast the weight of a completion with positive "
         "advantage falls as it becomes likelier. Higher: sooner. Lower: later.", "live", 0.0, 100.0, (0.5, 5.0),
         r"\lambda_{+}", group="clip"),
    Knob("gamma_power_negative", "Power, negative advantages", 3.0, "How fast the weight of a completion with negative "
         "advantage falls as it becomes less likely. Higher: sooner. Lower: later.", "live", 0.0, 100.0, (0.5, 5.0),
         "k_{-}", group="clip"),
    Knob("gamma_rate_negative", "Rate, negative advantages", 2.0, "How fast the weight of a completion with negative "
         "advantage falls as it becomes likelier. Higher: sooner. Lower: later.", "live", 0.0, 100.0, (0.5, 5.0),
         r"\lambda_{-}", group="clip"),
)


DIVERGENCE_BOUNDS = (
    Knob("divergence_low", "Divergence bound, low side", 0.15, "How far a token with negative advantage may become "
         "less likely per batch: in probability under the TV mask, in nats under the KL mask. Higher: it may fall "
         "further. Lower: more careful.", "live", 0.0, 100.0, (0.02, 0.3), r"\delta_{low}", group="clip"),
    Knob("divergence_high", "Divergence bound, high side", 0.15, "How far a token with positive advantage may become "
         "likelier per batch: in probability under the TV mask, in nats under the KL mask. Higher: it may rise "
         "further. Lower: more careful.", "live", 0.0, 100.0, (0.02, 0.3), r"\delta_{high}", group="clip"),
)
PULL = Knob(
    "pull", "Pull to the old policy", 5.0, "Weight of the squared log-ratio. Higher: a token's log-prob moves less per "
    "batch, at most by advantage / weight nats. Lower: it moves further.", "live", 0.0, 1e4, (1.0, 20.0),
    r"\beta_{old}", "reward/nat", group="clip")
FUTURE = (
    Knob("future_half_life", "Half-life of the future", 32.0, "Distance in tokens at which the change of a later "
         "token counts half. Higher: the whole rest of the completion counts. Lower: only the next tokens count.",
         "live", 0.1, 1e6, (2.0, 128.0), "h", "tokens", group="clip"),
    Knob("future_range", "Range of the future's weight", 0.2, "Largest extra weight of a token because the rest of its "
         "completion became likelier. Higher: weights differ more between tokens. 0: the plain clip.", "live", 0.0,
         100.0, (0.1, 0.5), "r", group="clip"),
    Knob("future_safety", "Safety ratio", 4.0, "Tokens with negative advantage and a ratio above this get no extra "
         "weight. Lower: this affects more tokens. Higher: fewer.", "live", 1.0, 1e6, (2.0, 10.0), advanced=True,
         group="clip"),
)

COV_SHARE = Knob(
    "cov_share", "Share of high-covariance tokens", 0.01, "Share of an update's tokens that are held back because "
    "advantage and log-prob are both high or both low there. Higher: entropy falls more slowly, and so does learning. "
    "Lower: closer to the algorithm without it. Large models use 0.0002 to "
    "0.002.", "live", 1e-6, 1.0, (2e-4, 0.1), r"r_{cov}", "share",
    scale="log", group="clip", aliases="clip_cov_ratio kl_cov_ratio k_percent")
COV_RANGE = (
    Knob("cov_low", "Covariance, lower bound", 1.0, "Tokens with a lower covariance are never held back. Higher: only "
         "the most extreme tokens are held back. Lower: ordinary tokens are held back "
         "too.", "live", -1e6, 1e6, (0.2, 2.0),
         r"\omega_{low}", group="clip", aliases="clip_cov_lb"),
    Knob("cov_high", "Covariance, upper bound", 5.0, "Tokens with a higher covariance are never held back. Higher: the "
         "most extreme tokens are held back too. Lower: fewer tokens are held back.", "live", -1e6, 1e6, (2.0, 10.0),
         r"\omega_{high}", advanced=True, group="clip", aliases="clip_cov_ub"),
)
COV_PULL = Knob(
    "cov_pull", "Pull on high-covariance tokens", 1.0, "Weight of |log ratio| at tokens of high covariance. Higher: "
    "they stay closer to the policy that sampled the batch. Lower: they move more freely.",
    "live", 0.0, 1e4, (0.1, 10.0), r"\kappa",
    "reward/nat", group="clip", aliases="ppo_kl_coef")


def at_one(*knobs: Knob) -> tuple[Rule, ...]:
    """These knobs have no effect while every ratio is 1."""
    return (Rule(tuple(knob.key for knob in knobs), {}, ONE_UPDATE, one_update),)


def _clip_words(of: Numbers) -> Worked:
    ratio, low, high = of["ratio"], 1 - of["clip_low"], 1 + of["clip_high"]
    inside, cut = low <= ratio <= high, bool(of["cut"])
    branches = (
        Branch("Unclipped", "ρÂ", "{ratio} × {advantage:b}", note="active branch" if not inside and not cut else "",
               active=not cut and not inside, terms=("ratio", "advantage")),
        Branch("Clipped", "clip(ρ) Â", "{kept} × {advantage:b}", "clip(ρ, {low:g}, {high:g}) Â",
               "active branch: its gradient is 0" if cut else "", active=cut, still=cut,
               terms=("ratio", "advantage", "knob_clip_low", "knob_clip_high")))
    return Worked("min(unclipped, clipped)", "min({Unclipped}, {Clipped})",
                  "ρ is inside the clip range: both branches are the same" if inside else "",
                  {"low": low, "high": high, "kept": min(max(ratio, low), high)}, branches)


def _cap_words(of: Numbers) -> Worked:
    capped = of["ratio"] > of["ratio_cap"]
    note = "the ratio is capped at {ratio_cap:g}; its gradient stays" if capped else "the weight has no gradient"
    return Worked("min(ρ, {ratio_cap:g}) Â log π", "{kept} × {advantage:b} × {logprobs:b}", note,
                  {"kept": min(of["ratio"], of["ratio_cap"])})


def _gate_words(of: Numbers) -> Worked:
    tau = of["gate_positive" if of["advantage"] > 0 else "gate_negative"]
    return Worked("4/τ σ(τ(ρ − 1)) Â", "4/{tau:g} × σ({tau:g} × ({ratio} − 1.0000)) × {advantage:b}", also={"tau": tau})


_ALWAYS = There("GRPOTrainer RLOOTrainer OpenRLHF ms-swift",
                note="always clipped: the same as long as a batch is used once")


def _masked_words(of: Numbers, apart: float) -> Worked:
    """Explain whether a mask keeps a token: `apart` is its signed distance in the measure of the bounds."""
    if apart > of["divergence_high"] if of["advantage"] > 0 else apart < -of["divergence_low"]:
        return Worked("0: masked", "0", "it has moved too far in the direction of its advantage: its gradient is 0")
    return Worked("min(ρ, {ratio_cap:g}) Â log π", "{kept} × {advantage:b} × {logprobs:b}",
                  "the weight has no gradient", {"kept": min(of["ratio"], of["ratio_cap"])})


def _tv_words(of: Numbers) -> Worked:
    return _masked_words(of, exp(of["old_logprobs"]) * (of["ratio"] - 1))


def _kl_words(of: Numbers) -> Worked:
    old, ratio = exp(of["old_logprobs"]), of["ratio"]
    divergence = (1 - old) * log((1 - old + 1e-8) / max(1 - old * ratio + 1e-8, 1e-8)) - old * log(max(ratio, 1e-38))
    return _masked_words(of, divergence if ratio > 1 else -divergence)


_OF_TOKENS = (Caution("It bounds the probability of each token, so it needs the ratio per token: use the ratio token.",
                      lambda v: v["ratio"] != "token"),)
_COV = Letter("I", r"cov_t = (\hat A-\bar A)(\log\pi_\theta-\overline{\log\pi_\theta})")


def _dppo(mode: str, gating: str) -> tuple[There, ...]:
    """DPPO's masks in verl, whose clip bounds are then bounds of the divergence; OpenRLHF masks by its sampler."""
    return (There("verl", {_VERL_MODE: mode}, knobs={
        "divergence_low": f"{_ACTOR}.clip_ratio_low", "divergence_high": f"{_ACTOR}.clip_ratio_high",
        "ratio_cap": f"{_ACTOR}.clip_ratio_c"}),
        There("OpenRLHF", note=f"OpenRLHF clips; its is_correction_gating {gating} masks by the divergence of sampler "
              "and trainer, not of updates"), _ALWAYS)


_VESPO = "verl has no such weight of whole sequences: no equivalent of VESPO"

SURROGATE = Family("surrogate", "surrogate", "labcore.maths.surrogates",
                   ("ratio", "logprobs", "old_logprobs", "advantages", "completion_mask", "high_entropy",
                    "sampler_correction", "singled_out", "ref_logprobs", "counted", "group_size"), (
    Surrogate("score_function", "advantage × log-probability", r"\hat A\,\log\pi_\theta",
              elsewhere=(There("verl", {_VERL_MODE: "gpg"}), _ALWAYS),
              worked=lambda of: Worked("Â log π", "{advantage} × {logprobs:b}", "only its gradient matters")),
    Surrogate("clip", "clipped", r"\min\big(\rho\hat A,\ \operatorname{clip}(\rho, 1-\varepsilon_{low}, "
              r"1+\varepsilon_{high})\hat A\big)", needs_ratio=True, cut="clip_cut", knobs=(CLIP_LOW, CLIP_HIGH),
              rules=at_one(CLIP_LOW, CLIP_HIGH), worked=_clip_words,
              elsewhere=(There("GRPOTrainer RLOOTrainer verl OpenRLHF ms-swift"),),  # verl's follows from the ratio
              metric=Metric("surrogate/clip", "Surrogate, clipped", "advantage", "Mean of the smaller of the unclipped "
                            "and the clipped term.", r"L^{CLIP}", "At or below the unclipped one.")),
    Surrogate("bounded_clip", "clipped, and bounded where the advantage is negative: dual clip c, two-sided clip δ",
              r"\max\big(\min\big(\min(\rho, \delta)\hat A,\ \operatorname{clip}(\rho, 1-\varepsilon_{low}, "
              r"1+\varepsilon_{high})\hat A\big),\ c\hat A\,1_{\hat A<0}\big)", needs_ratio=True, cut="bounded_cut",
              knobs=(CLIP_LOW, CLIP_HIGH, CLIP_DELTA, DUAL_CLIP), rules=at_one(CLIP_DELTA, DUAL_CLIP),
              elsewhere=(There("GRPOTrainer verl OpenRLHF ms-swift"), _ALWAYS),
              cautions=(
        Caution("`clip_delta` is below 1 + ε_high: tokens with a positive advantage lose their gradient at "
                "`clip_delta`, and ε_high bounds only tokens with a negative advantage. Set `clip_delta` above 1 + "
                "ε_high, or to 0 for none.", lambda v: 0 < v["clip_delta"] < 1 + v["clip_high"]),
        Caution("`dual_clip` is not above 1: tokens with a negative advantage lose their gradient at the ratio 1, so "
                "the policy learns little or nothing from mistakes. Set `dual_clip` above 1, or to 0 for none.",
                lambda v: 0 < v["dual_clip"] <= 1)),
              metric=Metric("surrogate/bounded_clip", "Surrogate, bounded clip", "advantage", "Mean of the clipped "
                            "term, bounded where the advantage is negative too.", r"L^{DUAL}",
                            "At or below the unclipped one, but for the bound.")),
    Surrogate("geometric_clip", "geometric mean of token ratios, each clipped on the side of its advantage",
              r"\Big(\prod_t \rho'_t\Big)^{1/T}\hat A", needs_ratio=True, whole=True, log_bounds=True,
              cut="geometric_cut", absorbs={"high_entropy": r"t\ \text{where}\ "}, knobs=(CLIP_LOW, CLIP_HIGH),
              trainer="GMPOTrainer",
              letters=(Letter(r"\rho'_t", r"\rho'_t = \min(\rho_t, e^{\varepsilon_{high}})\ \text{if}\ \hat A > 0\ "
                              r"\text{else}\ \max(\rho_t, e^{-\varepsilon_{low}})"),),
              elsewhere=(There("GMPOTrainer"),
                         There("verl", {_VERL_MODE: "geo_mean"}, name="geo_mean",
                               aggregates="sequence_mean_token_mean"),
                         There("OpenRLHF", note="OpenRLHF takes the arithmetic mean of clipped ratios: no equivalent "
                               "of GMPO"),
                         There("ms-swift", note="ms-swift clips the ratio of each token: no equivalent of GMPO"),
                         _ALWAYS),
              cautions=(
        Caution("`geometric_clip` clips the ratio of each token: with another ratio it clips whole completions. Set "
                "`ratio=token`.", lambda v: v["ratio"] != "token"),),
              metric=Metric("surrogate/geometric_clip", "Surrogate, geometric mean", "advantage", "Mean of the "
                            "geometric mean of clipped token ratios times advantage.", r"L^{GMPO}")),
    Surrogate("detached_weight", "capped ratio as a fixed weight of the log-probability",
              r"\operatorname{sg}\big(\min(\rho, \varepsilon_{max})\big)\hat A\,\log\pi_\theta", needs_ratio=True,
              weighs=True, cut="cap_cut", knobs=(RATIO_CAP,), worked=_cap_words,
              rules=(Rule((RATIO_CAP.key,), {}, ONE_UPDATE, lambda v: one_update(v) and float(v["ratio_cap"]) >= 1),),
              elsewhere=(There("GRPOTrainer ms-swift", {"loss_type": "cispo"}, knobs={"ratio_cap": "epsilon_high"},
                               aggregates="token_mean"),
                         There("verl", {_VERL_MODE: "cispo"}, knobs={"ratio_cap": lambda cap: {
                             f"{_ACTOR}.clip_ratio_low": 1.0, f"{_ACTOR}.clip_ratio_high": cap - 1}}),
                         There("OpenRLHF", note="OpenRLHF clips, and has no capped weight"), _ALWAYS),
              metric=Metric("surrogate/detached_weight", "Surrogate, capped weight", "advantage × nats", "Mean of the "
                            "capped ratio as a fixed weight, times advantage and log-probability.", r"L^{CISPO}")),
    Surrogate("soft_gate", "smooth gate of the ratio in place of a clip",
              r"\tfrac4\tau\,\sigma\big(\tau(\rho-1)\big)\hat A", needs_ratio=True, knobs=GATES,
              letters=(Letter(r"\tau", r"\tau = \tau_{+}\ \text{if}\ \hat A > 0\ \text{else}\ \tau_{-}",
                              "Gate, by the sign of the advantage"),),
              rules=at_one(*GATES), worked=_gate_words,
              elsewhere=(There("GRPOTrainer", {"loss_type": "sapo"}, aggregates="sequence_mean_token_mean", knobs={
                             "gate_positive": "sapo_temperature_pos", "gate_negative": "sapo_temperature_neg"}),
                         There("verl", {_VERL_MODE: "sapo"}, name="sapo", aggregates="sequence_mean_token_mean", knobs={
                             "gate_positive": f"{_ACTOR}.tau_pos", "gate_negative": f"{_ACTOR}.tau_neg"}),
                         There("ms-swift", {"loss_type": "sapo"}, aggregates="sequence_mean_token_mean", knobs={
                             "gate_positive": "tau_pos", "gate_negative": "tau_neg"}),
                         There("OpenRLHF", note="OpenRLHF clips, and has no soft gate"), _ALWAYS),
              metric=Metric("surrogate/soft_gate", "Surrogate, soft gate", "advantage", "Mean of the smoothly gated "
                            "ratio times advantage.", r"L^{SAPO}")),
    Surrogate("gamma_weight", "Gamma-shaped function of the whole sequence's ratio as a fixed weight of the "
              "log-probability", r"\operatorname{sg}\big(\rho^k e^{\lambda(1-\rho)}\big)\hat A\,\log\pi_\theta",
              needs_ratio=True, own_ratio="sequence_sum", weighs=True, knobs=GAMMA_WEIGHT, trainer="GRPOTrainer",
              absorbs={"sampler_correction": r"w_i\ \text{times}\ \textstyle\prod_t "},
              letters=(Letter(r"(k,\lambda)", r"(k,\lambda) = (k_{+},\lambda_{+})\ \text{if}\ \hat A \ge 0\ "
                              r"\text{else}\ (k_{-},\lambda_{-})"),),
              rules=at_one(*GAMMA_WEIGHT),
              elsewhere=(There("GRPOTrainer", {"loss_type": "vespo"}, aggregates="token_mean", knobs={
                             "gamma_power_positive": "vespo_k_pos", "gamma_rate_positive": "vespo_lambda_pos",
                             "gamma_power_negative": "vespo_k_neg", "gamma_rate_negative": "vespo_lambda_neg"}),
                         There("verl", note=_VESPO),
                         There("OpenRLHF", note="OpenRLHF clips: no equivalent of VESPO"),
                         There("ms-swift", note="ms-swift clips: no equivalent of VESPO"), _ALWAYS),
              metric=Metric("surrogate/gamma_weight", "Surrogate, Gamma weight", "advantage × nats", "Mean of the "
                            "reshaped sequence ratio as a fixed weight, times advantage and log-probability.",
                            r"L^{VESPO}")),
    Surrogate("tv_mask", "capped weight, masked if the token's probability has moved too far",
              r"\operatorname{sg}\big(\min(\rho, \varepsilon_{max})\,1[|\pi_\theta-\pi_{old}|\le\delta_{\pm}]\big)"
              r"\hat A\,\log\pi_\theta", needs_ratio=True, weighs=True, cut="tv_cut",
              knobs=(RATIO_CAP, *DIVERGENCE_BOUNDS),
              rules=at_one(*DIVERGENCE_BOUNDS), cautions=_OF_TOKENS, worked=_tv_words, elsewhere=_dppo("dppo_tv", "tv"),
              letters=(Letter(r"\delta_{\pm}", r"\delta_{\pm} = \delta_{high}\ \text{if}\ \hat A > 0\ \text{else}\ "
                              r"\delta_{low},\ \text{on its side}", "Bound, by the sign of the advantage"),),
              metric=Metric("surrogate/tv_mask", "Surrogate, TV mask", "advantage × nats", "Mean of the capped ratio "
                            "as a fixed weight, times advantage and log-probability; 0 where the probability has moved "
                            "too far.", r"L^{DPPO}")),
    Surrogate("kl_mask", "capped weight, masked if the token's KL to the old policy is too large",
              r"\operatorname{sg}\big(\min(\rho, \varepsilon_{max})\,1[kl(\pi_{old}, \pi_\theta)\le\delta_{\pm}]\big)"
              r"\hat A\,\log\pi_\theta", needs_ratio=True, weighs=True, cut="kl_cut",
              knobs=(RATIO_CAP, *DIVERGENCE_BOUNDS),
              rules=at_one(*DIVERGENCE_BOUNDS), cautions=_OF_TOKENS, worked=_kl_words,
              elsewhere=_dppo("dppo_kl", "binary_kl"),
              letters=(Letter("kl(", r"kl(q, p) = q\log\tfrac qp + (1-q)\log\tfrac{1-q}{1-p}"),
                       Letter(r"\delta_{\pm}", r"\delta_{\pm} = \delta_{high}\ \text{if}\ \hat A > 0\ \text{else}\ "
                              r"\delta_{low},\ \text{on its side}", "Bound, by the sign of the advantage")),
              metric=Metric("surrogate/kl_mask", "Surrogate, KL mask", "advantage × nats", "Mean of the capped ratio "
                            "as a fixed weight, times advantage and log-probability; 0 where the token's KL is too "
                            "large.",
                            r"L^{DPPO}")),
    Surrogate("quadratic", "log-probability with a quadratic pull to the old policy",
              r"\hat A\,\log\pi_\theta - \tfrac12\beta_{old}\log^2\rho", needs_ratio=True, weighs=True, knobs=(PULL,),
              rules=at_one(PULL), elsewhere=(
        There("verl", {_VERL_MODE: "dro"}, knobs={"pull": f"{_ACTOR}.policy_loss.dro_beta"}),
        There("OpenRLHF", note="OpenRLHF clips: no equivalent of DRO"),
        There("ms-swift", note="ms-swift clips: no equivalent of DRO"), _ALWAYS),
              worked=lambda of: Worked("Â log π − ½ {pull:g} log² ρ",
                                       "{advantage} × {logprobs:b} − ½ × {pull:g} × (log({ratio}))²"),
              metric=Metric("surrogate/quadratic", "Surrogate, quadratic pull", "advantage × nats", "Mean of advantage "
                            "times log-probability, less the squared log-ratio.", r"L^{DRO}")),
    Surrogate("future_kl_clip", "clipped, weighted by the change of the rest of the completion",
              r"f_t\min\big(\rho\hat A,\ \operatorname{clip}(\rho, 1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A"
              r"\big)",
              cut="clip_cut", needs_ratio=True, knobs=(CLIP_LOW, CLIP_HIGH, *FUTURE), rules=at_one(*FUTURE),
              letters=(Letter("f_t", r"f_t = \operatorname{clip}\big(\prod_{s\ge t}\rho_s^{2^{-(s-t)/h}}, 1, "
                              r"1+r\big)"),),
              elsewhere=(There("verl", note="verl does not weight tokens by later tokens: no equivalent of FIPO"),
                         There("OpenRLHF", note="OpenRLHF does not weight tokens by later tokens: no equivalent of "
                               "FIPO"),
                         There("GRPOTrainer RLOOTrainer", note="TRL does not weight tokens by later tokens: no "
                               "equivalent of FIPO"),
                         There("ms-swift", note="ms-swift 4.6.0 stops with an error at its loss_type fipo: no "
                               "equivalent of FIPO")),
              metric=Metric("surrogate/future_kl_clip", "Surrogate, future KL", "advantage", "Mean of the "
                            "clipped term, weighed by how the rest of the completion has changed.", r"L^{FIPO}")),
    Surrogate("clip_cov", "clipped; some tokens of high covariance have no gradient",
              r"\min\big(\rho\hat A,\ \operatorname{clip}(\rho, 1-\varepsilon_{low}, 1+\varepsilon_{high})\hat A"
              r"\big)\,1[t\notin I]", needs_ratio=True, cut="clip_cov_cut", singles_out="tokens_to_drop",
              knobs=(CLIP_LOW, CLIP_HIGH, COV_SHARE, *COV_RANGE), cautions=_OF_TOKENS,
              letters=(_COV, Letter("I", r"I = r_{cov}\ \text{of the tokens with}\ \omega_{low}<cov_t<\omega_{high}")),
              bias="Direction: tokens with a high covariance of advantage and log-prob have no gradient.",
              elsewhere=(There("verl", {_VERL_MODE: "clip_cov"}, knobs={
                             "cov_share": f"{_ACTOR}.policy_loss.clip_cov_ratio",
                             "cov_low": f"{_ACTOR}.policy_loss.clip_cov_lb",
                             "cov_high": f"{_ACTOR}.policy_loss.clip_cov_ub"}),
                         There("OpenRLHF GRPOTrainer RLOOTrainer ms-swift", note="it clips by the ratio only: no "
                               "equivalent of Clip-Cov")),
              metric=Metric("surrogate/clip_cov", "Surrogate, Clip-Cov", "advantage", "Mean of the clipped term, 0 for "
                            "the tokens of high covariance that are held back.", r"L^{CLIPCOV}")),
    Surrogate("kl_cov", "ratio × advantage; the tokens of highest covariance are pulled back",
              r"\rho\hat A - \kappa\,|\log\rho|\,1[t\in I]", needs_ratio=True, singles_out="tokens_to_hold",
              knobs=(COV_SHARE, COV_PULL), rules=at_one(COV_SHARE, COV_PULL), cautions=_OF_TOKENS,
              letters=(_COV, Letter("I", r"I = r_{cov}\ \text{of the tokens with the highest}\ cov_t")),
              elsewhere=(There("verl", {_VERL_MODE: "kl_cov"}, knobs={
                             "cov_share": f"{_ACTOR}.policy_loss.kl_cov_ratio",
                             "cov_pull": f"{_ACTOR}.policy_loss.ppo_kl_coef"}),
                         There("OpenRLHF", note="OpenRLHF clips: no equivalent of KL-Cov"),
                         There("ms-swift", note="ms-swift clips: no equivalent of KL-Cov"), _ALWAYS),
              metric=Metric("surrogate/kl_cov", "Surrogate, KL-Cov", "advantage", "Mean of ratio × advantage, less the "
                            "pull on the tokens of highest covariance.", r"L^{KLCOV}")),
    *REGRESSIONS,
))

# What PPO's policy maximises in Gymnasium environments: Schulman et al. 2017, arXiv:1707.06347, eqs. 7 and 8.
OBJECTIVE = Family("objective", "objective", "labcore.maths.surrogates", ("ratio", "advantages", "kl"), (
    SURROGATE["clip"],
    Surrogate("kl_penalty", "KL penalty", r"\rho\hat A - \beta\,KL", needs_ratio=True, asks=("beta",))))
