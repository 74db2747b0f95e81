"""A surrogate as a picture: its curve over the ratio, and which tokens it cuts off. For people to look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from labcore.maths.call import call

POINTS = 121
FURTHEST = 3.0  # the largest ratio that is drawn
USUAL = 0.2  # how far from 1 a surrogate without bounds is drawn at least, thrice


def curve(surrogate: Callable[..., Tensor], knobs: Mapping[str, Any], ratio: Tensor) -> dict[str, list[float]]:
    """S(ρ, A)/|A| for A = 1 and A = −1, over all of `ratio`, any shape, and at least thrice ε on both sides of 1.

    {"ratio", "positive", "negative"} of as many points, and "bounds": 1 − ε_low and 1 + ε_high where `knobs` have them,
    which are points of the curve. `surrogate` is a function of ratio and advantages alone.
    """
    bounds = [1 + sign * float(knobs[key]) for key, sign in (("clip_low", -1), ("clip_high", 1)) if key in knobs]
    wide = max((abs(bound - 1) for bound in bounds), default=USUAL) or 0.002
    left = max(0.0, min(1 - 3 * wide, float(ratio.min())) - wide / 4)
    right = min(FURTHEST, max(1 + 3 * wide, float(ratio.max())) + wide / 4)
    inside = [bound for bound in bounds if left < bound < right]
    grid = torch.cat([torch.linspace(left, right, POINTS, dtype=torch.float64),
                      torch.tensor(inside, dtype=torch.float64)]).sort().values
    curves = {name: call(surrogate, knobs, {"ratio": grid, "advantages": torch.full_like(grid, sign)})
              for name, sign in (("positive", 1.0), ("negative", -1.0))}
    return {"ratio": _listed(grid), **{name: _listed(values) for name, values in curves.items()}, "bounds": bounds}


def sides(cut: Mapping[str, Tensor], like: Tensor) -> list[Any]:
    """The side on which each token is cut off, "low", "high" or "": nested lists of the shape of `like`.

    `cut` is {side: bool}, of that shape or one that expands to it; empty where nothing is cut off.
    """
    names = ["", *cut]
    number = torch.zeros(like.shape, dtype=torch.long, device=like.device)
    for place, tokens in enumerate(cut.values(), 1):
        number = number.masked_fill(tokens.expand(like.shape), place)
    named: list[Any] = _named(number.tolist(), names)
    return named


def _named(numbers: Any, names: list[str]) -> Any:
    return [_named(each, names) for each in numbers] if isinstance(numbers, list) else names[numbers]


def _listed(values: Tensor) -> list[float]:
    rounded: list[float] = values.numpy().round(6).tolist()
    return rounded
