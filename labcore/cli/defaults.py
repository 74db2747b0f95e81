"""Format the defaults of runs on pretrained weights, with their sources, for commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.kinds import Kind
from labcore.catalog.knob import Knob, shown
from labcore.catalog.llm.pretrained import FULL, LORA, Default, defaults
from labcore.spec.run_spec import RunSpec


def of_run(spec: RunSpec) -> str:
    """Which knobs of a run have defaults of pretrained weights, in a sentence; empty where none has."""
    found = [knob for knob in spec.declared if knob.source and spec.knobs[knob.key] == knob.default]
    said = "; ".join(f"{knob.key}={shown(knob.default)} ({knob.source})" for knob in found)
    return f"Defaults for pretrained weights, which --set changes: {said}." if said else ""


def by_weights(row: Algorithm, kind: Kind) -> dict[str, dict[str, Default]]:
    """The defaults of an algorithm for pretrained weights, by knob, then by how they are learnt: on the user's file
    where it learns from one."""
    if not kind.pretrained:
        return {}
    tasks = [task for task in kind.tasks.values() if row.learns(task)]
    task = next((task for task in tasks if task.data), tasks[0])
    found: dict[str, dict[str, Default]] = {}
    for of in (FULL, LORA):
        for key, default in defaults(row, task, of).items():
            found.setdefault(key, {})[of] = default
    return found


def words(of: Mapping[str, Default]) -> str:
    """The defaults of a knob for a list: "pretrained 1e-06, LoRA 1e-05 (TRL 1.16's GRPOConfig)"."""
    full, adapters = of[FULL], of[LORA]
    beside = f", {LORA} {shown(adapters.value)}" if adapters.value != full.value else ""
    return f"pretrained {shown(full.value)}{beside} ({full.source})"


def as_json(knob: Knob, of: Mapping[str, Default]) -> dict[str, Any]:
    """A knob for programs, with the defaults for pretrained weights where there are any."""
    beside = {name: {"default": default.value, "source": default.source} for name, default in of.items()}
    return asdict(knob) | ({"pretrained": beside} if beside else {})
