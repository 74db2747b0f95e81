"""Conditions on the knobs of a language model's run, used by rules and cautions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Values = Mapping[str, Any]

SAME_DTYPE = "same"  # the sampler has the weights of the trainer
ONE_UPDATE = "one update per batch, so every ratio is 1"


def updates(values: Values) -> int:
    """Optimizer updates of each batch; a row without these knobs makes one."""
    return int(values.get("updates_per_batch", 1)) * int(values.get("mini_batches", 1))


def one_update(values: Values) -> bool:
    """True if an online run makes one update of each batch, which the policy of that moment has sampled: unless the old
    log-probs are its own anyway, because the trainer recomputes them."""
    fresh = not off_policy(values) or values.get("importance_cap") or values.get("recompute_logprobs")
    return "surrogate" in values and updates(values) == 1 and bool(fresh)


def delayed(values: Values) -> bool:
    """True if an online run learns from completions of earlier steps."""
    return bool(values.get("staleness") or values.get("replay_share"))


def off_policy(values: Values) -> bool:
    """True if an online run learns from completions that were not sampled by the policy's present weights, but by older
    or rounded ones."""
    return delayed(values) or values.get("sampler_dtype", SAME_DTYPE) != SAME_DTYPE


def kl_in(values: Values, placement: str) -> bool:
    """True if β × KL enters at `placement`, "reward" or "loss"."""
    return bool(values["kl_placement"] == placement and values["beta"] > 0)
