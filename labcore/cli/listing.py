"""The command `list`: print the names in the catalog of a kind of run, or the full entries of given names."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from labcore.catalog.algorithm import Algorithm
from labcore.catalog.kinds import KINDS, Kind, kind
from labcore.catalog.knob import suggestion
from labcore.catalog.llm.models import MODELS
from labcore.catalog.presets import Preset, of_kind
from labcore.catalog.task import Task
from labcore.cli import models
from labcore.errors import LabError, quoted

Tables = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class _Table:
    """The model of problems that can be enumerated, beside those with a size."""

    key: str = "table"
    label: str = "a softmax table: a logit for each prefix"


TABLE = _Table()


def add(sub: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    sub.add_argument("names", nargs="*", metavar="NAME", help="an algorithm, task, model or preset to print "
                     "in full, such as an algorithm with its knobs; without NAME the command prints all names")
    sub.add_argument("--kind", default="llm", choices=list(KINDS))
    sub.add_argument("--json", action="store_true", help="print JSON, with all knobs")


def run(options: argparse.Namespace) -> int:
    """Print the names of a kind's algorithms, tasks, models and presets, or the full entries of the given names."""
    row = kind(options.kind)
    found = _tables(row, options.names)
    if options.json:
        print(json.dumps(_as_json(row, found), ensure_ascii=False, indent=2))
    elif options.names:
        print("\n\n".join(_in_full(row, each) for table in found.values() for each in table.values()))
    else:
        _overview(row, found)
    return 0


def _tables(row: Kind, names: list[str]) -> Tables:
    """The catalog tables of a kind of run, reduced to the entries `names` if any are given. Raises LabError if no table
    has one of the names."""
    tables: Tables = {"algorithms": row.algorithms, "tasks": row.tasks,
                      "models": {key: MODELS.get(key, TABLE) for key in row.models} if len(row.models) > 1 else {},
                      "presets": {each.key: each for each in of_kind(row.key)}}
    known = [key for table in tables.values() for key in table]
    for name in names:
        if name not in known:
            raise LabError(f"There is no algorithm, task, model or preset {quoted(name)} of the kind {row.key}: "
                           f"{suggestion(name, known)}")
    return {title: {key: each for key, each in table.items() if not names or key in names}
            for title, table in tables.items()}


def _as_json(row: Kind, found: Tables) -> dict[str, Any]:
    listed = {title: {key: asdict(each) for key, each in table.items()} for title, table in found.items()}
    for key, algorithm in found["algorithms"].items():
        others = models.by_weights(algorithm, row)
        listed["algorithms"][key]["knobs"] = [models.as_json(knob, others.get(knob.key, {}))
                                              for knob in algorithm.knobs]
    return listed


def _overview(row: Kind, found: Tables) -> None:
    """One line for each name."""
    print("Algorithms (list ALGORITHM prints the knobs of one)")
    _lines({key: each.summary for key, each in found["algorithms"].items()})
    print("\nTasks (list TASK prints the knobs of one)")
    _lines({key: each.help for key, each in found["tasks"].items()})
    if row.any_task:
        print("or any Gymnasium environment, with a few or continuous actions: --env ID --env-arg NAME=VALUE")
    if found["models"]:
        print("\nModels")
        _lines({key: each.label for key, each in found["models"].items()})
        hub = "a Hugging Face folder, a hub id (python -m labcore models lists some), or " if row.pretrained else ""
        print(f"or {hub}an earlier run: RUN or RUN@STEP")
    if found["presets"]:
        print("\nPresets (run --preset PRESET; list PRESET prints what to look at)")
        _lines({key: each.change for key, each in found["presets"].items()})


def _lines(words: Mapping[str, str]) -> None:
    print("\n".join(f"{key:<22}  {said}" for key, said in words.items()))


def _in_full(row: Kind, each: Any) -> str:
    """The full entry of an algorithm, task, preset or model, as lines of text."""
    if isinstance(each, Algorithm):
        others = models.by_weights(each, row)
        return "\n".join([f"{each.key}  {each.summary}", *(
            f"    {knob.key:<22} {knob.default!s:<26} {knob.effect}"
            + (f"   {models.words(others[knob.key])}" if knob.key in others else "") for knob in each.knobs)])
    if isinstance(each, Task):
        return "\n".join([f"{each.key}  {each.help}", *(
            f"    {knob.key:<22} {knob.default!s:<26} {' | '.join(knob.choices)}".rstrip() for knob in each.knobs)])
    if isinstance(each, Preset):
        beside = f"   compare with: {each.beside}" if each.beside else ""
        return "\n".join([f"{each.key}  {each.change}{beside}", *(f"    {sentence}" for sentence in each.look)])
    return f"{each.key}  {each.label}"
