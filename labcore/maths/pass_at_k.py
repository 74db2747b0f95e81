"""pass@k: the probability that at least one of k completions of a prompt is right."""

from __future__ import annotations

import torch
from torch import Tensor


def pass_at_k(right: Tensor, samples: int, k: int) -> Tensor:
    """The unbiased estimate of P(at least one of k completions is right), for each prompt.

    pass@k = 1 − C(n − c, k) / C(n, k), for n samples of which c are right; the ratio is computed as the product of
    1 − k / i over i = n − c + 1 … n, so that no factorial overflows. right: (P,) c, whole numbers from 0 to n;
    `samples` is n -> (P,) float64, a share.

    Source: Chen et al. 2021, arXiv:2107.03374, equation 1 and figure 3.

    Raises:
        ValueError: k is not between 1 and n.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs {k} samples or more, not {samples}")
    numbers = torch.arange(1, samples + 1, dtype=torch.float64, device=right.device)
    counted = numbers > (samples - right.double())[:, None]  # i > n − c
    return 1 - (1 - k / numbers).where(counted, 1.0).prod(1)
