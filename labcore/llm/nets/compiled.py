"""torch.compile for the passes of an update: the trunk of a network, and the measures of its logits.

Shapes are dynamic, so a longer completion needs no new compilation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import nn

from labcore.errors import LabError, first_line


def mark(model: Any, on: bool) -> None:
    """Switch it on or off for a network."""
    model.compiles = on


def marked(model: nn.Module) -> bool:
    """Whether it is on."""
    return getattr(model, "compiles", False)


def check(device: torch.device) -> None:
    """Compile something small. Raises LabError where that is impossible here."""
    try:
        torch.compile(lambda x: x.exp() + 1)(torch.zeros(2, device=device))
    except Exception as error:  # compilers, platforms and versions fail in their own ways
        raise LabError(f"Nothing can be compiled here ({first_line(error)[:200]}): switch compile off, or install a "
                       "C++ compiler.") from error


def trunk_of(model: nn.Module, trunk: nn.Module) -> Callable[..., Any]:
    """The trunk of `model`, compiled where that is switched on."""
    return partial(_compiled(type(trunk).forward), trunk) if marked(model) else trunk


def measure_of(model: nn.Module, measure: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its logits, or a `partial` of one, in the same way."""
    if not marked(model):
        return measure
    if isinstance(measure, partial):
        return partial(_compiled(measure.func), *measure.args, **measure.keywords)
    return _compiled(measure)


@cache  # by the function, so that networks of one class share what is compiled
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)
