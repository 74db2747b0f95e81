"""How near a step comes to the speed of matrix products alone: `--roofline` of `grpo_step` and `method_steps`.

The operations of the last step of the warm-up are counted by `torch.utils.flop_counter`: of products and attention, in
the forward and the backward pass. The peak is that of a large product in the same process, dtype and number of threads,
by processor time. Operations over peak is the time below which no step with these products can fall.

The products of a step are smaller than the large one. So each of them is also repeated several times by itself, and its
fastest time counts. The time of the step minus the sum of these times is the most that an implementation with the same
products can save.
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

SIDE, TRIES = 1024, 5  # of the square matrices; the fastest product counts
PRODUCTS = {"aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm", "aten::baddbmm"}
Shape = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]  # sizes, strides and type of a matrix


class _Products(TorchDispatchMode):
    """Counts matrix products by operation and shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Counts[tuple[Any, tuple[Shape, ...]]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name in PRODUCTS:
            self.found[func.overloadpacket, tuple((tuple(each.shape), each.stride(), each.dtype)
                                                  for each in args if isinstance(each, Tensor))] += 1
        return func(*args, **kwargs or {})


class Counter:
    """Counts the operations from its making on."""

    def __init__(self) -> None:
        self._mode, self._products = FlopCounterMode(display=False), _Products()
        self._mode.__enter__()
        self._products.__enter__()

    def stop(self) -> int:
        """The floating-point operations since then; a multiplication and an addition are two."""
        self._products.__exit__(None, None, None)
        self._mode.__exit__(None, None, None)
        return int(self._mode.get_total_flops())

    @torch.no_grad()
    def alone(self) -> float:
        """Repeat the counted products by themselves and return their processor time in seconds."""
        found = 0.0
        for (operation, shapes), count in self._products.found.items():
            given = [_filled(*shape) for shape in shapes]
            found += count * fastest(partial(operation, *given))
        return found


def _filled(sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    room = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return torch.rand(room).to(dtype).as_strided(sizes, strides)


def fastest(do: Callable[[], Any]) -> float:
    """The least processor time of several calls, in seconds."""
    seconds = []
    for _ in range(TRIES):
        begun = time.process_time()
        do()
        seconds.append(time.process_time() - begun)
    return min(seconds)


def peak(dtype: torch.dtype, side: int = SIDE) -> float:
    """Floating-point operations per second of processor time, from the fastest of several square matrix products."""
    left, right = torch.rand(2, side, side).to(dtype)
    return 2 * side ** 3 / fastest(lambda: left @ right)
