"""What of a link is the affair of the view "One batch": which batch it is, and what is done to it first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.spec.run_spec import WHOLE

ONLINE = tuple(key for key, row in ALGORITHMS.items() if row.loop == "online")
UPDATES, OTHERS = (0, 1, 2, 4), (128, 256, 512, 1024, 2048)
BOUNDS = {"prompts": (2, 256), "group_size": (2, 32), "seed": WHOLE["seed"]}
LOOKED, USUAL, MOST_LOOKED = ("first", "second"), -1, 99  # the completions whose tokens are looked at, by their places


@dataclass(frozen=True)
class Batch:
    """The job's spec, but for an empty `model` or `stepper`, for which the runs decide, and for LOOKED."""

    model: str = ""
    updates: int = 0
    stepper: str = ""
    prompts: int = 16
    group_size: int = 8
    seed: int = 0
    eval_prompts: int = 512
    first: int = USUAL
    second: int = USUAL

    def to_text(self) -> str:
        """What is no default, as "updates=2;stepper=ppo"."""
        return ";".join(f"{key}={value}" for key, value in vars(self).items() if value != getattr(Batch(), key))

    def spec(self) -> dict[str, Any]:
        """The job that makes it."""
        given = {key: value for key, value in vars(self).items() if key not in LOOKED}
        if not (self.updates and self.stepper):
            del given["stepper"]
        return {"job": "one_batch", **given}


def of(text: str, models: Sequence[str]) -> Batch:
    """The batch that a link names, from one of `models`; what cannot be is left at its default."""
    batch = read(text, models)
    return batch if batch.model else replace(batch, model=models[0])


def read(text: str, models: Sequence[str]) -> Batch:
    """The same, with no model where the link names none of them."""
    batch = Batch()
    for key, _, value in (part.partition("=") for part in text.split(";")):
        if _can(key, value, models):
            batch = replace(batch, **{key: value if key in ("model", "stepper") else int(value)})
    return batch


def faults(text: str, models: Sequence[str]) -> list[str]:
    """A sentence for each part of the link that cannot be."""
    parts = [part for part in text.split(";") if part]
    return [f"The link asks for a batch with {part!r}, which cannot be: {_able(part.partition('=')[0], models)}."
            for part in parts if not _can(*part.partition("=")[::2], models)]


def _can(key: str, value: str, models: Sequence[str]) -> bool:
    if key == "model":
        return value in models
    if key == "stepper":
        return value in ONLINE
    return value.isdecimal() and len(value) < 12 and _fits(key, int(value))


def _able(key: str, models: Sequence[str]) -> str:
    """What can be said of `key`, to end a sentence."""
    if key in BOUNDS:
        return f"use a whole number from {BOUNDS[key][0]} to {BOUNDS[key][1]}"
    if key in LOOKED:
        return f"use a whole number from 0 to {MOST_LOOKED}"
    able = {"model": models, "stepper": ONLINE, "updates": UPDATES, "eval_prompts": OTHERS}.get(key)
    return f"choose one of {', '.join(map(str, able))}" if able else f"there is no {key!r} to choose"


def _fits(key: str, value: int) -> bool:
    if key in LOOKED:
        return value <= MOST_LOOKED
    if key in BOUNDS:
        return BOUNDS[key][0] <= value <= BOUNDS[key][1]
    return value in {"updates": UPDATES, "eval_prompts": OTHERS}.get(key, ())
