"""softmax(q kᵀ / √D + mask) v, in the form that the device computes fastest: they differ in rounding only.

Measured on AVX-512 processors, one thread: torch's fused kernel handles keys that do not fill a vector one at a time,
so 63 keys take it twice as long as 64; a single query on a few keys takes it twice as long as two plain sums; and its
gradient in bfloat16 takes four to ten times as long as that of plain matrix products. On a GPU torch has no fused
kernel for a mask where heads share keys, but one for keys that are spread over the heads.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

VECTOR = 16  # float32 numbers in the widest vector of a cpu
FEW = 64  # keys: beyond, the fused kernel is as fast as the sums


def attend_rows(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Every token of a row is a query. q (B, heads, S, D), k and v (B, key heads, S, D), mask (B or 1, 1, S, S)."""
    if q.device.type != "cpu":
        return F.scaled_dot_product_attention(q, *_spread(q, k, v), attn_mask=mask)
    if q.dtype == torch.bfloat16 and torch.is_grad_enabled():
        return _products(q, k, v, mask)
    if missing := -k.shape[2] % VECTOR:
        k, v = (F.pad(each, (0, 0, 0, missing)) for each in (k, v))
        mask = F.pad(mask, (0, missing), value=torch.finfo(mask.dtype).min)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def attend_next(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """One query a row. q (B, heads, 1, D), keys and values time first, (S, B, key heads, D), mask (B, 1, 1, S)."""
    plain = q.device.type == "cpu" and q.dtype != torch.bfloat16 and q.shape[1] == keys.shape[2] and len(keys) <= FEW
    if not plain:
        k, v = keys.permute(1, 2, 0, 3), values.permute(1, 2, 0, 3)
        if q.device.type == "cpu":  # the queries that share a key head become its rows: their keys are read once
            rows = q.reshape(len(q), keys.shape[2], -1, q.shape[3])
            return F.scaled_dot_product_attention(rows, k, v, attn_mask=mask).reshape(q.shape)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    logits = torch.linalg.vecdot(keys, q[:, :, 0] * q.shape[-1] ** -0.5)  # (S, B, heads)
    if mask is not None:
        logits = logits + mask[:, 0, 0].T[..., None]
    seen: Tensor = torch.linalg.vecdot(logits.softmax(0)[..., None], values, dim=0)
    return seen[:, :, None]


def _products(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    flat, k, v = (x.flatten(0, 1) for x in (q, *_spread(q, k, v)))
    weights = torch.baddbmm(mask.expand(*q.shape[:2], -1, -1).flatten(0, 1), flat, k.mT, alpha=q.shape[-1] ** -0.5)
    return (weights.softmax(-1) @ v).view(q.shape)


def _spread(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The keys and values of each head of q, which several may share: (B, heads, S, D)."""
    group = q.shape[1] // k.shape[1]
    return (k, v) if group == 1 else (k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))
