"""Normalisations of the advantages of a batch to one scale, after each completion has been compared.

Advantages are (B, 1), one per completion; the result is (B, 1) or (B, T). Where the mask is False, or a completion has
no advantage because nothing that it is compared with could be scored, the result is 0 and enters no mean.
"""

from __future__ import annotations

from torch import Tensor

from labcore.maths.masked import centred, masked_var, masked_whiten


def none(advantages: Tensor) -> Tensor:
    """A' = A. (B, 1) -> (B, 1)"""
    return advantages


def sequences(advantages: Tensor, scored: Tensor, eps: float = 1e-4, ddof: int = 1) -> Tensor:
    """A' = (A − mean A)/(std A + eps), over the batch's scored completions. (B, 1), bool (B, 1) -> (B, 1)

    Without a unit. As TRL does it for RLOO (`normalize_advantages`).

    Source: Ahmadian et al. 2024, arXiv:2402.14740; Hu et al. 2025, arXiv:2501.03262, section 3 (global normalisation).
    """
    spread = masked_var(advantages, scored, ddof).sqrt()
    return centred(advantages, scored) / (spread + eps)


def tokens(advantages: Tensor, completion_mask: Tensor) -> Tensor:
    """A' = (A − mean A)/√(var A + 1e-8), over the batch's counted tokens. (B, 1), bool (B, T) -> (B, T)

    Without a unit. Long completions weigh more in mean and variance. As verl and OpenRLHF do it for REINFORCE++.

    Source: Hu et al. 2025, arXiv:2501.03262, section 3 (REINFORCE++-baseline).
    """
    return masked_whiten(advantages.expand_as(completion_mask), completion_mask)
