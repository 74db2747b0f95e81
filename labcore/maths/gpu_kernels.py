"""Triton kernels of the steps that take a GPU longest: one launch and one pass over memory each.

Imported on a GPU only, by `labcore.maths.gpu`, whose functions say in torch what each kernel computes. All of them
compute in float32, whatever the tensors hold. Sources: online softmax, Milakov & Gimelshein 2018, eq. 3; the race of
exponential numbers, Efraimidis & Spirakis 2006; random numbers are Triton's Philox, seeded by torch's generator.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# Kernels are compiled by Triton, which reads no types.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2E = tl.constexpr(1.4426950408889634)
KEYS, WARPS = 32, 2  # keys that a program of attention reads at once, and its warps
CHUNK, LANES = 4096, 1024  # logits that one program looks at, and at once
PROGRAMS = 512  # of the gradient of a norm, each of which adds up that of the scale for its rows

_started: dict[tuple[Any, ...], Any] = {}


def _start(kernel: Any, grid: tuple[int, ...], *args: Any, num_warps: int, **constants: Any) -> None:
    """`kernel[grid](*args)` with its constants, which are its last parameters.

    Triton takes some 50 µs to find out which of the kernels that it has compiled fits the arguments. One that was
    started before with arguments of the same kinds is started by itself.
    """
    key = kernel, *constants.values(), *map(_kind, args)
    if found := _started.get(key):
        found[(*grid, 1, 1)[:3]](*args, *constants.values())
    else:
        _started[key] = kernel[grid](*args, **constants, num_warps=num_warps)  # Triton's interpreter gives None


def _kind(value: Any) -> Any:
    """The properties of an argument for which Triton compiles a new kernel: of a tensor its type, device and alignment,
    of an integer whether it is 1, a multiple of 16, or below 2³¹."""
    if isinstance(value, Tensor):
        return value.dtype, value.device.index, value.data_ptr() % 16 == 0
    return (value == 1, value % 16 == 0, value < 2**31) if isinstance(value, int) else float


# ---------------------------------------------------------------- attention for one query a row


@triton.jit
def _turned(first, second, cos, sin):
    return first * cos - second * sin, second * cos + first * sin


@triton.jit
def _scores(q1, q2, k1, k2, DOT: tl.constexpr):
    """(R, D/2), (R, D/2), (N, D/2), (N, D/2) -> (R, N)"""
    if DOT:
        return tl.dot(q1.to(k1.dtype), tl.trans(k1), input_precision="ieee") + tl.dot(
            q2.to(k2.dtype), tl.trans(k2), input_precision="ieee")
    return (tl.sum(q1[:, None, :] * k1.to(tl.float32)[None, :, :], 2)
            + tl.sum(q2[:, None, :] * k2.to(tl.float32)[None, :, :], 2))


@triton.jit
def _seen(q1, q2, keys, values, first, stop, top, total, mean,
          D: tl.constexpr, KEYS: tl.constexpr, DOT: tl.constexpr):
    """Attend to the keys and values (·, D) in the rows first … stop as well: online softmax."""
    half, whole, place = tl.arange(0, D // 2), tl.arange(0, D), tl.arange(0, KEYS)
    for start in range(first, stop, KEYS):
        rows = start + place
        there = rows < stop
        at = rows[:, None] * D
        k1 = tl.load(keys + at + half[None, :], mask=there[:, None], other=0.0)
        k2 = tl.load(keys + at + D // 2 + half[None, :], mask=there[:, None], other=0.0)
        v = tl.load(values + at + whole[None, :], mask=there[:, None], other=0.0)
        scores = tl.where(there[None, :], _scores(q1, q2, k1, k2, DOT), float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights, faded = tl.exp2(scores - higher[:, None]), tl.exp2(top - higher)
        if DOT:
            gained = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        else:
            gained = tl.sum(weights[:, :, None] * v.to(tl.float32)[None, :, :], 1)
        mean = mean * faded[:, None] + gained
        total = total * faded + tl.sum(weights, 1)
        top = higher
    return top, total, mean


@triton.jit
def _attend(q, k, v, q_stride, k_stride, v_stride, cos, sin,
            prompt_keys, prompt_values, own_keys, own_values, starts, ended, seen,
            out, scale, width, length, group, heads,
            REPEAT: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, KEYS: tl.constexpr, DOT: tl.constexpr):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    prompt = row // group
    half, whole, member = tl.arange(0, D // 2), tl.arange(0, D), tl.arange(0, ROWS)
    c, s = tl.load(cos + row * (D // 2) + half), tl.load(sin + row * (D // 2) + half)
    # The new key and value, which this program stores for later tokens, and attends to itself.
    of_key = k + row * k_stride + head * D
    k1, k2 = _turned(tl.load(of_key + half).to(tl.float32), tl.load(of_key + D // 2 + half).to(tl.float32), c, s)
    value = tl.load(v + row * v_stride + head * D + whole)
    done = tl.load(seen)
    own = (row * heads + head) * length * D
    at = own + done * D
    k1, k2 = k1.to(own_keys.dtype.element_ty), k2.to(own_keys.dtype.element_ty)
    tl.store(own_keys + at + half, k1)
    tl.store(own_keys + at + D // 2 + half, k2)
    tl.store(own_values + at + whole, value)
    # The queries of all heads that share this key head.
    there = (member < REPEAT)[:, None]
    of_query = q + row * q_stride + (head * REPEAT + member[:, None]) * D + half[None, :]
    q1, q2 = _turned(tl.load(of_query, mask=there, other=0.0).to(tl.float32),
                     tl.load(of_query + D // 2, mask=there, other=0.0).to(tl.float32), c[None, :], s[None, :])
    q1, q2 = q1 * (scale * LOG2E), q2 * (scale * LOG2E)
    top = tl.sum(q1 * k1.to(tl.float32)[None, :], 1) + tl.sum(q2 * k2.to(tl.float32)[None, :], 1)
    total = tl.full([ROWS], 1.0, tl.float32)
    mean = tl.zeros([ROWS, D], tl.float32) + value.to(tl.float32)[None, :]
    over = tl.load(ended + row) != 0  # nobody looks at what comes after the end: read nothing for it
    first, stop = tl.where(over, width, tl.load(starts + prompt)), tl.where(over, 0, done)
    of_prompt = (prompt * heads + head) * width * D
    top, total, mean = _seen(q1, q2, prompt_keys + of_prompt, prompt_values + of_prompt, first, width, top, total, mean,
                             D, KEYS, DOT)
    top, total, mean = _seen(q1, q2, own_keys + own, own_values + own, 0, stop, top, total, mean, D, KEYS, DOT)
    to = out + (row * heads + head) * REPEAT * D + member[:, None] * D + whole[None, :]
    tl.store(to, (mean / total[:, None]).to(out.dtype.element_ty), mask=there)


def attend(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, prompt: tuple[Tensor, Tensor],
           own: tuple[Tensor, Tensor], starts: Tensor, ended: Tensor, seen: Tensor, scale: float) -> Tensor:
    """See `gpu.attend`."""
    (rows, heads, size), (prompts, _, width, _) = k.shape, prompt[0].shape
    repeat = q.shape[1] // heads
    dot = size >= 32 and (repeat > 1 or q.dtype != torch.float32)  # by matrix units
    out = torch.empty((rows, q.shape[1], size), dtype=q.dtype, device=q.device)
    _start(_attend, (rows, heads), q, k, v, q.stride(0), k.stride(0), v.stride(0), cos, sin, *prompt, *own, starts,
           ended, seen, out, scale, width, own[0].shape[2], rows // prompts, heads, REPEAT=repeat,
           ROWS=max(16 if dot else 1, triton.next_power_of_2(repeat)), D=size, KEYS=KEYS, DOT=dot, num_warps=WARPS)
    return out


# ---------------------------------------------------------------- the draw of a token


@triton.jit
def _race(logits, temperature, seed, tops, totals, bests, places, vocabulary,
          chunks, CHUNK: tl.constexpr, LANES: tl.constexpr, GREEDY: tl.constexpr):
    row, chunk = tl.program_id(0), tl.program_id(1)
    lane = tl.arange(0, LANES)
    tau, chance = tl.load(temperature), tl.load(seed)
    top, total = tl.full([LANES], float("-inf"), tl.float32), tl.zeros([LANES], tl.float32)
    best, place = tl.full([LANES], float("-inf"), tl.float32), tl.zeros([LANES], tl.int32)
    base = row.to(tl.int64) * vocabulary
    for start in range(chunk * CHUNK, (chunk + 1) * CHUNK, 4 * LANES):
        numbers = tl.randint4x(chance, (base + start).to(tl.uint32) + lane.to(tl.uint32))
        for part in tl.static_range(4):
            column = start + part * LANES + lane
            z = tl.load(logits + base + column, mask=column < vocabulary, other=float("-inf")).to(tl.float32) / tau
            higher = tl.maximum(top, z)
            total = tl.where(z == float("-inf"), total, total * tl.exp(top - higher) + tl.exp(z - higher))
            top = higher
            score = z
            if not GREEDY:
                # E = −log(1 − u): the smallest E wins, so u has its finest digits there; it is never 0.
                u = (numbers[part].to(tl.uint32).to(tl.float32) + 0.5) * 2.3283064365386963e-10
                wait = tl.where(u < 0.001, u * (1 + u * (0.5 + u * 0.33333333)), -tl.log(1 - u))
                score = z - tl.log(wait)
            place = tl.where(score > best, column, place)
            best = tl.maximum(best, score)
    whole = tl.max(top, 0)
    winner = tl.argmax(best, 0)
    at = row * chunks + chunk
    tl.store(tops + at, whole)
    tl.store(totals + at, tl.sum(total * tl.where(top == float("-inf"), 0.0, tl.exp(top - whole)), 0))
    tl.store(bests + at, tl.max(best, 0))
    tl.store(places + at, tl.sum(tl.where(lane == winner, place, 0), 0))


@triton.jit
def _choose(logits, temperature, tops, totals, bests, places, count, ids,
            logprobs, vocabulary, chunks, CHUNKS: tl.constexpr):
    row, rows, chunk = tl.program_id(0), tl.num_programs(0), tl.arange(0, CHUNKS)
    at, there = row * chunks + chunk, chunk < chunks
    top = tl.load(tops + at, mask=there, other=float("-inf"))
    highest = tl.max(top, 0)
    total = tl.sum(tl.load(totals + at, mask=there, other=0.0) * tl.exp(top - highest), 0)
    winner = tl.argmax(tl.load(bests + at, mask=there, other=float("-inf")), 0)
    token = tl.load(places + row * chunks + winner)
    z = tl.load(logits + row.to(tl.int64) * vocabulary + token).to(tl.float32) / tl.load(temperature)
    to = tl.load(count) * rows + row
    tl.store(ids + to, token.to(tl.int64))
    tl.store(logprobs + to, z - highest - tl.log(total))


def choose(logits: Tensor, temperature: Tensor, seed: Tensor, count: Tensor, ids: Tensor, logprobs: Tensor,
           greedy: bool) -> None:
    """See `gpu.choose`."""
    logits, (rows, vocabulary) = logits.contiguous(), logits.shape
    chunks = triton.cdiv(vocabulary, CHUNK)
    tops, totals, bests = torch.empty((3, rows, chunks), dtype=torch.float32, device=logits.device)
    places = torch.empty((rows, chunks), dtype=torch.int32, device=logits.device)
    _start(_race, (rows, chunks), logits, temperature, seed, tops, totals, bests, places, vocabulary, chunks,
           CHUNK=CHUNK, LANES=LANES, GREEDY=greedy, num_warps=8)
    _start(_choose, (rows,), logits, temperature, tops, totals, bests, places, count, ids, logprobs, vocabulary, chunks,
           CHUNKS=triton.next_power_of_2(chunks), num_warps=1)


# ---------------------------------------------------------------- between the products of a layer


@triton.jit
def _add_norm(x, delta, scale, added, out, size, eps, SIZE: tl.constexpr,
              ADDS: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    there = column < size
    value = tl.load(x + row * size + column, mask=there, other=0.0).to(tl.float32)
    if ADDS:
        value += tl.load(delta + row * size + column, mask=there, other=0.0).to(tl.float32)
        kept = value.to(added.dtype.element_ty)
        tl.store(added + row * size + column, kept, mask=there)
        value = kept.to(tl.float32)
    spread = tl.rsqrt(tl.sum(value * value, 0) / size + eps)
    weight = tl.load(scale + column, mask=there, other=0.0).to(tl.float32)
    tl.store(out + row * size + column, (value * spread * weight).to(out.dtype.element_ty), mask=there)


def add_norm(x: Tensor, delta: Tensor | None, scale: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """See `gpu.add_norm`."""
    x = x.contiguous()  # heads may stand in a product with others
    out, added = torch.empty_like(x), x if delta is None else torch.empty_like(x)
    size = x.shape[-1]
    _start(_add_norm, (x.numel() // size,), x, x if delta is None else delta, scale, added, out, size, eps,
           SIZE=triton.next_power_of_2(size), ADDS=delta is not None, num_warps=4)
    return added, out


@triton.jit
def _add_norm_back(past, pull, x, scale, out, of_scale, rows, size, eps, SIZE: tl.constexpr):
    program, programs, column = tl.program_id(0), tl.num_programs(0), tl.arange(0, SIZE)
    there = column < size
    weight = tl.load(scale + column, mask=there, other=0.0).to(tl.float32)
    gained, at = tl.zeros([SIZE], tl.float32), program.to(tl.int64) * size + column
    for _row in range(program, rows, programs):
        value = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
        g = tl.load(pull + at, mask=there, other=0.0).to(tl.float32)
        spread = tl.rsqrt(tl.sum(value * value, 0) / size + eps)
        unit = value * spread  # y = w · unit, and ∂unit_i/∂x_j = spread (1[i = j] − unit_i unit_j / H)
        slope = g * weight
        slope = spread * (slope - unit * (tl.sum(slope * unit, 0) / size))
        slope += tl.load(past + at, mask=there, other=0.0).to(tl.float32)
        gained += g * unit
        tl.store(out + at, slope.to(out.dtype.element_ty), mask=there)
        at += programs * size
    tl.store(of_scale + program * size + column, gained, mask=there)


def add_norm_back(past: Tensor, pull: Tensor, x: Tensor, scale: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The gradients of the added term, (N, H), and the scale, (H,), from those of the sum x and its norm, (N, H) each.
    """
    rows, size = x.shape
    out, programs = torch.empty_like(x), min(rows, PROGRAMS)
    of_scale = torch.empty((programs, size), dtype=torch.float32, device=x.device)
    _start(_add_norm_back, (programs,), past.contiguous(), pull, x, scale, out, of_scale, rows, size, eps,
           SIZE=triton.next_power_of_2(size), num_warps=4)
    return out, of_scale.sum(0).to(scale.dtype)


@triton.jit
def _swiglu(gate, up, gate_stride, up_stride, out, size, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < size
    g = tl.load(gate + row * gate_stride + column, mask=there, other=0.0).to(tl.float32)
    u = tl.load(up + row * up_stride + column, mask=there, other=0.0).to(tl.float32)
    tl.store(out + row * size + column, (g * tl.sigmoid(g) * u).to(out.dtype.element_ty), mask=there)


@triton.jit
def _swiglu_back(gate, up, gate_stride, up_stride, pull, of_gate, of_up, of_stride, out, size, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < size
    g = tl.load(gate + row * gate_stride + column, mask=there, other=0.0).to(tl.float32)
    u = tl.load(up + row * up_stride + column, mask=there, other=0.0).to(tl.float32)
    d = tl.load(pull + row * size + column, mask=there, other=0.0).to(tl.float32)
    s = tl.sigmoid(g)
    tl.store(of_gate + row * of_stride + column, (d * u * s * (1 + g * (1 - s))).to(of_gate.dtype.element_ty),
             mask=there)
    tl.store(of_up + row * of_stride + column, (d * g * s).to(of_up.dtype.element_ty), mask=there)
    tl.store(out + row * size + column, (g * s * u).to(out.dtype.element_ty), mask=there)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) · up of rows with any distance between them. (N, I) each"""
    rows, size = gate.shape
    out = torch.empty((rows, size), dtype=gate.dtype, device=gate.device)
    _start(_swiglu, (rows, triton.cdiv(size, 1024)), gate, up, gate.stride(0), up.stride(0), out, size, BLOCK=1024,
           num_warps=4)
    return out


def swiglu_back(gate: Tensor, up: Tensor, pull: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of gate and up, side by side, from that of the result; and the result, computed again. (N, I) each
    -> (N, 2I), (N, I)"""
    rows, size = gate.shape
    slopes, out = torch.empty((rows, 2 * size), dtype=gate.dtype, device=gate.device), torch.empty_like(pull)
    _start(_swiglu_back, (rows, triton.cdiv(size, 1024)), gate, up, gate.stride(0), up.stride(0), pull, slopes,
           slopes[:, size:], 2 * size, out, size, BLOCK=1024, num_warps=4)
    return slopes, out


@triton.jit
def _turn(x, cos, sin, heads, stride, sign, HEADS: tl.constexpr, HALF: tl.constexpr):
    token, head, half = tl.program_id(0).to(tl.int64), tl.arange(0, HEADS)[:, None], tl.arange(0, HALF)[None, :]
    at, there = token * stride + head * 2 * HALF + half, head < heads
    c, s = tl.load(cos + token * HALF + half), tl.load(sin + token * HALF + half) * sign
    first, second = _turned(tl.load(x + at, mask=there, other=0.0).to(tl.float32),
                            tl.load(x + at + HALF, mask=there, other=0.0).to(tl.float32), c, s)
    tl.store(x + at, first.to(x.dtype.element_ty), mask=there)
    tl.store(x + at + HALF, second.to(x.dtype.element_ty), mask=there)


def turn_(x: Tensor, heads: int, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
    """Turn the first `heads` heads of x (N, …, D) contiguous in place, by the angles of cos and sin (N, D/2), or back
    (sign −1)."""
    _start(_turn, (len(x),), x, cos, sin, heads, x.stride(0), sign, HEADS=triton.next_power_of_2(heads),
           HALF=x.shape[2] // 2, num_warps=4)
    return x


# ---------------------------------------------------------------- log-probs and entropy of given tokens


@triton.jit
def _log_probs(logits, index, chosen, entropies, totals, temperature, vocabulary,
               LANES: tl.constexpr):
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, LANES)
    top = tl.full([LANES], float("-inf"), tl.float32)
    total, moment = tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.float32)
    for start in range(0, vocabulary, LANES):
        column = start + lane
        there = column < vocabulary
        z = tl.load(logits + row * vocabulary + column, mask=there, other=float("-inf")).to(tl.float32) / temperature
        higher = tl.maximum(top, z)
        empty = z == float("-inf")
        faded, weight = tl.exp(top - higher), tl.exp(z - higher)
        total = tl.where(empty, total, total * faded + weight)
        moment = tl.where(empty, moment, tl.where(top == float("-inf"), 0.0, moment * faded) + weight * z)
        top = higher
    highest = tl.max(top, 0)
    faded = tl.where(top == float("-inf"), 0.0, tl.exp(top - highest))
    mass = tl.sum(total * faded, 0)
    log_total = highest + tl.log(mass)
    z = tl.load(logits + row * vocabulary + tl.load(index + row)).to(tl.float32) / temperature
    tl.store(chosen + row, z - log_total)
    tl.store(entropies + row, log_total - tl.sum(moment * faded, 0) / mass)
    tl.store(totals + row, log_total)


@triton.jit
def _log_probs_back(logits, index, entropies, totals, pull, of_entropy, out,
                    temperature, vocabulary, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = column < vocabulary
    log_p = tl.load(logits + row * vocabulary + column, mask=there, other=0.0).to(tl.float32) / temperature - tl.load(
        totals + row)
    p, g = tl.exp(log_p), tl.load(pull + row)
    # ∂log π(y)/∂z_v = 1[v = y] − π_v and ∂H/∂z_v = −π_v (log π_v + H)
    slope = tl.where(column == tl.load(index + row), g, 0.0) - g * p
    slope -= tl.load(of_entropy + row) * tl.where(p > 0, p * (log_p + tl.load(entropies + row)), 0.0)
    tl.store(out + row * vocabulary + column, (slope / temperature).to(out.dtype.element_ty), mask=there)


def log_probs(logits: Tensor, index: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """log π(y), H and log Σ e^z of logits (N, V) / temperature at tokens (N,). (N,) each, nats"""
    chosen, entropies, totals = torch.empty((3, len(logits)), dtype=torch.float32, device=logits.device)
    if len(logits):
        _start(_log_probs, (len(logits),), logits, index, chosen, entropies, totals, temperature, logits.shape[1],
               LANES=2048, num_warps=8)
    return chosen, entropies, totals


def log_probs_back(logits: Tensor, index: Tensor, entropies: Tensor, totals: Tensor, pull: Tensor, of_entropy: Tensor,
                   temperature: float) -> Tensor:
    """The gradient for the logits, from those of log π(y) and of H."""
    out = torch.empty_like(logits)
    if len(logits):
        _start(_log_probs_back, (len(logits), triton.cdiv(logits.shape[1], 4096)), logits, index, entropies, totals,
               pull, of_entropy, out, temperature, logits.shape[1], BLOCK=4096, num_warps=8)
    return out
