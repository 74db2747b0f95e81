"""The algorithms that learn from preferences: each is a row of a preference loss and a source of pairs."""

from __future__ import annotations

from typing import Any

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.llm.row import LAST_PANELS, row

_CHOSEN = r"\log\tfrac{\pi_\theta(y_w)}{\pi_{ref}(y_w)}"
_REJECTED = r"\log\tfrac{\pi_\theta(y_l)}{\pi_{ref}(y_l)}"
_MARGIN = rf"\Delta = {_CHOSEN}-{_REJECTED}"
_SIDES = rf"c = {_CHOSEN},\quad r = {_REJECTED}"
_PANELS = ("exact_match", "margin", "logps", "accuracy", "kl", "entropy", "length", "truncated", *LAST_PANELS)


def _offline(key: str, label: str, loss: str, *, models: tuple[str, ...] = ("policy", "reference"),
             **rest: Any) -> Algorithm:
    """A row that learns from pairs made once, by the preference loss `loss`."""
    held = [panel for panel in rest.pop("panels", _PANELS) if panel != "kl" or "reference" in models]
    return row(key, label, "preference", defaults={"preference_loss": loss, **rest.pop("defaults", {})}, models=models,
               panels=tuple(held), **rest)


ROWS = (
    row("dpo", "DPO", "preference",
        summary="Learns from pairs without sampling: raises the chosen over the rejected, relative to the reference.",
        latex=r"L = -\log\sigma\Big(\beta\big[\log\tfrac{\pi_\theta(y_w)}{\pi_{ref}(y_w)}-"
              r"\log\tfrac{\pi_\theta(y_l)}{\pi_{ref}(y_l)}\big]\Big)",
        watch="Chosen and rejected log-probs often fall together; the margin is what is trained. On verifiable tasks, "
              "offline pairs improve the policy less than the online algorithms.",
        paper="Rafailov et al. 2023, arXiv:2305.18290",
        models=("policy", "reference"), panels=_PANELS),
    row("online_dpo", "Online DPO", "preference",
        summary="DPO on fresh pairs: at every step the policy answers each prompt, and the better answer is the "
                "chosen one.",
        latex=r"L = -\log\sigma\Big(\beta\big[\log\tfrac{\pi_\theta(y_w)}{\pi_{ref}(y_w)}-"
              r"\log\tfrac{\pi_\theta(y_l)}{\pi_{ref}(y_l)}\big]\Big),\quad y_w, y_l \in \{y_1 \ldots y_G\} \sim "
              r"\pi_\theta,\quad b = 1\ldots B",
        watch="Zero-variance groups: where all answers of a prompt have the same reward, the pair adds only noise. "
              "The pair is the best and the worst of G = 4 answers; the paper samples 2.",
        paper="Guo et al. 2024, arXiv:2402.04792", verified=True,
        without=("pair_prompts", "eval_every", "eval_prompts"),
        defaults={"pairs": "policy_each_step", "beta": 0.1, "group_size": 4},
        models=("policy", "reference"),
        panels=("reward", "margin", "logps", "exact_match", "zero_variance", "accuracy", "kl", "entropy", "length",
                "truncated", *LAST_PANELS)),
    row("xpo", "XPO", "preference",
        summary="Online DPO that explores: each pair has a completion of the policy and one of the reference, and a "
                "second term makes the reference's completion less likely.",
        latex=r"\begin{gathered}L = w_1\Big(-\log\sigma\Big(\beta\big[" + _CHOSEN + "-" + _REJECTED
              + r"\big]\Big)\Big) + w_2\log\pi_\theta(y_{ref})\\ \{y_w, y_l\} = \{y, y_{ref}\},\quad y \sim "
              r"\pi_\theta,\quad y_{ref} \sim \pi_{ref},\quad b = 1\ldots B\end{gathered}",
        watch="The win rate against the reference, and the log-prob of the reference's completions. A larger weight w₂ "
              "(the paper's α) helps on tasks where the reference rarely finds a good answer; too large a weight "
              "destroys the policy. If both completions earn the same, the chosen one is drawn at random.",
        paper="Xie et al. 2024, arXiv:2405.21046", verified=True,
        without=("pair_prompts", "eval_every", "eval_prompts", "group_size"),
        defaults={"pairs": "policy_and_reference", "beta": 0.1, "second_loss": "exploration", "second_weight": 1e-3},
        models=("policy", "reference"),
        panels=("reward", "win_rate", "margin", "logps", "exact_match", "accuracy", "kl", "entropy", "length",
                "truncated", *LAST_PANELS)),
    _offline("ipo", "IPO", "ipo_mean",
             summary="DPO with a target for the margin: it stops at 1/(2β), where DPO would never stop.",
             latex=r"L = \Big(\tfrac1{T_w}" + _CHOSEN + r"-\tfrac1{T_l}" + _REJECTED + r"-\tfrac1{2\beta}\Big)^2",
             watch="The margin settles at its target. Log-ratios are means per token, as in TRL; the loss ipo sums "
                   "them, as eq. 17 and OpenRLHF do, and its target is then nats per completion.",
             paper="Azar et al. 2023, arXiv:2310.12036"),
    _offline("cdpo", "cDPO", "cdpo",
             summary="DPO that assumes a share of flipped labels: margins stay finite.",
             latex=r"L = -(1-\varepsilon)\log\sigma(\beta\Delta)-\varepsilon\log\sigma(-\beta\Delta),\quad " + _MARGIN,
             watch="The margin stops near log((1−ε)/ε). TRL has no label smoothing for the sigmoid loss; OpenRLHF has.",
             paper="Mitchell 2023, A note on DPO with noisy preferences and IPO"),
    _offline("robust_dpo", "Robust DPO", "robust",
             summary="DPO, unbiased under label noise: in expectation the DPO loss on clean labels.",
             latex=r"L = \tfrac{-(1-\varepsilon)\log\sigma(\beta\Delta)+\varepsilon\log\sigma(-\beta\Delta)}"
                   r"{1-2\varepsilon},\quad " + _MARGIN,
             watch="The loss can fall below 0. With ε above the true share of wrong labels it overshoots.",
             paper="Chowdhury et al. 2024, arXiv:2403.00409"),
    _offline("slic", "SLiC", "hinge",
             summary="Hinge loss: a pair whose margin has reached 1 is left alone.",
             latex=r"L = \max(0,\ 1-\beta\Delta),\quad " + _MARGIN,
             watch="The gradient norm falls as more pairs pass the margin of 1. This is the form with a reference; add "
                   "the second loss sft for the paper's regulariser.",
             paper="Zhao et al. 2023, arXiv:2305.10425"),
    _offline("exo", "EXO", "exo_pair",
             summary="Fits the policy's preference to the labels by the reverse KL, where DPO uses the forward one.",
             latex=r"L = q_w\log\tfrac{q_w}{1-\varepsilon_l}+q_l\log\tfrac{q_l}{\varepsilon_l},\quad "
                   r"q_w = \sigma(\beta\Delta) = 1-q_l,\quad " + _MARGIN,
             watch="The margin stops near log((1−ε)/ε). Pairs that the policy ranks wrongly by far have little "
                   "gradient.",
             paper="Ji et al. 2024, arXiv:2402.00856"),
    _offline("nca", "NCA", "nca_pair",
             summary="Noise contrastive: each side against the reference, so that the chosen is kept from falling.",
             latex=r"L = -\log\sigma(\beta c)-\tfrac12\log\sigma(-\beta c)-\tfrac12\log\sigma(-\beta r),\quad "
                   + _SIDES,
             watch="The chosen log-prob: it should not fall as it does with DPO.",
             paper="Chen et al. 2024, arXiv:2402.05369"),
    _offline("bco", "BCO", "bco_pair",
             summary="A classifier: chosen completions as desired, rejected ones as undesired, each by itself.",
             latex=r"L = -\log\sigma(\beta c)-\log\sigma(-\beta r),\quad " + _SIDES,
             watch="Implicit rewards move to opposite sides of 0. The paper also subtracts a running mean of rewards; "
                   "this is the form of TRL's pairs, without.",
             paper="Jung et al. 2024, arXiv:2404.04656"),
    _offline("sppo", "SPPO", "sppo_hard",
             summary="Self-play: the chosen log-ratio moves to +1/(2β), the rejected one to −1/(2β).",
             latex=r"L = \big(c-\tfrac1{2\beta}\big)^2+\big(r+\tfrac1{2\beta}\big)^2,\quad " + _SIDES,
             watch="Implicit rewards settle at +½ and −½. The winning probability is taken as 1; with pairs of the "
                   "policy at every step it is self-play. β is 1 for short answers; the paper's η = 1/β is 1e3.",
             paper="Wu et al. 2024, arXiv:2405.00675"),
    _offline("apo_zero", "APO-zero", "apo_zero",
             summary="Raises the chosen and lowers the rejected side: for answers better than the policy's own.",
             latex=r"L = 1-\sigma(\beta c)+\sigma(\beta r),\quad " + _SIDES,
             watch="Both log-probs: the chosen one should rise, the rejected one fall.",
             paper="D'Oosterlinck et al. 2024, arXiv:2408.06266"),
    _offline("apo_down", "APO-down", "apo_down",
             summary="Lowers both sides, the rejected one more: for answers worse than the policy's own.",
             latex=r"L = \sigma(\beta c)+1-\sigma(\beta(c-r)),\quad " + _SIDES,
             watch="The margin rises while both log-probs fall. The reward rises only if the chosen answers are worse "
                   "than the policy's: those sampled from the reference are better than its average.",
             paper="D'Oosterlinck et al. 2024, arXiv:2408.06266"),
    _offline("aot", "AOT", "aot",
             summary="Optimal transport: sorted margins of the policy against sorted margins of the reference.",
             latex=r"L = -(1-\varepsilon)\log\sigma(\beta\delta_i)-\varepsilon\log\sigma(-\beta\delta_i),\quad "
                   r"\delta_i = \operatorname{sort}_i\log\tfrac{\pi_\theta(y_w)}{\pi_\theta(y_l)}-"
                   r"\operatorname{sort}_i\log\tfrac{\pi_{ref}(y_w)}{\pi_{ref}(y_l)},\quad i = 1\ldots B",
             watch="A small batch has few quantiles. The preference loss aot_unpaired compares sorted chosen with "
                   "sorted rejected log-ratios instead.",
             paper="Melnyk et al. 2024, arXiv:2406.05882", defaults={"label_smoothing": 0.0}),
    _offline("discopop", "DiscoPOP", "discopop",
             summary="A loss found by a language model: logistic for wrong pairs, exponential for right ones.",
             latex=r"L = (1-w)\big(-\log\sigma(\beta\Delta)\big)+w\,e^{-\beta\Delta},\quad "
                   r"w = \sigma(\beta\Delta/\tau_w),\quad " + _MARGIN,
             watch="It is not convex around a margin of 0: the loss can rise a little before it falls.",
             paper="Lu et al. 2024, arXiv:2406.08414"),
    _offline("kto", "KTO", "kto",
             summary="Learns from single completions, desired or not, each against the KL to the reference.",
             latex=r"L = \lambda_D\big(1-\sigma(\beta(c-z))\big)\ \text{or}\ \lambda_U\big(1-\sigma(\beta(z-r))\big),"
                   r"\quad " + _SIDES + r",\quad z = \max(0, \widehat{KL})",
             watch="The reference point z: once it has grown, a completion must gain more than that. Pairs are split "
                   "into their sides; your own file may have completions with a label instead of pairs.",
             paper="Ethayarajh et al. 2024, arXiv:2402.01306",
             panels=("exact_match", "margin", "logps", "mismatched_kl", *(panel for panel in _PANELS[4:]))),
    _offline("mpo", "MPO", "sigmoid",
             summary="Three losses at once: DPO for the comparison, BCO for each side's quality, SFT for the chosen "
                     "answer.",
             latex=r"\begin{gathered}L = w_1\big(-\log\sigma(\beta\Delta)\big) + w_2\big(-\log\sigma(\beta c)"
                   r"-\log\sigma(-\beta r)\big) + w_3\big(-\tfrac1{\bar T_w}\log\pi_\theta(y_w)\big)\\ " + _SIDES
                   + r",\quad \Delta = c-r,\quad \bar T_w = \tfrac1B{\textstyle\sum T_w}\end{gathered}",
             watch="The chosen log-prob: the SFT term keeps it from falling as it does with DPO alone. The weights are "
                   "the paper's: 0.8, 0.2 and 1. The paper's BCO also subtracts a running mean of rewards.",
             paper="Wang et al. 2024, arXiv:2411.10442",
             defaults={"first_weight": 0.8, "second_loss": "bco_pair", "second_weight": 0.2, "third_loss": "sft",
                       "beta": 0.1}),
    _offline("simpo", "SimPO", "simpo", models=("policy",),
             summary="Mean log-probs with a target margin in place of a reference: only the policy is in memory.",
             latex=r"L = -\log\sigma\Big(\tfrac{\beta}{T_w}\log\pi_\theta(y_w)-\tfrac{\beta}{T_l}\log\pi_\theta(y_l)-"
                   r"\gamma\Big)",
             watch="Nothing holds the policy near its base: with its loss alone both log-probs fall, and exact match "
                   "with them. So the second loss sft is on here, which keeps the chosen side likely; the paper has no "
                   "second loss and a far smaller learning rate.",
             paper="Meng et al. 2024, arXiv:2405.14734",
             defaults={"beta": 2.0, "target_margin": 1.0, "learning_rate": 3e-4, "second_loss": "sft"}),
    _offline("cpo", "CPO", "cpo", models=("policy",),
             summary="DPO without a reference model, plus SFT on the chosen side: one model in memory, as if the "
                     "reference were uniform.",
             latex=r"L = w_1\big(-\log\sigma\big(\beta[\log\pi_\theta(y_w)-\log\pi_\theta(y_l)]\big)\big) + "
                   r"w_2\big(-\tfrac1{\bar T_w}\log\pi_\theta(y_w)\big),\quad \bar T_w = \tfrac1B\textstyle\sum T_w",
             watch="Log-probs are summed, so a longer rejected answer is easier to beat. Without the SFT term both "
                   "log-probs fall.",
             paper="Xu et al. 2024, arXiv:2401.08417",
             defaults={"beta": 0.1, "second_loss": "sft"}),
    _offline("tpo", "TPO", "cpo", models=("policy",),
             summary="Learns from three answers: raises the chosen over the rejected, without a reference model, and "
                     "imitates the task's own answer.",
             latex=r"L = w_1\big(-\log\sigma\big(\beta[\log\pi_\theta(y_w)-\log\pi_\theta(y_l)]\big)\big) + "
                   r"w_2\big(-\tfrac1{\bar T_a}\log\pi_\theta(y_a)\big),\quad \bar T_a = \tfrac1B\textstyle\sum T_a",
             watch="The log-prob of the task's answer rises while that of the chosen completion may fall. Pairs of "
                   "your file need the answer in a field reference. With the loss simpo it is the paper's TPO-L.",
             paper="Saeidi et al. 2024, arXiv:2405.16681",
             defaults={"beta": 0.1, "second_loss": "answer_sft"}),
    _offline("alphapo", "AlphaPO", "alphapo", models=("policy",),
             summary="SimPO with a nonlinear reward: α sets how strongly unlikely completions are pushed down.",
             latex=r"L = -\log\sigma\big(\beta(\bar r_w-\bar r_l)-\gamma\big),\quad \bar r = \tfrac1\alpha\big(1-"
                   r"\pi_\theta(y)^{-\alpha/T}\big)",
             watch="The chosen log-prob compared with SimPO (α = 0). As in SimPO, nothing keeps the policy close to "
                   "its base, so the second loss sft is on here; the paper has none.",
             paper="Gupta et al. 2025, arXiv:2501.03884",
             defaults={"beta": 2.0, "target_margin": 1.0, "learning_rate": 3e-4, "second_loss": "sft"}),
    _offline("orpo", "ORPO", "orpo", models=("policy",),
             summary="SFT on the chosen side with an odds ratio against the rejected one: no reference, one stage.",
             latex=r"L = -\tfrac1{\bar T_w}\log\pi_\theta(y_w)-\beta\log\sigma\Big(\log\tfrac{p_w}{1-p_w}-"
                   r"\log\tfrac{p_l}{1-p_l}\Big),\quad p = \pi_\theta(y)^{1/T},\quad \bar T_w = \tfrac1B\textstyle\sum "
                   r"T_w",
             watch="Mostly SFT: the odds ratio only keeps the rejected side from rising as well. β is the paper's λ.",
             paper="Hong et al. 2024, arXiv:2403.07691", defaults={"beta": 0.1}),
)
