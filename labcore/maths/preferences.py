"""Losses on preferences, one function each: of log-ratios to the reference, and of log-probs where there is none.

c = log π(y_w)/π_ref(y_w) of the chosen, r = log π(y_l)/π_ref(y_l) of the rejected completion, both summed over its
tokens; Δ = c − r. Another divergence than the reverse KL has first made something else of c and r (`divergences`).
A loss gives one number per pair (or per completion, where it says so); the mean is the caller's.

Here are those of Δ alone. Those that look at each side by itself are in `preferences_each`, those of the whole batch in
`preferences_batch`, those without a reference in `preferences_free`.
"""

from __future__ import annotations

from math import log, log1p

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from labcore.maths.preferences_batch import aot as aot
from labcore.maths.preferences_batch import aot_unpaired as aot_unpaired
from labcore.maths.preferences_batch import smoothed
from labcore.maths.preferences_each import apo_down as apo_down
from labcore.maths.preferences_each import apo_zero as apo_zero
from labcore.maths.preferences_each import bco_pair as bco_pair
from labcore.maths.preferences_each import kto as kto
from labcore.maths.preferences_each import nca_pair as nca_pair
from labcore.maths.preferences_each import sppo_hard as sppo_hard
from labcore.maths.preferences_free import orpo as orpo
from labcore.maths.preferences_free import sft as sft
from labcore.maths.preferences_free import simpo as simpo


def sigmoid(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = −log σ(βΔ). (B,), (B,) -> (B,)

    In nats; log-ratios in nats per sequence, `beta` in 1/nat. At π = π_ref it is log 2.

    Source: Rafailov et al. 2023, arXiv:2305.18290, eq. 7.
    """
    delta = log_ratio_chosen - log_ratio_rejected
    return -logsigmoid(beta * delta)


def cdpo(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float, label_smoothing: float) -> Tensor:
    """L = −(1−ε) log σ(βΔ) − ε log σ(−βΔ). (B,), (B,) -> (B,)

    In nats. Labels are believed to be flipped in a share ε of the pairs, so it is least at σ(βΔ) = 1 − ε.

    Source: Mitchell 2023, "A note on DPO with noisy preferences", ericmitchell.ai/cdpo.pdf.
    """
    margin = beta * (log_ratio_chosen - log_ratio_rejected)
    return smoothed(margin, label_smoothing)


def robust(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float, label_smoothing: float) -> Tensor:
    """L = (−(1−ε) log σ(βΔ) + ε log σ(−βΔ)) / (1−2ε), ε < ½. (B,), (B,) -> (B,)

    In nats. Unbiased under label noise: where a share ε of the labels is flipped, its expectation is the DPO loss on
    clean labels.

    Source: Chowdhury et al. 2024, arXiv:2403.00409.
    """
    margin = beta * (log_ratio_chosen - log_ratio_rejected)
    clean, flipped = -(1 - label_smoothing) * logsigmoid(margin), -label_smoothing * logsigmoid(-margin)
    return (clean - flipped) / (1 - 2 * label_smoothing)


def hinge(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = max(0, 1 − βΔ). (B,), (B,) -> (B,)

    Without a unit. A pair whose margin has reached 1 has no gradient.

    Source: Zhao et al. 2023, arXiv:2305.10425 (SLiC-HF), with the log-ratios of Liu et al. 2023, arXiv:2309.06657.
    """
    delta = log_ratio_chosen - log_ratio_rejected
    return torch.relu(1 - beta * delta)


def ipo(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float) -> Tensor:
    """L = (Δ − 1/(2β))². (B,), (B,) -> (B,)

    In nats²; log-ratios in nats per sequence, `beta` in 1/nat. The margin it aims at is 1/(2β): it does not grow
    without end where a preference is certain.

    Source: Azar et al. 2023, arXiv:2310.12036, eq. 17.
    """
    delta = log_ratio_chosen - log_ratio_rejected
    return (delta - 1 / (2 * beta)) ** 2


def ipo_mean(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, length_chosen: Tensor, length_rejected: Tensor,
             beta: float) -> Tensor:
    """L = (c/T_w − r/T_l − 1/(2β))². (B,), (B,), (B,), (B,) -> (B,)

    In (nats/token)²; T are tokens. `ipo` of mean log-ratios per token, so that long completions weigh no more than
    short ones: as in TRL; eq. 17 and OpenRLHF sum them.

    Source: Azar et al. 2023, arXiv:2310.12036, eq. 17; the mean as in TRL's DPOTrainer.
    """
    return ipo(log_ratio_chosen / length_chosen, log_ratio_rejected / length_rejected, beta)


def sigmoid_norm(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, length_chosen: Tensor, length_rejected: Tensor,
                 beta: float) -> Tensor:
    """L = −log σ(β(c/T_w − r/T_l)). (B,), (B,), (B,), (B,) -> (B,)

    In nats; T are tokens. DPO of mean log-ratios per token: a completion gains nothing by its length.

    Source: Lambert et al. 2024, arXiv:2411.15124 (Tülu 3).
    """
    return sigmoid(log_ratio_chosen / length_chosen, log_ratio_rejected / length_rejected, beta)


def exo_pair(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float, exo_epsilon: float) -> Tensor:
    """L = q_w (log q_w − log(1−ε)) + q_l (log q_l − log ε), q_w = σ(βΔ), q_l = σ(−βΔ), ε > 0. (B,), (B,) -> (B,)

    In nats. The KL from the policy's preference q to that of the labels, (1−ε, ε): reverse where DPO's is forward.

    Source: Ji et al. 2024, arXiv:2402.00856, eq. 16.
    """
    margin = beta * (log_ratio_chosen - log_ratio_rejected)
    of_chosen = margin.sigmoid() * (logsigmoid(margin) - log1p(-exo_epsilon))
    return of_chosen + (-margin).sigmoid() * (logsigmoid(-margin) - log(exo_epsilon))


def discopop(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float, discopop_tau: float) -> Tensor:
    """L = (1−w)(−log σ(x)) + w e^(−x), x = βΔ, w = σ(x/τ). (B,), (B,) -> (B,)

    Without a unit. Logistic where the policy prefers the wrong side, exponential where it prefers the right one; not
    convex around 0. Found by a language model that searched for losses.

    Source: Lu et al. 2024, arXiv:2406.08414, eq. 5.
    """
    margin = beta * (log_ratio_chosen - log_ratio_rejected)
    exponential = (margin / discopop_tau).sigmoid()
    # Where w is 0 the exponential is left out: 0 · e^(−x) is not a number once e^(−x) has overflowed.
    safe = torch.where(exponential > 0, margin, torch.zeros_like(margin))
    return (1 - exponential) * -logsigmoid(margin) + exponential * (-safe).exp()
