"""Supervised fine-tuning."""

from __future__ import annotations

from labcore.catalog.llm.row import LAST_PANELS, row

ROWS = (
    row("sft", "SFT", "sft",
        summary="Supervised fine-tuning: raises the log-probability of the given answers.",
        latex=r"L = -\frac1{\sum_i T_i}\sum_{i,t}\log\pi_\theta(y_{i,t})",
        watch="Stops at the target: a base that is already perfect leaves RL nothing to learn.",
        paper="Ouyang et al. 2022, arXiv:2203.02155",
        models=("policy",), steps=400,
        panels=("exact_match", "loss", "token_accuracy", "entropy", "length", "truncated",
                *(panel for panel in LAST_PANELS if panel != "loss"))),
)
