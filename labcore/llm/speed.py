"""Measure how fast this machine multiplies by matrices of the sizes of a model's layers; step times are estimated from
it.

The matrices are random, so no model is loaded. Each product reads weights that are not in the processor's cache, as in
a model, where every layer has its own weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from labcore.device import pick_device
from labcore.spec import activity

ROWS = (1, 4, 16, 64, 256)  # that are decoded together, and the last of them tokens of a pass
CACHES = 128 * 2**20  # bytes, more than the caches of a processor hold
SECONDS = 0.1  # that each size is tried
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@torch.no_grad()
def speed(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The job `speed` of the sizes of a layer, as `labcore.jobs.step_time.speed_asked` writes them.

    {"rows": ROWS, "layer": [...], "head": [...]}, seconds that so many rows take by a layer's weights and by the head.
    """
    device, dtype = pick_device(spec["device"]), DTYPES[spec["dtype"]]
    hidden, inner = int(spec["hidden"]), int(spec["inner"])
    shapes = ((spec["queries"] + 2 * spec["keys"], hidden), (hidden, spec["queries"]), (2 * inner, hidden),
              (hidden, inner))
    make = partial(torch.rand, device=device, dtype=dtype)
    size = sum(out * width for out, width in shapes) * dtype.itemsize
    layers = [[make(shape) for shape in shapes] for _ in range(ceil(CACHES / size))]
    head = [[make((int(spec["vocabulary"]), hidden))]]
    if device.type == "cpu":
        layer_rows, head_rows = _by_threads(layers, head, int(spec["threads"]))
    else:
        layer_rows, head_rows = ([_seconds(weights, rows, time.perf_counter) for rows in ROWS]
                                 for weights in (layers, head))
    return {"rows": list(ROWS), "layer": layer_rows, "head": head_rows}


def _by_threads(layers: list[list[Tensor]], head: list[list[Tensor]], threads: int) -> list[list[float]]:
    """Seconds on a processor: by the clock, but never more than one thread takes of the processor's time, which other
    programs do not change."""
    torch.set_num_threads(1)
    alone = [[_seconds(weights, rows, time.thread_time) for rows in ROWS] for weights in (layers, head)]
    if threads == 1:
        return alone
    torch.set_num_threads(threads)
    return [[min(one, _seconds(weights, rows, time.perf_counter)) for one, rows in zip(ones, ROWS, strict=True)]
            for ones, weights in zip(alone, (layers, head), strict=True)]


def _seconds(groups: list[list[Tensor]], rows: int, clock: Callable[[], float]) -> float:
    """The least time that the products of `rows` rows by all weights of a group take; the groups take turns."""
    activity.report(f"measuring the speed of this machine with {rows} row{'s' if rows > 1 else ''}")
    inputs = {weight.shape[1]: torch.rand(rows, weight.shape[1], device=weight.device, dtype=weight.dtype)
              for weight in groups[0]}
    best, begun, count = float("inf"), clock(), 0
    while count <= len(groups) or clock() - begun < SECONDS:
        since = clock()
        for weight in groups[count % len(groups)]:
            F.linear(inputs[weight.shape[1]], weight)
        if groups[0][0].is_cuda:
            torch.cuda.synchronize()
        count += 1
        if count > 1:  # the first one also wakes what sleeps
            best = min(best, clock() - since)
    return best
