"""How near a step comes to the speed of matrix products alone: `--roofline` of `grpo_step` and `method_steps`.

The operations of the last step of the warm-up are counted by `torch.utils.flop_counter`: of products and attention, in
the forward and the backward pass. The peak is that of a large product in the same process, dtype and number of threads,
by processor time. Operations over peak is the time below which no step with these products can fall.
"""

from __future__ import annotations

import time

import torch
from torch.utils.flop_counter import FlopCounterMode

SIDE, TRIES = 1024, 5  # of the square matrices; the fastest product counts


class Counter:
    """Counts the operations from its making on."""

    def __init__(self) -> None:
        self._mode = FlopCounterMode(display=False)
        self._mode.__enter__()

    def stop(self) -> int:
        """The floating-point operations since then; a multiplication and an addition are two."""
        self._mode.__exit__(None, None, None)
        return int(self._mode.get_total_flops())


def peak(dtype: torch.dtype, side: int = SIDE) -> float:
    """Operations in a second of processor time, by the fastest of some products of two square matrices."""
    left, right = torch.rand(2, side, side).to(dtype)
    seconds = []
    for _ in range(TRIES):
        begun = time.process_time()
        left @ right
        seconds.append(time.process_time() - begun)
    return 2 * side ** 3 / min(seconds)
