"""The table of language-model algorithms: read by the page, the command line, the loops and the tests."""

from __future__ import annotations

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.llm import distillation, online, online_credit, online_process, online_trust, preference
from labcore.catalog.llm.knobs import SFT_LOSS
from labcore.catalog.llm.row import LAST_PANELS, row

# ---------------------------------------------------------------- sft
# Supervised fine-tuning.

_PANELS = ("exact_match", "loss", "token_accuracy", "entropy", "length", "truncated",
           *(panel for panel in LAST_PANELS if panel != "loss"))

SFT = (
    row("sft", "SFT", "sft",
        summary="Supervised fine-tuning: raises the log-probability of the given answers.",
        latex=r"L = -\frac1{\sum_i T_i}\sum_{i,t}\log\pi_\theta(y_{i,t})",
        watch="Stops at the target: a base that is already perfect leaves RL nothing to learn.",
        paper="Ouyang et al. 2022, arXiv:2203.02155",
        models=("policy",), steps=400, panels=_PANELS),
    row("dft", "DFT", "sft",
        summary="SFT with each token's loss weighted by its own probability: unlikely tokens pull less.",
        latex=r"L = -\frac1{\sum_i T_i}\sum_{i,t}\operatorname{sg}\big(\pi_\theta(y_{i,t})\big)"
              r"\log\pi_\theta(y_{i,t})",
        watch="It learns slowly while the answers are unlikely: use it for a model that can nearly solve the task.",
        paper="Wu et al. 2025, arXiv:2508.05629", extra_knobs=(SFT_LOSS,), defaults={"sft_loss": "dft"},
        models=("policy",), steps=400, panels=_PANELS),
)


# ---------------------------------------------------------------- reward model
# The reward model: learns scores from pairs, which an online run may then take as its rewards.

REWARD_MODEL = (
    row("reward_model", "Reward model", "reward_model",
        summary="Learns a score of completions from pairs: the chosen one is to score higher than the rejected one.",
        latex=r"L = -\log\sigma(r_w-r_l-m) + c\,(r_w+r_l)^2",
        watch="Held-out accuracy: with noisy labels even the true score is below 1. A policy trained on the score "
              "moves away from the text that the reward model was trained on: watch the gold score.",
        paper="Bradley and Terry 1952, Biometrika 39:324; Ouyang et al. 2022, arXiv:2203.02155",
        models=("policy", "reward_model"), steps=150,
        source=("labcore.maths.reward_model:bradley_terry", "labcore.maths.reward_model:calibration"),
        panels=("held_out_accuracy", "score_margin", "calibration", "gold_correlation", *LAST_PANELS)),
)


PROCESS = (
    row("prm", "Process reward model", "prm",
        summary="Learns to score every step of an answer as right or wrong, from labels of the steps.",
        latex=r"L = -\frac1N\sum_{i,k}\big[y_{i,k}\log s_{i,k}+(1-y_{i,k})\log(1-s_{i,k})\big],\quad "
              r"s_{i,k} = \operatorname{softmax}(z_{i,k})_1",
        watch="First errors found: whether the model finds the step where an answer goes wrong. A policy that is "
        "trained on the model's scores moves away from the answers that the model was trained on.",
        paper="Lightman et al. 2023, arXiv:2305.20050; Wang et al. 2023, arXiv:2312.08935",
        models=("policy", "process_reward_model"), steps=150,
        source=("labcore.maths.process:step_cross_entropy", "labcore.maths.process:auc"),
        panels=("step_accuracy", "first_error", "step_auc", "step_score", *LAST_PANELS)),
)


# ---------------------------------------------------------------- algorithms

ALGORITHMS: dict[str, Algorithm] = {
    row.key: row for row in (*online.ROWS, *online_credit.ROWS, *online_trust.ROWS, *online_process.ROWS,
                             *preference.ROWS, *REWARD_MODEL, *PROCESS, *SFT, *distillation.ROWS)}
