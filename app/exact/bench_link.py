"""The link parameters of the estimator bench: its rows, a knob with its values, the number of batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from app import link
from app.link import Fault, param
from labcore.catalog import choices, kinds
from labcore.llm.sizing import bench
from labcore.runs.spec.run_spec import RunSpec, knobs_of

TABLE = kinds.kind("exact")
BATCHES = (50, 100, 200, 500)
MOST = 8  # algorithms at once
# The knobs that the page offers, each with values that show what it does.
VALUES: dict[str, tuple[Any, ...]] = {
    "group_size": (2, 4, 8, 16), "beta": (0.0, 0.1, 0.2, 0.5), "temperature": (0.7, 1.0, 1.3),
    "updates_per_batch": (1, 2, 4), "clip_high": (0.05, 0.2, 1.0), "gae_lambda": (0.0, 0.5, 0.9, 1.0),
    "normalisation": choices.NORMALISATION.names, "aggregation": choices.AGGREGATION.names,
    "pairs_per_step": (4, 16, 64)}
WITH = {"clip_high": {"updates_per_batch": 4}}  # what a knob needs beside it to do anything


@dataclass(frozen=True)
class Bench:
    """What is asked of the bench; without `algorithms` nothing is."""

    algorithms: tuple[str, ...] = param((), link.some_of(TABLE.algorithms))
    knob: str = param("", link.one_of(tuple(VALUES)))
    batches: int = param(100, link.whole(among=BATCHES))
    critic: str = param(bench.CRITICS[0], link.one_of(bench.CRITICS))

    def to_text(self) -> str:
        """What is no default, as "algorithms=rloo,grpo;knob=beta"."""
        return ";".join(f"{key}={said}" for key, said in link.written(self).items())

    def spec(self, run: RunSpec) -> Any:
        """The job that measures it on a run's problem and model."""
        own = {knob.key: run.knobs[knob.key] for knob in run.task_row.knobs}
        knobs = {**own, "max_new_tokens": run.knobs["max_new_tokens"], **WITH.get(self.knob, {})}
        model = run.model if run.model in TABLE.models else TABLE.model
        return bench.asked(self.algorithms, knob=self.knob, values=VALUES.get(self.knob, ()), batches=self.batches,
                           task=run.task, model=model, knobs=knobs, critic=self.critic)


def read(text: str) -> tuple[Bench, list[Fault]]:
    """What a link asks for, and what of it cannot be."""
    parts = {key: said for key, _, said in (part.partition("=") for part in text.split(";") if part)}
    asked, faults = link.read(Bench, parts)
    faults += [Fault(key, said, "there is no such choice") for key, said in parts.items() if key not in vars(Bench())]
    return replace(asked, algorithms=asked.algorithms[:MOST]), faults


def lacking(algorithms: Sequence[str], knob: str, run: RunSpec) -> list[str]:
    """The labels of those algorithms that have not the knob."""
    rows = [TABLE.algorithms[key] for key in algorithms]
    return [row.label for row in rows if knob and knob not in {each.key for each in knobs_of(row, run.task_row)}]
