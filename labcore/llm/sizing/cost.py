"""The costs of algorithms side by side: the jobs that measure them, and their table. Imports no torch."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from labcore.catalog import kinds
from labcore.errors import LabError
from labcore.llm.sizing import passes as held
from labcore.llm.sizing.pace import setting
from labcore.runs import jobs, versions
from labcore.runs.spec.run_spec import RunSpec, knobs_of, make

BESIDE = "ppo"  # the row that the others are compared with
USUAL = (BESIDE, "grpo", "rloo", "reinforce", "dpo", "simpo", "reward_model", "sft")
_SHARED = ("dtype", "lora_rank", "lora_alpha", "gradient_checkpointing", "optimizer", "compile")
_PROCESS = ("threads", "instructions")  # of the process that asks, not of the one that measures


@dataclass(frozen=True)
class Row:
    """One algorithm in the table of costs. `held`: the networks in memory, {"name", "parameters", "learnt"} each, from
    the job `models_held`. `measured`: the result of the job `cost`, None before it has run. `fault`: the reason why
    nothing can be counted or measured."""

    spec: RunSpec
    held: Sequence[Mapping[str, Any]] = ()
    measured: Mapping[str, Any] | None = None
    fault: str = ""

    @property
    def label(self) -> str:
        return self.spec.row.label

    @property
    def weights(self) -> int:
        """Bytes; where networks share weights these count once."""
        return held.weights(sum(each["parameters"] for each in self.held))

    @property
    def learning(self) -> int:
        """Bytes of gradients and of the optimizer's moments."""
        learnt = sum(each["learnt"] for each in self.held)
        return held.gradients(learnt) + held.optimizer(learnt, str(self.spec.knobs.get("optimizer")))

    @property
    def activations(self) -> int | None:
        """Bytes that autograd keeps for the backward pass at its most."""
        return int(self.measured["activations"]) if self.measured else None

    @property
    def together(self) -> int:
        """Bytes of all that is known."""
        return self.weights + self.learning + (self.activations or 0)

    @property
    def seconds(self) -> float | None:
        """Of the fastest measured step: whatever else the machine does can only make one slower."""
        return min(self.measured["seconds"]) if self.measured else None

    @property
    def batch(self) -> str:
        """The batch of a step: "256 completions × 2"; the last is its updates, where there are several."""
        knobs = self.spec.knobs
        if "prompts_per_step" in knobs:
            updates = int(knobs.get("updates_per_batch", 1)) * int(knobs.get("mini_batches", 1))
            rows = int(knobs["prompts_per_step"]) * int(knobs["group_size"]) // int(knobs.get("mini_batches", 1))
            return f"{rows:,} completions" + (f" × {updates}" if updates > 1 else "")
        size, what = ((knobs["pairs_per_step"], "pairs") if "pairs_per_step" in knobs
                      else (knobs["sequences_per_step"], "sequences"))
        return f"{size:,} {what}"

    def names(self) -> str:
        """The networks in words, trained ones first: "policy, critic, reference (frozen)"."""
        moved, still = ([str(each["name"]).replace("_", " ") for each in self.held if bool(each["learnt"]) == learns]
                        for learns in (True, False))
        return ", ".join([*moved, *(f"{name} (frozen)" for name in still)])


def held_asked(specs: Sequence[RunSpec]) -> jobs.Spec:
    """The job that counts the networks of some runs."""
    return {"job": "models_held", "specs": [setting(spec) for spec in specs], "made": versions.code()}


def cost_asked(spec: RunSpec) -> jobs.Spec:
    """The job that measures a run here; another machine or code is another job."""
    made = {key: value for key, value in versions.here().items() if key not in _PROCESS}
    return {"job": "cost", "spec": setting(spec), "host": platform.node(), "made": made}


def rows(specs: Sequence[RunSpec], held: Sequence[Any]) -> list[Row]:
    """The table of some runs. `held` is the result of `held_asked`; earlier measurements are read from the files of
    their jobs."""
    return [Row(spec, fault=found) if isinstance(found, str) else _row(spec, found)
            for spec, found in zip(specs, held, strict=True)]


def _row(spec: RunSpec, held: Sequence[Mapping[str, Any]]) -> Row:
    outcome = jobs.outcome(jobs.job_id(cost_asked(spec)))
    return Row(spec, held, outcome.result, outcome.error) if outcome else Row(spec, held)


def times(row: Row, rows: Sequence[Row]) -> float | None:
    """The ratio of a step's time to that of a step of BESIDE; None if one of them is not measured."""
    base = next((other.seconds for other in rows if is_named(other.spec, BESIDE)), None)
    return None if row.seconds is None or not base else row.seconds / base


def is_named(spec: RunSpec, key: str) -> bool:
    """Whether a run is that of the named algorithm `key`, and not of a mix that began from it."""
    return spec.algorithm == key and not spec.mix


def as_json(row: Row, rows: Sequence[Row]) -> dict[str, Any]:
    """A row for programs: bytes and seconds; `times` is its step over that of BESIDE."""
    return {"algorithm": row.spec.algorithm, "models": list(row.held), "batch": row.batch, "weights": row.weights,
            "learning": row.learning, "activations": row.activations, "seconds": row.seconds,
            "times": times(row, rows), "measured": row.measured, "fault": row.fault}


def beside(spec: RunSpec, keys: Sequence[str] = USUAL) -> list[RunSpec]:
    """`spec`, and a new run of each algorithm on the same model and task, with its precision and LoRA."""
    shared = {*_SHARED, *(knob.key for knob in spec.task_row.knobs)}
    found = [spec]
    for key in keys:
        row = kinds.algorithm(key)
        if not is_named(spec, key) and row.learns(spec.task_row):
            known = {knob.key for knob in knobs_of(row, spec.task_row)}
            knobs = {knob: value for knob, value in spec.knobs.items() if knob in shared & known}
            with suppress(LabError):  # its own defaults do not go with what is shared
                found.append(make(algorithm_key=key, task_key=spec.task, model=spec.model, knobs=knobs, data=spec.data,
                                  device=spec.device, threads=spec.threads))
    return found
