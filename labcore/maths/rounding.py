"""Weights rounded to fewer digits, returned in their original precision."""

from __future__ import annotations

import torch
from torch import Tensor

FLOATS = {"bf16": torch.bfloat16, "fp16": torch.float16}
INT8 = "int8"
LEVELS = 127  # above 0, of int8 without its lowest number


def rounded(weight: Tensor, dtype: str) -> Tensor:
    """w rounded to "bf16", "fp16" or "int8". (...) -> (...)

    int8: q = round(w/s), w' = q s with s = max|w|/127 over the last dimension, each output of a matrix by itself. A
    vector (a bias, the scale of a norm) stays as it is: it is kept in full precision beside such a matrix. Above
    65,504, the largest number of fp16, w' is that number.

    Source: Dettmers et al. 2022, arXiv:2208.07339, section 2.1 (absmax quantisation, by rows).
    """
    if dtype != INT8:
        limits = torch.finfo(FLOATS[dtype])
        return weight.clamp(limits.min, limits.max).to(FLOATS[dtype]).to(weight.dtype)
    if weight.dim() < 2:
        return weight.clone()
    scale = weight.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny) / LEVELS
    return (weight / scale).round() * scale
