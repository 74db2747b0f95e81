"""Losses on preferences that compare the distributions of a whole batch: sorted, quantile by quantile."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid


def aot(logprob_chosen: Tensor, logprob_rejected: Tensor, ref_logprob_chosen: Tensor, ref_logprob_rejected: Tensor,
        beta: float, label_smoothing: float) -> Tensor:
    """L_i = −(1−ε) log σ(βδ_i) − ε log σ(−βδ_i), δ = sort(Δ_π) − sort(Δ_ref). (B,) four times -> (B,)

    In nats; Δ_π = log π(y_w)/π(y_l), Δ_ref that of the reference. Optimal transport: the i-th smallest margin of the
    policy against the i-th smallest of the reference, so the numbers belong to no single pair.

    Source: Melnyk et al. 2024, arXiv:2406.05882 (paired).
    """
    margins, ref_margins = logprob_chosen - logprob_rejected, ref_logprob_chosen - ref_logprob_rejected
    return smoothed(beta * (margins.sort().values - ref_margins.sort().values), label_smoothing)


def aot_unpaired(log_ratio_chosen: Tensor, log_ratio_rejected: Tensor, beta: float, label_smoothing: float) -> Tensor:
    """L_i = −(1−ε) log σ(βδ_i) − ε log σ(−βδ_i), δ = sort(c) − sort(r). (B,), (B,) -> (B,)

    In nats. Who was paired with whom does not count: the i-th smallest chosen log-ratio against the i-th smallest
    rejected one.

    Source: Melnyk et al. 2024, arXiv:2406.05882 (unpaired).
    """
    return smoothed(beta * (log_ratio_chosen.sort().values - log_ratio_rejected.sort().values), label_smoothing)


def smoothed(margins: Tensor, label_smoothing: float) -> Tensor:
    """−(1−ε) log σ(m) − ε log σ(−m), m the margins times β. (B,) -> (B,)

    In nats.
    """
    return -(1 - label_smoothing) * logsigmoid(margins) - label_smoothing * logsigmoid(-margins)
