"""The reward model: learns scores from pairs, which an online run may then take as its rewards."""

from __future__ import annotations

from labcore.catalog.llm.row import LAST_PANELS, row

ROWS = (
    row("reward_model", "Reward model", "reward_model",
        summary="Learns a score of completions from pairs: the chosen one is to score higher than the rejected one.",
        latex=r"L = -\log\sigma(r_w-r_l-m) + c\,(r_w+r_l)^2",
        watch="Held-out accuracy: with noisy labels even the true score is below 1. A policy that is trained on the "
              "score leaves the text it was learnt from: watch the gold score then.",
        paper="Bradley and Terry 1952, Biometrika 39:324; Ouyang et al. 2022, arXiv:2203.02155",
        models=("policy", "reward_model"), steps=150,
        source=("labcore.maths.reward_model:bradley_terry", "labcore.maths.reward_model:calibration"),
        panels=("held_out_accuracy", "score_margin", "calibration", "gold_correlation", *LAST_PANELS)),
)
