"""Report the forward and backward pass of a large batch layer by layer, so that progress is visible every few seconds.

Only layers whose products take some hundredths of a second report, so passes of small models cost nothing extra.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from labcore.llm.nets import compiled, recompute
from labcore.runs.spec.activity import report

LEAST = 2**28  # multiplications of a layer: tokens · 12 H²


def passed(x: Tensor, number: int, count: int) -> None:
    """Report that layer `number` of `count`, from 1, gave `x` (…, H); the gradient of `x` will report as well."""
    if 12 * x.numel() * x.shape[-1] < LEAST:
        return
    report("layer {} of {}", number, count)
    if x.requires_grad:
        x.register_hook(partial(_back, number, count))


def _back(number: int, count: int, _gradient: Tensor) -> None:
    report("backward pass, layer {} of {}", number, count)


@contextmanager
def reported(model: nn.Module) -> Iterator[None]:
    """Within it the layers of a network of transformers' own code report; not compiled ones, whose graphs it would cut.
    """
    layers = [] if compiled.marked(model) else recompute.layers(model)
    hooks = [layer.register_forward_hook(partial(_hook, place, len(layers))) for place, layer in enumerate(layers, 1)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _hook(number: int, count: int, _layer: nn.Module, _given: Any, output: Any) -> None:
    x = output[0] if isinstance(output, tuple) else output
    if isinstance(x, Tensor):
        passed(x, number, count)
