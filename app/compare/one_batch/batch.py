"""The link parameters of the view "One batch": which batch, and the updates made on it first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from app import link
from app.link import Fault, param
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.runs.spec.checks import WHOLE

ONLINE = tuple(key for key, row in ALGORITHMS.items() if row.loop == "online")
UPDATES, OTHERS = (0, 1, 2, 4), (128, 256, 512, 1024, 2048)
BOUNDS = {"prompts": (2, 256), "group_size": (2, 32), "seed": WHOLE["seed"]}
MOST = 8  # algorithms whose numbers can be read side by side
FEW = 4  # algorithms that are compared where the runs name only one
LOOKED, USUAL, MOST_LOOKED = ("first", "second"), -1, 99  # the completions whose tokens are looked at, by their places


@dataclass(frozen=True)
class Batch:
    """The job's spec, except for an empty `model`, `stepper` or `algorithms`, for which the runs decide, and LOOKED."""

    model: str = param("")
    updates: int = param(0, link.whole(among=UPDATES))
    stepper: str = param("", link.one_of(ONLINE))
    algorithms: tuple[str, ...] = param((), link.some_of(ONLINE))
    prompts: int = param(16, link.whole(*BOUNDS["prompts"]))
    group_size: int = param(8, link.whole(*BOUNDS["group_size"]))
    seed: int = param(0, link.whole(*BOUNDS["seed"]))
    eval_prompts: int = param(512, link.whole(among=OTHERS))
    first: int = param(USUAL, link.whole(0, MOST_LOOKED))
    second: int = param(USUAL, link.whole(0, MOST_LOOKED))

    def to_text(self) -> str:
        """The settings that are not defaults, as "updates=2;stepper=ppo"."""
        return ";".join(f"{key}={said}" for key, said in link.written(self).items())

    def spec(self) -> dict[str, Any]:
        """The job that makes it."""
        given = {key: value for key, value in vars(self).items() if key not in LOOKED}
        if not (self.updates and self.stepper):
            del given["stepper"]
        return {"job": "one_batch", **given, "algorithms": list(self.algorithms)}


def to_compare(compared: Sequence[str]) -> tuple[str, ...]:
    """The algorithms to compare where none is chosen: the online ones of the runs that are `compared`. Beside a single
    one, or none, a few others."""
    own = tuple(dict.fromkeys(key for key in compared if key in ONLINE))
    return own[:MOST] if len(own) > 1 else tuple(dict.fromkeys([*own, *ONLINE]))[:FEW]


def read(text: str, models: Sequence[str]) -> tuple[Batch, list[Fault]]:
    """The batch that a link names, with no model where it names none of `models`, and what of it cannot be."""
    parts = {key: said for key, _, said in (part.partition("=") for part in text.split(";") if part)}
    batch, faults = link.read(Batch, parts)
    faults += [Fault(key, said, "there is no such choice") for key, said in parts.items() if key not in vars(Batch())]
    if len(batch.algorithms) > MOST:
        faults.append(Fault("algorithms", parts["algorithms"], f"choose at most {MOST}", True))
        batch = replace(batch, algorithms=batch.algorithms[:MOST])
    if batch.model and batch.model not in models:
        faults.append(Fault("model", batch.model, f"choose one of {', '.join(models)}"))
        batch = replace(batch, model="")
    return batch, faults


def of(text: str, models: Sequence[str], algorithms: Sequence[str] = ()) -> Batch:
    """The batch that a text names; by default on the first of `models`, with these `algorithms`."""
    batch, _ = read(text, models)
    return replace(batch, model=batch.model or models[0], algorithms=batch.algorithms or tuple(algorithms))
