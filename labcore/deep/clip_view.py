"""What the clip does with the steps of a batch: which of them it cuts off, and its curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from labcore.maths.diagram import curve, sides
from labcore.maths.surrogates import clip, clip_cut


def clip_view(found: Mapping[str, list[float]], clip_low: float, clip_high: float) -> dict[str, Any]:
    """`found` ({"ratio", "advantage"}, as `ratios` makes it) with its cut sides, and the surrogate's curve."""
    ratio, advantages = (torch.tensor(found[key], dtype=torch.float64) for key in ("ratio", "advantage"))
    bounds = {"clip_low": clip_low, "clip_high": clip_high}
    return {"ratios": {**found, "cut": sides(clip_cut(ratio, advantages, **bounds), ratio)},
            "surrogate": curve(clip, bounds, ratio)}
