"""What of a link is the affair of the view "One batch": which batch it is, and what is done to it first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from labcore.catalog.algorithms import ALGORITHMS
from labcore.runs.spec import WHOLE

ONLINE = tuple(key for key, row in ALGORITHMS.items() if row.loop == "online")
UPDATES, OTHERS = (0, 1, 2, 4), (128, 256, 512, 1024, 2048)
BOUNDS = {"prompts": (2, 256), "group_size": (2, 32), "seed": WHOLE["seed"]}


@dataclass(frozen=True)
class Batch:
    """The job's spec, but for an empty `model` or `stepper`, for which the runs decide."""

    model: str = ""
    updates: int = 0
    stepper: str = ""
    prompts: int = 16
    group_size: int = 8
    seed: int = 0
    eval_prompts: int = 512

    def to_text(self) -> str:
        """What is no default, as "updates=2;stepper=ppo"."""
        return ";".join(f"{key}={value}" for key, value in vars(self).items() if value != getattr(Batch(), key))

    def spec(self) -> dict[str, Any]:
        """The job that makes it."""
        given = dict(vars(self))
        if not (self.updates and self.stepper):
            del given["stepper"]
        return {"job": "one_batch", **given}


def of(text: str, models: Sequence[str]) -> Batch:
    """The batch that a link names, from one of `models`; what cannot be is left at its default."""
    batch = Batch()
    for key, _, value in (part.partition("=") for part in text.split(";")):
        if key == "model" and value in models:
            batch = replace(batch, model=value)
        elif key == "stepper" and value in ONLINE:
            batch = replace(batch, stepper=value)
        elif value.isdecimal() and len(value) < 12 and _fits(key, int(value)):
            batch = replace(batch, **{key: int(value)})
    return batch if batch.model else replace(batch, model=models[0])


def _fits(key: str, value: int) -> bool:
    if key in BOUNDS:
        return BOUNDS[key][0] <= value <= BOUNDS[key][1]
    return value in {"updates": UPDATES, "eval_prompts": OTHERS}.get(key, ())
