"""The command `mixes`: mixes of choices that the user has named and saved."""

from __future__ import annotations

import argparse
import json
from typing import Any

from labcore.catalog import kinds
from labcore.catalog.mix.summary import summarise
from labcore.cli.adding import Add
from labcore.cli.commands import assignments
from labcore.errors import LabError
from labcore.runs import mixes
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store

TASK = "sort"  # whose defaults a mix is shown against


def add_to(add: Add) -> None:
    """Add the command to the parser by its `add(name, command, help)`."""
    sub = add("mixes", show, "your saved mixes of choices: the nearest algorithm, differences and cautions")
    what = sub.add_mutually_exclusive_group()
    what.add_argument("--save", metavar="NAME", help="save one: with --algorithm and --set, or with --run")
    what.add_argument("--rename", nargs=2, metavar=("NAME", "NEW"), help="runs keep the old name")
    what.add_argument("--delete", metavar="NAME", help="runs that were made from it stay")
    sub.add_argument("--algorithm", help="the row to begin from, with --save")
    sub.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", dest="knobs", help="may be repeated")
    sub.add_argument("--run", metavar="RUN", help="the run whose choices are saved")
    sub.add_argument("--json", action="store_true", help="print JSON")


def show(options: argparse.Namespace) -> int:
    """Save, rename or delete one, or print all."""
    if (options.algorithm or options.knobs or options.run) and options.save is None:
        raise LabError("--algorithm, --set and --run need --save NAME.")
    if options.save is not None:
        mixes.save(_asked(options))
        print(f"Saved {options.save}; to run it: python -m labcore run --algorithm {options.save!r}")
    elif options.rename:
        mixes.rename(*options.rename)
        print(f"{options.rename[0]} is now called {options.rename[1]}.")
    elif options.delete is not None:
        mixes.delete(options.delete)
        print(f"Deleted {options.delete}.")
    else:
        _list(options.json)
    return 0


def _asked(options: argparse.Namespace) -> mixes.Mix:
    """The mix that is to be saved, checked as if it were to be run."""
    if bool(options.run) == bool(options.algorithm):
        raise LabError("The choices are missing: give either --algorithm with --set KNOB=VALUE, or --run RUN.")
    if options.run:
        return mixes.of_spec(Store().run(options.run).spec, options.save)
    spec = make(algorithm_key=options.algorithm, task_key=TASK, knobs=assignments(options.knobs), mix=options.save)
    return mixes.of_spec(spec, options.save)


def _list(as_json: bool) -> None:
    found, faults = mixes.saved()
    if as_json:
        print(json.dumps([described(mix) for mix in found], ensure_ascii=False, indent=2))
        return
    for mix in found:
        about = described(mix)
        print(f"{mix.name}  from {mix.algorithm}, nearest: {about['nearest']}")
        for key, (theirs, own) in about["differs"].items():
            print(f"    {key:<22} {theirs!s} → {own!s}")
        for caution in about["cautions"]:
            print(f"    beware: {caution}")
    for fault in faults:
        print(fault)
    if not found and not faults:
        print('No mixes yet: python -m labcore mixes --save "my GRPO" --algorithm grpo --set aggregation=token_mean')


def described(mix: mixes.Mix) -> dict[str, Any]:
    """A mix as data for programs. `differs`: knob -> the nearest row's value and its own."""
    seen = summarise(mix.algorithm, mix.knobs, kinds.task(TASK))
    return {"name": mix.name, "algorithm": mix.algorithm, "knobs": dict(mix.knobs), "nearest": seen.nearest.row.key,
            "differs": {each.knob.key: [each.theirs, each.own] for each in seen.nearest.parts},
            "cautions": list(seen.cautions)}
