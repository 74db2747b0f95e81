"""`models` and `download`: the models a run can start from, and one of the hub brought onto this machine."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from labcore.catalog.llm.hub_models import HUB_MODELS
from labcore.catalog.llm.models import MODELS
from labcore.cli.adding import Add
from labcore.cli.progress import doing
from labcore.files import hub_models
from labcore.jobs import jobs


def add_to(add: Add) -> None:
    """Add both commands to the parser by its `add(name, command, help)`."""
    listing = add("models", models, "the models a run can start from: built-in, on this machine, good ones of the hub")
    listing.add_argument("--json", action="store_true", help="print JSON")
    fetching = add("download", download, "download a model of the Hugging Face hub; where it ended, it is resumed")
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
        print(f"    {each.name:<38} {each.bytes / 1e6:,.0f} MB")
    print("\nOn the hub, to begin with: python -m labcore download ID")
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
