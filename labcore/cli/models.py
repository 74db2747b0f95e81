"""`models` and `download`: the models a run can start from, and one of the hub brought onto this machine."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.amounts import size as in_bytes
from labcore.catalog.kinds import Kind
from labcore.catalog.knob import Knob, shown
from labcore.catalog.llm.models import HUB_MODELS, MODELS
from labcore.catalog.llm.pretrained import FULL, LORA, Default, defaults
from labcore.cli.adding import Add
from labcore.cli.terminal import doing
from labcore.runs import jobs
from labcore.runs.files import hub_models
from labcore.runs.spec.run_spec import RunSpec


def add_to(add: Add) -> None:
    """Add both commands to the parser by its `add(name, command, help)`."""
    listing = add("models", models, "the models a run can start from: built-in, on this machine, and recommended ones "
                  "of the hub")
    listing.add_argument("--json", action="store_true", help="print JSON")
    fetching = add("download", download, "download a model of the Hugging Face hub; an interrupted download is resumed")
    fetching.add_argument("model", metavar="ID", help="organisation/name, such as HuggingFaceTB/SmolLM2-135M-Instruct")


def models(options: argparse.Namespace) -> int:
    """Print the models by where they are."""
    cached = hub_models.cached()
    if options.json:
        print(json.dumps({"built_in": [asdict(each) for each in MODELS.values()],
                          "on_this_machine": [{"name": each.name, "folder": str(each.folder), "bytes": each.bytes}
                                              for each in cached],
                          "hub": [asdict(each) for each in HUB_MODELS.values()]}, ensure_ascii=False, indent=2))
        return 0
    print("Built-in")
    for size in MODELS.values():
        print(f"    {size.label}")
    print("\nOn this machine, from the hub" + ("" if cached else ": none yet"))
    for each in cached:
        print(f"    {each.name:<38} {in_bytes(each.bytes)}")
    print("\nRecommended on the hub: python -m labcore download ID")
    for row in HUB_MODELS.values():
        print(f"    {row.key:<38} {row.parameters:>6} {row.size:>8}  {row.licence}{', gated' if row.gated else ''}: "
              f"{row.good_for}")
    print("\nA run takes any of them, and a folder or another id of the hub, by --model.")
    return 0


def download(options: argparse.Namespace) -> int:
    """Download a model, unless it is here."""
    with doing():
        found = jobs.do({"job": "download", "name": options.model})
    print(f"{options.model} is in {found['folder']}: start a run with --model {options.model}")
    return 0


# ---------------------------------------------------------------- defaults
# Format the defaults of runs on pretrained weights, with their sources, for commands.

def of_run(spec: RunSpec) -> str:
    """A sentence on the knobs of a run with defaults for pretrained weights; empty where there is none."""
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
