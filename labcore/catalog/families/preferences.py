"""Preference losses, the divergences that they compare log-ratios by, and sources of pairs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import exp
from typing import Any

from labcore.catalog.choice import Caution, Choice, Family, Letter, Pairs, PreferenceLoss, There
from labcore.catalog.knob import Knob
from labcore.catalog.worked import Worked

LABEL_SMOOTHING = Knob(
    "label_smoothing", "Label smoothing", 0.1, "Assumed share of pairs with flipped labels. Higher: "
    "margins stay smaller, wrong labels do less harm. Lower: trusts every label.", "next batch", 0.0, 0.49,
    (0.0, 0.3), r"\varepsilon", "share", advanced=True, group="loss")
EXO_EPSILON = Knob(
    "exo_epsilon", "EXO smoothing", 1e-3, "The rejected side's share of the preference that EXO fits. Higher: "
    "margins stay smaller. Lower: separates the pairs more strongly.", "next batch", 1e-6, 0.49, (1e-4, 0.1),
    r"\varepsilon_l", "share", scale="log", advanced=True, group="loss")
DISCOPOP_TAU = Knob(
    "discopop_tau", "DiscoPOP temperature", 0.05, "Range of margins over which DiscoPOP changes from the logistic to "
    "the exponential loss. Higher: a smooth change. Lower: a sudden one.", "next batch", 1e-3, 10.0, (0.02, 0.5),
    r"\tau_w", scale="log", advanced=True, group="loss")
TARGET_MARGIN = Knob(
    "target_margin", "Target margin", 0.5, "Margin by which the chosen side has to win. Higher: separates the pairs "
    "more strongly. Lower: a smaller lead is enough.", "next batch", 0.0, 100.0, (0.0, 2.0), r"\gamma", advanced=True,
    group="loss")
REWARD_ALPHA = Knob(
    "reward_alpha", "Bend of the reward", 0.25, "Higher: unlikely completions are pushed down more strongly than "
    "likely ones are raised. Below 0: the opposite. 0: SimPO.", "next batch", -4.0, 4.0, (-0.5, 0.5), r"\alpha",
    advanced=True, group="loss", before=0.25)
SIDE_WEIGHTS = (
    Knob("desirable_weight", "Weight of desired completions", 1.0, "Higher: desired completions are raised more "
         "strongly. Lower: undesired ones count for more.", "next batch", 0.0, 100.0, (0.5, 2.0), r"\lambda_D",
         advanced=True, group="loss"),
    Knob("undesirable_weight", "Weight of undesired completions", 1.0, "Higher: undesired completions are lowered more "
         "strongly. Lower: desired ones count for more.", "next batch", 0.0, 100.0, (0.5, 2.0), r"\lambda_U",
         advanced=True, group="loss"),
)
DIVERGENCE_ALPHA = Knob(
    "divergence_alpha", "Order of the α-divergence", 0.5, "Higher: nearer to the reverse KL, which is 1. Lower: "
    "nearer to the forward KL, which is 0.", "next batch", 0.0, 4.0, (0.0, 1.0), advanced=True, group="loss")

# Letters that several losses share: how they are found in LaTeX, and their definitions.
SHARED_LETTERS = (
    Letter(r"\\Delta(?!\^)", r"\Delta = c-r"),
    Letter(r"\\ell_[wl]", r"\ell_w = \log\pi_\theta(y_w),\quad \ell_l = \log\pi_\theta(y_l)"),
)
_SORTED = Letter(r"\Delta^\pi", r"\Delta^\pi = \log\tfrac{\pi_\theta(y_w)}{\pi_\theta(y_l)},\quad \Delta^{ref} = "
                 r"\log\tfrac{\pi_{ref}(y_w)}{\pi_{ref}(y_l)}")

_compared = partial(PreferenceLoss, reference=True)  # with the reference
_difference = partial(_compared, differences=True)


def _dpo(*takes: str, note: str = "", name: str = "", knobs: Mapping[str, str] | None = None,
         refuses: tuple[str, ...] = ()) -> There:
    """A loss in the DPOTrainer of TRL and ms-swift, whose name for it is the lab's own where none is given."""
    return There("DPOTrainer ms-swift", note=note, name=name, knobs=knobs or {}, takes=takes, refuses=refuses)


_OF_ORPO = There("ORPOTrainer", note="its SFT term counts the tokens of the prompt too")
_DPO_KL = "divergence"
_SMOOTHED = {"label_smoothing": "label_smoothing"}
_OWN: dict[str, Any] = {"asks": ("beta",)}
_NORMALISED = Caution("The loss already divides by length: with a lower weight of the longer side's tail, length "
                      "counts twice.", lambda v: v["ld_alpha"] < 1)
_AS_DPO = Caution("Without label smoothing this loss is DPO's.", lambda v: not v["label_smoothing"])

PREFERENCE_LOSS = Family("preference_loss", "preference loss", "labcore.maths.preferences",
                         ("log_ratio_chosen", "log_ratio_rejected", "logprob_chosen", "logprob_rejected",
                          "ref_logprob_chosen", "ref_logprob_rejected", "whole_log_ratio_chosen",
                          "whole_log_ratio_rejected", "whole_logprob_chosen", "length_chosen", "length_rejected",
                          "mismatched_kl", "logprob_answer", "mean_length_answer", "whole_logprob_rejected",
                          "theirs_chosen", "theirs_rejected"), (
    _difference("sigmoid", "DPO: logistic loss of the difference of log-ratios", r"-\log\sigma(\beta\Delta)", **_OWN,
                any_divergence=True, elsewhere=(_dpo(_DPO_KL), There("OpenRLHF")),
                worked=lambda of: Worked("−log σ(β(c − r))", "−log σ({margin})",
                                         "both sides are pushed with weight 1 − σ = {push:%}",
                                         {"push": 1 / (1 + exp(min(of["margin"], 500)))})),
    _difference("cdpo", "cDPO: the logistic loss with smoothed labels",
                r"-(1-\varepsilon)\log\sigma(\beta\Delta) - \varepsilon\log\sigma(-\beta\Delta)", **_OWN,
                knobs=(LABEL_SMOOTHING,), any_divergence=True, cautions=(_AS_DPO,), elsewhere=(
        There("ms-swift", name="sigmoid", knobs=_SMOOTHED),
        _dpo(_DPO_KL, name="sigmoid", note="without label smoothing: its sigmoid loss has none"),
        There("OpenRLHF", note="set by label_smoothing", knobs={"label_smoothing": "--model.label_smoothing"}))),
    _difference("robust", "robust DPO: the logistic loss, unbiased under flipped labels",
                r"\tfrac{-(1-\varepsilon)\log\sigma(\beta\Delta) + \varepsilon\log\sigma(-\beta\Delta)}"
                r"{1-2\varepsilon}", **_OWN, knobs=(LABEL_SMOOTHING,), any_divergence=True, cautions=(_AS_DPO,),
                elsewhere=(_dpo(_DPO_KL, knobs=_SMOOTHED),)),
    _difference("ipo", "IPO, summed: squared distance of the difference from its target",
                r"\big(\Delta - \tfrac1{2\beta}\big)^2", **_OWN, elsewhere=(
        _dpo(_DPO_KL, note="of the mean log-ratio per token, not of its sum"),
        There("OpenRLHF", {"--model.ipo_enable": True}))),
    _difference("ipo_mean", "IPO, per token: squared distance of mean log-ratios per token",
                r"\big(\tfrac{c}{T_w} - \tfrac{r}{T_l} - \tfrac1{2\beta}\big)^2", **_OWN, cautions=(_NORMALISED,),
                elsewhere=(
        _dpo(_DPO_KL, name="ipo"),
        There("OpenRLHF", {"--model.ipo_enable": True}, "of summed log-ratios, not of their means per token"))),
    _difference("hinge", "SLiC: hinge loss of the difference", r"\max(0, 1-\beta\Delta)", **_OWN,
                elsewhere=(_dpo(_DPO_KL, refuses=("pair_weighting",)),)),
    _difference("exo_pair", "EXO: reverse KL to the labels", r"q_w\log\tfrac{q_w}{1-\varepsilon_l} + q_l\log"
                r"\tfrac{q_l}{\varepsilon_l}", **_OWN, knobs=(EXO_EPSILON,), elsewhere=(_dpo(_DPO_KL, knobs={
                    "exo_epsilon": "label_smoothing"}),),
                letters=(Letter("q_w", r"q_w = \sigma(\beta\Delta) = 1-q_l,\quad \Delta = c-r"),)),
    _compared("nca_pair", "NCA: noise contrastive, each side by itself",
              r"-\log\sigma(\beta c)-\tfrac12\log\sigma(-\beta c)-\tfrac12\log\sigma(-\beta r)", **_OWN,
              trains="sides", elsewhere=(_dpo(),)),
    _compared("bco_pair", "BCO: a classifier of each side", r"-\log\sigma(\beta c)-\log\sigma(-\beta r)", **_OWN,
              trains="sides", elsewhere=(
        There("ms-swift", name="bco_pair", note="less the running mean of the rewards"), _dpo())),
    _compared("sppo_hard", "SPPO: squared distance of each side from its target",
              r"\big(c-\tfrac1{2\beta}\big)^2+\big(r+\tfrac1{2\beta}\big)^2", **_OWN, trains="sides",
              elsewhere=(_dpo(),)),
    _compared("apo_zero", "APO-zero: raises the chosen side, lowers the rejected one",
              r"1-\sigma(\beta c)+\sigma(\beta r)", **_OWN,
              trains="sides", elsewhere=(_dpo(),)),
    _compared("apo_down", "APO-down: lowers both sides, the rejected one more",
              r"\sigma(\beta c)+1-\sigma(\beta\Delta)", **_OWN,
              trains="sides", elsewhere=(_dpo(),)),
    _compared("aot", "AOT: sorted margins against the reference's", r"-(1-\varepsilon)\log\sigma(\beta\delta_i)-"
              r"\varepsilon\log\sigma(-\beta\delta_i),\ \delta_i=\Delta^\pi_{(i)}-\Delta^{ref}_{(i)}", **_OWN,
              knobs=(LABEL_SMOOTHING,), whole_batch=True, pairwise=False, apart=True, letters=(_SORTED,),
              elsewhere=(_dpo(knobs=_SMOOTHED),)),
    _compared("aot_unpaired", "AOT, unpaired: sorted chosen against sorted rejected",
              r"-(1-\varepsilon)\log\sigma(\beta\delta_i)-\varepsilon\log\sigma(-\beta\delta_i),\ "
              r"\delta_i=c_{(i)}-r_{(i)}", **_OWN, knobs=(LABEL_SMOOTHING,), whole_batch=True, pairwise=False,
              elsewhere=(_dpo(knobs=_SMOOTHED),)),
    _difference("discopop", "DiscoPOP: logistic and exponential, mixed by the margin",
                r"(1-w)(-\log\sigma(\beta\Delta)) + w\,e^{-\beta\Delta},\ w=\sigma(\beta\Delta/\tau_w)", **_OWN,
                knobs=(DISCOPOP_TAU,), letters=(Letter("(1-w)", r"w = \sigma(\beta\Delta/\tau_w)"),),
                elsewhere=(_dpo(_DPO_KL, knobs={"discopop_tau": "discopop_tau"}),)),
    _difference("sigmoid_norm", "length-normalised DPO: mean log-ratios per token",
                r"-\log\sigma\big(\beta(\tfrac{c}{T_w}-\tfrac{r}{T_l})\big)", **_OWN, cautions=(_NORMALISED,),
                elsewhere=(
        There("ms-swift", name="sigmoid", note="DPO of summed log-ratios: ms-swift does not divide by the length"),
        _dpo(_DPO_KL),
        There("OpenRLHF", note="DPO of summed log-ratios: OpenRLHF does not divide by the length"))),
    _compared("kto", "KTO: each completion against the KL of the batch",
              r"\lambda_D(1-\sigma(\beta(c-z))) + \lambda_U(1-\sigma(\beta(z-r)))", **_OWN, knobs=SIDE_WEIGHTS,
              whole_batch=True, pairwise=False, unpaired=True, every_token=True, mismatched=True, trains="sides",
              trainer="KTOTrainer", term="KTO", letters=(Letter("z", r"z = \max(0, \widehat{KL})"),), elsewhere=(
        There("KTOTrainer ms-swift", {"loss_type": "kto"}, knobs={
            "desirable_weight": "desirable_weight", "undesirable_weight": "undesirable_weight"}),)),
    _compared("apo_zero_unpaired", "APO-zero of single completions: raises desired ones, lowers undesired ones",
              r"\lambda_D(1-\sigma(\beta c)) + \lambda_U\,\sigma(\beta r)", **_OWN, knobs=SIDE_WEIGHTS,
              whole_batch=True, pairwise=False, unpaired=True, every_token=True, trains="sides", trainer="KTOTrainer",
              term="APO", elsewhere=(There("KTOTrainer ms-swift", {"loss_type": "apo_zero_unpaired"}, knobs={
                  "desirable_weight": "desirable_weight", "undesirable_weight": "undesirable_weight"}),)),
    PreferenceLoss("simpo", "SimPO: mean log-probs with a target margin, no reference",
                   r"-\log\sigma\big(\tfrac\beta{T_w}\ell_w-\tfrac\beta{T_l}\ell_l-\gamma\big)", **_OWN,
                   knobs=(TARGET_MARGIN,), cautions=(_NORMALISED,), trainer="CPOTrainer", elsewhere=(
        There("CPOTrainer ms-swift", {"loss_type": "simpo"}, knobs={"target_margin": "simpo_gamma"}),
        There("TPOTrainer", {"loss_type": "tpo-l"}, knobs={"target_margin": "tpo_l_gamma"}))),
    PreferenceLoss("cpo", "CPO: logistic loss of the difference of log-probs, no reference",
                   r"-\log\sigma\big(\beta(\ell_w-\ell_l)\big)", **_OWN, trainer="CPOTrainer", elsewhere=(
        There("CPOTrainer ms-swift TPOTrainer", {"loss_type": "sigmoid"}),)),
    PreferenceLoss("alphapo", "AlphaPO: SimPO with a bent reward, no reference",
                   r"-\log\sigma\big(\beta(\bar r_w-\bar r_l)-\gamma\big)", **_OWN,
                   knobs=(TARGET_MARGIN, REWARD_ALPHA), cautions=(_NORMALISED,), trainer="CPOTrainer",
                   letters=(Letter(r"\bar r", r"\bar r = \tfrac1\alpha\big(1-\pi_\theta(y)^{-\alpha/T}\big)"),),
                   elsewhere=(There("CPOTrainer", {"loss_type": "simpo"}, knobs={
                       "target_margin": "simpo_gamma", "reward_alpha": "alpha"}),
                       There("ms-swift", {"loss_type": "simpo"}, "SimPO: ms-swift has no setting for α", knobs={
                           "target_margin": "simpo_gamma"}, lacks={"reward_alpha": "ms-swift has no setting for it"}))),
    PreferenceLoss("orpo", "ORPO: SFT and an odds ratio, no reference",
                   r"-\tfrac{\ell_w}{\bar T_w} - \beta\log\sigma\big(\log\tfrac{odds_w}{odds_l}\big)", **_OWN,
                   whole_batch=True, trains="margin and chosen", term="SFT", cautions=(_NORMALISED,),
                   trainer="ORPOTrainer", elsewhere=(_OF_ORPO, There("ms-swift")),
                   letters=(Letter("odds", r"odds = \tfrac p{1-p},\quad p = \pi_\theta(y)^{1/T}"),)),
    PreferenceLoss("sft", "SFT: log-likelihood of the chosen side", r"-\tfrac{\ell_w}{\bar T_w}", whole_batch=True,
                   every_token=True, trains="chosen", term="SFT",
                   elsewhere=(_dpo(_DPO_KL, refuses=("pair_weighting",)),)),
    PreferenceLoss("answer_sft", "SFT on the task's own answer, beside the pair", r"-\tfrac{\ell_a}{\bar T_a}",
                   own_answer=True, every_token=True, trains="answer", term="SFT", trainer="TPOTrainer",
                   letters=(Letter(r"\ell_a", r"\ell_a = \log\pi_\theta(y_a)"),),
                   elsewhere=(There("TPOTrainer"),)),
    PreferenceLoss("exploration", "XPO: lowers the log-likelihood of the reference's completion", r"\ell_{ref}",
                   opposed=True, every_token=True, trains="opponent", term="exploration",
                   letters=(Letter(r"\ell_{ref}", r"\ell_{ref} = \log\pi_\theta(y_{ref})"),)),
))

DIVERGENCE = Family("divergence", "divergence", "labcore.maths.divergences", ("log_ratios",), (
    Choice("reverse_kl", "reverse KL: DPO's own", r"\log u", elsewhere=(
        There("DPOTrainer", name="reverse_kl"), There("OpenRLHF ms-swift"))),
    Choice("forward_kl", "forward KL", r"1-\tfrac1u", elsewhere=(There("DPOTrainer", name="forward_kl"),)),
    Choice("jensen_shannon", "Jensen–Shannon", r"\log\tfrac{2u}{1+u}", elsewhere=(
        There("DPOTrainer", name="js_divergence"),)),
    Choice("alpha", "α-divergence", r"\tfrac{u^{\alpha-1}-1}{\alpha-1}", knobs=(DIVERGENCE_ALPHA,), elsewhere=(
        There("DPOTrainer", name="alpha_divergence"),)),
))

PAIRS = Family("pairs", "source of pairs", "labcore.llm.pairs", ("session",), (
    Pairs("dataset", "the task's own pairs", r"\mathcal D", from_file=True, asks=("pairs_per_step",)),
    Pairs("reference_once", "the reference's completions, once before the first step", r"\pi_{ref}", once=True,
          asks=("pairs_per_step", "pair_prompts", "group_size")),
    Pairs("policy_each_step", "the policy's own completions, at every step", r"\pi_\theta", each_step=True,
          asks=("pairs_per_step", "group_size")),
    Pairs("policy_and_reference", "a completion of the policy and one of the reference, at every step",
          r"\pi_\theta,\,\pi_{ref}", each_step=True, opposed=True, asks=("pairs_per_step",)),
))
