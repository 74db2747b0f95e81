"""Losses of supervised fine-tuning and of distillation."""

from labcore.catalog.choice import Family, SftLoss, There
from labcore.catalog.families.distillation import JSD_BETA, TEACHER
from labcore.catalog.worked import Worked

_GKD, _SWIFT, _BETA = "GKDTrainer", "GKDTrainer ms-swift", "beta"

SFT_LOSS = Family("sft_loss", "SFT loss", "labcore.maths.supervised", ("logprobs", "policy", "teacher"), (
    SftLoss("nll", "negative log-likelihood", r"-\log\pi_\theta", elsewhere=(
        There("SFTTrainer verl OpenRLHF ms-swift"),),
            worked=lambda of: Worked("−log π", "−{logprobs:b}")),
    SftLoss("dft", "DFT: weighted by the token's own probability", r"-\operatorname{sg}(\pi_\theta)\log\pi_\theta",
            elsewhere=(There("SFTTrainer", {"loss_type": "dft"}), There("ms-swift", {"enable_dft_loss": True})),
            worked=lambda of: Worked("−π log π", "−exp({logprobs}) × {logprobs:b}", "π has no gradient")),
    SftLoss("forward_kl", "forward KL: the policy covers everything that the teacher may "
            "write", r"KL(\pi_T\,\|\,\pi_\theta)",
            teacher=True, knobs=(TEACHER,), trainer=_GKD, elsewhere=(There(_SWIFT, {_BETA: 0.0}),)),
    SftLoss("reverse_kl", "reverse KL: the policy keeps to tokens that the teacher finds likely",
            r"KL(\pi_\theta\,\|\,\pi_T)", teacher=True, knobs=(TEACHER,), trainer=_GKD,
            elsewhere=(There(_SWIFT, {_BETA: 1.0}),)),
    SftLoss("generalised_jsd", "generalised Jensen–Shannon divergence: between forward and reverse KL",
            r"\beta_J KL(\pi_T\,\|\,m)+(1-\beta_J)KL(\pi_\theta\,\|\,m)", teacher=True, knobs=(TEACHER, JSD_BETA),
            trainer=_GKD, elsewhere=(There(_SWIFT, knobs={JSD_BETA.key: _BETA}),)),
))
