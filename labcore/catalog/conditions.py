"""Conditions on the knobs of a language model's run, used by rules and cautions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Values = Mapping[str, Any]

ONE_UPDATE = "one update per batch, so every ratio is 1"


def updates(values: Values) -> int:
    """Optimizer updates of each batch; a row without these knobs makes one."""
    return int(values.get("updates_per_batch", 1)) * int(values.get("mini_batches", 1))


def one_update(values: Values) -> bool:
    """True if an online run makes one update of each batch."""
    return "surrogate" in values and updates(values) == 1


def kl_in(values: Values, placement: str) -> bool:
    """True if β × KL enters at `placement`, "reward" or "loss"."""
    return bool(values["kl_placement"] == placement and values["beta"] > 0)
