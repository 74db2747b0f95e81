"""The operations that take most of a GPU's time: one Triton kernel each on CUDA, otherwise torch.

On a processor, and on a GPU without Triton (torch on Linux includes it), the torch code of this module runs. The
kernels in `gpu_kernels` give the same results up to rounding, and are imported on CUDA only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

KERNELS = "labcore.maths.gpu_kernels"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
KeysAndValues = tuple[Tensor, Tensor]


def kernels(x: Tensor) -> Any:
    """The module of GPU kernels if they support the tensor, otherwise None."""
    return _kernels() if x.is_cuda and x.dtype in DTYPES and not torch.compiler.is_compiling() else None


@cache
def _kernels() -> Any:
    return import_module(KERNELS) if find_spec("triton") else None


# ---------------------------------------------------------------- decoding


def attend(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, prompt: KeysAndValues, own: KeysAndValues,
           starts: Tensor, ended: Tensor, seen: Tensor, scale: float) -> Tensor:
    """Attention of the next token of each row; its key and value are stored. (B, heads, D) -> (B, heads, D)

    q (B, heads, D), k and v (B, key heads, D) are those of the token before its position turns them by the angles of
    `cos` and `sin`, (B, D/2). It sees its prompt, of which the group of B / P rows shares the keys and values
    (P, key heads, W, D) from column `starts` (P,) on, and the first `seen` (1,) of its own ones, (B, key heads, T, D).
    Rows that have `ended` (B,) see nothing but themselves: nobody reads what they draw.
    """
    if found := kernels(q):
        result: Tensor = found.attend(q, k, v, cos, sin, prompt, own, starts, ended, seen, scale)
        return result
    q, k = turn(q, cos, sin), turn(k, cos, sin)
    for buffer, new in zip(own, (k, v), strict=True):
        buffer.index_copy_(2, seen, new[:, :, None])
    group, repeat = len(q) // len(prompt[0]), q.shape[1] // k.shape[1]
    keys, values = (torch.cat([each.repeat_interleave(group, 0), mine], 2).repeat_interleave(repeat, 1)
                    for each, mine in zip(prompt, own, strict=True))
    width, length = prompt[0].shape[2], own[0].shape[2]
    there = (torch.arange(width, device=q.device) >= starts[:, None]).repeat_interleave(group, 0)
    place, going = torch.arange(length, device=q.device), ~ended[:, None]
    mask = torch.cat([there & going, (place <= seen) & (going | (place == seen))], 1)
    return F.scaled_dot_product_attention(q[:, :, None], keys, values, attn_mask=mask[:, None, None],
                                          scale=scale)[:, :, 0]


def choose(logits: Tensor, temperature: Tensor, seed: Tensor, count: Tensor, ids: Tensor, logprobs: Tensor,
           greedy: bool) -> None:
    """Draw a token of each row of logits (B, V) into row `count` (1,) of `ids` (T, B), and write its log-prob at
    `temperature` () into that row of `logprobs`.

    By the race of exponential numbers E, argmax_v log π_v − log E_v. They depend on `seed` (1,) alone; `greedy` has
    none. On CUDA only.
    """
    kernels(logits).choose(logits, temperature, seed, count, ids, logprobs, greedy)


def add_norm(x: Tensor, delta: Tensor | None, norm: Any) -> tuple[Tensor, Tensor]:
    """x + delta, and the root-mean-square norm of it by a module of transformers. (N, H) each; no gradient on CUDA"""
    if found := kernels(x):
        result: tuple[Tensor, Tensor] = found.add_norm(x, delta, norm.weight, norm.variance_epsilon)
        return result
    x = x if delta is None else x + delta
    return x, norm(x)


# ---------------------------------------------------------------- with a gradient


def joined(parts: Sequence[Any]) -> Tensor | None:
    """Tensors that are contiguous in memory, as one tensor; None if they are not contiguous."""
    def apart(one: Tensor, other: Tensor) -> bool:
        return (one.data_ptr() + one.nbytes != other.data_ptr()
                or one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr())
    if any(not isinstance(part, Tensor) for part in parts) or any(apart(*pair) for pair in pairwise(parts)):
        return None
    first: Tensor = parts[0]
    return first.as_strided((sum(len(part) for part in parts), *first.shape[1:]), first.stride())


def _one(parts: Sequence[Tensor]) -> Tensor:
    found = joined(parts)
    return torch.cat([*parts]) if found is None else found


class _Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        result: Tensor = kernels(x).turn_(x.clone(memory_format=torch.contiguous_format), x.shape[1], cos, sin, 1.0)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        x = gradients[0].clone(memory_format=torch.contiguous_format)
        return kernels(x).turn_(x, x.shape[1], *ctx.saved_tensors, -1.0), None, None


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: the pairs (d, d + D/2) of x (N, heads, D), turned by the angles of cos and sin (N, D/2)."""
    if kernels(x):
        turned: Tensor = _Turn.apply(x, cos, sin)  # type: ignore[no-untyped-call]  # torch's
        return turned
    cos, sin = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


@dataclass(frozen=True)
class Rows:
    """Tokens of rows that stand side by side: row r from `bounds[r]` to `bounds[r + 1]`, (B + 1,) int32, of `longest`
    tokens at most; cos and sin of the angles of their positions, (N, D/2)."""

    bounds: Tensor
    longest: int
    cos: Tensor
    sin: Tensor


def rows_attend(q: Tensor, k: Tensor, v: Tensor, rows: Rows, scale: float) -> tuple[Tensor, Tensor]:
    """Causal attention within each row, (N, heads, D), and the log-sum-exps of its scores. On CUDA only

    By torch's flash attention itself: `torch.nn.attention.varlen` calls it by way of so much Python that it takes the
    host longer than the GPU.
    """
    out, totals, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, rows.bounds, rows.bounds, rows.longest, rows.longest, 0.0, True, False, scale=scale)
    return out, totals


def rows_attend_back(pull: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, totals: Tensor, rows: Rows,
                     scale: float) -> tuple[Tensor, ...]:
    """The gradients for q, k and v from that of the result `out`. (N, heads, D) each"""
    bounds, longest, undropped = rows.bounds, rows.longest, torch.empty(2, dtype=torch.uint64, device=q.device)
    found: tuple[Tensor, ...] = torch.ops.aten._flash_attention_backward(
        pull, q, k, v, out, totals, bounds, bounds, longest, longest, 0.0, True, undropped, undropped, scale=scale)
    return found


class _Attention(torch.autograd.Function):
    """h = x + δ and a = attend(turn(y W_q + b_q), turn(y W_k + b_k), y W_v + b_v) W_o, where y = norm(h).

    The backward pass computes y again instead of keeping it. Three products are one.
    """

    @staticmethod
    def forward(ctx: Any, rows: Rows, scale: float, size: int, eps: float, x: Tensor, delta: Tensor | None,
                norm: Tensor, out: Tensor, q: Tensor, k: Tensor, v: Tensor, *biases: Tensor) -> tuple[Tensor, Tensor]:
        found, weight = kernels(x), _one([q, k, v])
        ctx.rows, ctx.scale, ctx.eps, ctx.heads = rows, scale, eps, [len(each) // size for each in (q, k, v)]
        x, y = found.add_norm(x, delta, norm, eps)
        whole = (torch.addmm(_one(biases), y, weight.t()) if biases else torch.mm(y, weight.t())).view(len(x), -1, size)
        found.turn_(whole, sum(ctx.heads[:2]), rows.cos, rows.sin, 1.0)
        queries, keys, values = whole.split(ctx.heads, 1)
        seen, totals = rows_attend(queries, keys, values, rows, scale)
        ctx.save_for_backward(x, norm, weight, out, whole, seen, totals)
        return x if delta is not None else x.view_as(x), torch.mm(seen.flatten(1), out.t())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        x, norm, weight, out, whole, seen, totals = ctx.saved_tensors
        (past, pull), found, rows, heads = gradients, kernels(x), ctx.rows, ctx.heads
        wanted, of_out, of_weights, of_biases = ctx.needs_input_grad[4:], None, [None] * 3, list[Tensor]()
        if wanted[3]:
            of_out = torch.mm(pull.t(), seen.flatten(1))
        queries, keys, values = whole.split(heads, 1)
        slopes = torch.cat(rows_attend_back(torch.mm(pull, out).view_as(seen), queries, keys, values, seen, totals,
                                            rows, ctx.scale), 1)
        of_all = found.turn_(slopes, sum(heads[:2]), rows.cos, rows.sin, -1.0).flatten(1)
        sizes = [count * whole.shape[2] for count in heads]
        if any(wanted[4:7]):
            of_weights = torch.mm(of_all.t(), found.add_norm(x, None, norm, ctx.eps)[1]).split(sizes)
        if any(wanted[7:]):
            of_biases = of_all.sum(0).split(sizes)
        past, of_norm = found.add_norm_back(past, torch.mm(of_all, weight), x, norm, ctx.eps)
        return None, None, None, None, past, past if wanted[1] else None, of_norm, of_out, *of_weights, *of_biases


def attention(x: Tensor, delta: Tensor | None, norm: tuple[Tensor, float], weights: Sequence[Tensor],
              biases: Sequence[Tensor], rows: Rows, scale: float) -> tuple[Tensor, Tensor]:
    """(x + delta, the output of attention to add to it). (N, H) each

    `norm` is the weight and ε of the norm before it; `weights` are those of queries, keys, values and the result,
    `biases` those of the first three, or none. On CUDA only: few operations, and little kept for the backward pass.
    """
    *parts, out = weights
    both: tuple[Tensor, Tensor] = _Attention.apply(  # type: ignore[no-untyped-call]  # torch's
        rows, scale, 2 * rows.cos.shape[1], norm[1], x, delta, norm[0], out, *parts, *biases)
    return both


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) · up; on CUDA without a gradient. (N, I) -> (N, I)"""
    found = kernels(gate)
    result: Tensor = F.silu(gate) * up if found is None or torch.is_grad_enabled() else found.swiglu(gate, up)
    return result


class _Mlp(torch.autograd.Function):
    """h = x + δ and m = (silu(y W_gate) · y W_up) W_down, where y = norm(h).

    Only h is kept. The backward pass computes y and its products again: they take half of a layer's memory, and with
    twice the rows at once a GPU waits less for the host than one more product takes.
    """

    @staticmethod
    def forward(ctx: Any, eps: float, x: Tensor, delta: Tensor, norm: Tensor, gate: Tensor, up: Tensor,
                down: Tensor) -> tuple[Tensor, Tensor]:
        found, weight = kernels(x), _one([gate, up])
        x, y = found.add_norm(x, delta, norm, eps)
        ctx.save_for_backward(x, norm, weight, down)
        ctx.eps = eps
        return x, torch.mm(found.swiglu(*torch.mm(y, weight.t()).chunk(2, -1)), down.t())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        (x, norm, weight, down), (past, pull) = ctx.saved_tensors, gradients
        found, wanted = kernels(x), ctx.needs_input_grad
        y = found.add_norm(x, None, norm, ctx.eps)[1]
        of_both, inner = found.swiglu_back(*torch.mm(y, weight.t()).chunk(2, -1), torch.mm(pull, down))
        of_down = torch.mm(pull.t(), inner) if wanted[6] else None
        of_weights = torch.mm(of_both.t(), y).chunk(2) if any(wanted[4:6]) else (None, None)
        past, of_norm = found.add_norm_back(past, torch.mm(of_both, weight), x, norm, ctx.eps)
        return None, past, past, of_norm, *of_weights, of_down


def mlp(x: Tensor, delta: Tensor, norm: tuple[Tensor, float], weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """(x + delta, the output of the MLP with these `weights` (gate, up, down) after its `norm`, to add to it). (N, H)
    each

    On CUDA only: few operations, and little kept for the backward pass.
    """
    both: tuple[Tensor, Tensor] = _Mlp.apply(  # type: ignore[no-untyped-call]  # torch's
        norm[1], x, delta, norm[0], *weights)
    return both


class _Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, copies: Sequence[Tensor], *weights: Tensor) -> tuple[Tensor, ...]:
        torch._foreach_copy_([*copies], weights)
        return tuple(copies)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        there = [each for each in gradients if each is not None]
        wide = [torch.empty_like(each, dtype=torch.float32) for each in there]
        if there:
            torch._foreach_copy_(wide, there)
        found = iter(wide)
        return None, *(None if each is None else next(found) for each in gradients)


def rounded(weights: Sequence[Tensor], copies: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Write float32 weights into `copies` of another type, with few operations for any number of weights; gradients are
    passed back in float32."""
    written: tuple[Tensor, ...] = _Rounded.apply(copies, *weights)  # type: ignore[no-untyped-call]  # torch's
    return written


class _LogProbs(torch.autograd.Function):
    """Keeps the logits as they are, and three numbers of each row."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, index: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        chosen, entropies, totals = kernels(logits).log_probs(logits, index, temperature)
        ctx.save_for_backward(logits, index, entropies, totals)
        ctx.temperature = temperature
        return chosen, entropies

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        pull, of_entropy = (each.float().contiguous() for each in gradients)
        logits, index, entropies, totals = ctx.saved_tensors
        return kernels(logits).log_probs_back(logits, index, entropies, totals, pull, of_entropy,
                                              ctx.temperature), None, None


def log_probs(logits: Tensor, index: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """log π(y) and H of π = softmax(logits / temperature), both with a gradient, in nats. (..., V), (...) -> (...) each

    On CUDA only: one pass over the logits and no copy of them in float32.
    """
    chosen, entropies = _LogProbs.apply(  # type: ignore[no-untyped-call]  # torch's
        logits.reshape(-1, logits.shape[-1]).contiguous(), index.reshape(-1), temperature)
    return chosen.view_as(index), entropies.view_as(index)
