"""Losses of supervised fine-tuning."""

from __future__ import annotations

from labcore.catalog.choice import Choice, Family, There
from labcore.catalog.worked import Worked

SFT_LOSS = Family("sft_loss", "SFT loss", "labcore.maths.supervised", ("logprobs",), (
    Choice("nll", "negative log-likelihood", r"-\log\pi_\theta", elsewhere=(There("SFTTrainer verl OpenRLHF"),),
           worked=lambda of: Worked("−log π", "−{logprobs:b}")),
    Choice("dft", "DFT: weighted by the token's own probability", r"-\operatorname{sg}(\pi_\theta)\log\pi_\theta",
           elsewhere=(There("SFTTrainer", {"loss_type": "dft"}),),
           worked=lambda of: Worked("−π log π", "−exp({logprobs}) × {logprobs:b}", "π has no gradient")),
))
