"""`bench-estimators`: compare the gradients of algorithms with the exact one, on a problem that can be enumerated."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labcore.catalog import kinds
from labcore.cli.adding import Add
from labcore.cli.commands import assignments
from labcore.errors import LabError, os_reason
from labcore.llm.sizing import bench
from labcore.runs import jobs
from labcore.runs.files import atomic, tables
from labcore.runs.files.paths import path_of

KIND = "exact"


def add_to(add: Add) -> None:
    """Add the command to the parser by its `add(name, command, help)`."""
    sub = add("bench-estimators", bench_estimators, "compare the gradients of algorithms with the exact one: bias, "
              "variance, cosine, signal per sample")
    sub.add_argument("--algorithms", default=",".join(bench.USUAL), metavar="NAME,NAME,…",
                     help=f"default: {','.join(bench.USUAL)}; see: python -m labcore list --kind exact")
    sub.add_argument("--knob", default="", help="compare several values of this knob, such as group_size or gae_lambda")
    sub.add_argument("--values", default="", metavar="VALUE,VALUE,…", help="the values of that knob")
    sub.add_argument("--batches", type=int, default=200, help="batches drawn for each row (default: 200)")
    sub.add_argument("--problem", default=kinds.kind(KIND).task, choices=list(kinds.kind(KIND).tasks))
    sub.add_argument("--model", default=kinds.kind(KIND).model, choices=list(kinds.kind(KIND).models))
    sub.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", dest="knobs",
                     help="a knob of all algorithms that have it; may be repeated")
    sub.add_argument("--critic", default=bench.CRITICS[0], choices=bench.CRITICS,
                     help="the critic of algorithms that have one: untrained, or the exact values")
    sub.add_argument("--progress", type=float, default=bench.PROGRESS,
                     help="how far the frozen policy is trained: the share of the distance from its reference to the "
                          "best reward (default: %(default)s)")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--csv", metavar="FILE", help="CSV file for the table with its intervals")
    sub.add_argument("--json", action="store_true", help="print JSON")


def bench_estimators(options: argparse.Namespace) -> int:
    """Measure, here and now, and print the table."""
    if bool(options.knob) != bool(options.values):
        raise LabError("--knob and --values belong together: for example --knob group_size --values 2,4,8.")
    asked = bench.asked(_words(options.algorithms), knob=options.knob, values=_words(options.values),
                        batches=options.batches, task=options.problem, model=options.model,
                        knobs=assignments(options.knobs), critic=options.critic, progress=options.progress,
                        seed=options.seed)
    found = jobs.compute(asked)
    if options.csv:
        _write(path_of(options.csv), bench.records(found))
    print(json.dumps(found, ensure_ascii=False, indent=2) if options.json else table(found))
    return 0


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    try:
        atomic.write_output(path, lambda new: tables.write(new, list(rows[0]), (list(row.values()) for row in rows)))
    except OSError as error:
        raise LabError(f"{path} cannot be written ({os_reason(error)}): choose another place for --csv.") from error


def table(found: Mapping[str, Any]) -> str:
    """The rows as text, the meaning of the numbers, and the causes of bias."""
    heads = ["Algorithm", *([found["knob"]] if found["knob"] else []), *(head for _, head in bench.COLUMNS), "Finding"]
    lines = [heads, *(_cells(row, found["knob"]) for row in found["rows"])]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    words = {0, len(heads) - 1}
    text = ["  ".join(cell.ljust(width) if place in words else cell.rjust(width)
                      for place, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip() for line in lines]
    why = [f"{label}: {' '.join(reasons)}" for label, reasons in bench.reasons(found).items() if reasons]
    return "\n".join([*text, "", *bench.notes(found), *(["", *why] if why else [])])


def _cells(row: Mapping[str, Any], knob: str) -> list[str]:
    value = [str(row["value"])] if knob else []
    numbers = [bench.number(row.get(key)) for key, _ in bench.COLUMNS]
    return [row["label"], *value, *numbers, row.get("fault") or bench.finding(row)]
