"""Supervised fine-tuning."""

from __future__ import annotations

from labcore.catalog.llm.knobs import SFT_LOSS
from labcore.catalog.llm.row import LAST_PANELS, row

_PANELS = ("exact_match", "loss", "token_accuracy", "entropy", "length", "truncated",
           *(panel for panel in LAST_PANELS if panel != "loss"))

ROWS = (
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
        watch="It begins slowly where the answers are unlikely at first: meant for a model that can nearly do it.",
        paper="Wu et al. 2025, arXiv:2508.05629", extra_knobs=(SFT_LOSS,), defaults={"sft_loss": "dft"},
        models=("policy",), steps=400, panels=_PANELS),
)
