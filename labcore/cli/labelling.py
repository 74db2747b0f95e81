"""`label`: sample pairs from a model and label them, by the task's gold score or by hand, for a reward model."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from labcore.cli.adding import Add
from labcore.cli.terminal import computed
from labcore.errors import LabError, os_reason
from labcore.runs.files import uploads
from labcore.runs.files.atomic import write_output
from labcore.runs.files.paths import path_of
from labcore.runs.models import spec_of
from labcore.runs.spec.model_names import parse
from labcore.tasks import labels

SKIP, QUIT = "s", "q"


def add_to(add: Add) -> None:
    """Add the command to the parser by its `add(name, command, help)`."""
    sub = add("label", label, "sample pairs of completions from a model and label them for a reward model")
    sub.add_argument("model", metavar="MODEL", help="the id of a run, id@step, or base:id (its base model)")
    sub.add_argument("--pairs", type=int, default=256, metavar="N", help="how many pairs to sample")
    sub.add_argument("--against", metavar="MODEL", help="take one side of each pair from this model, for example "
                     "base:id")
    sub.add_argument("--by", choices=("gold", "hand"), default="gold", help="gold: the task's own score, with the "
                     "noise of its label_temperature; hand: you choose, pair by pair")
    sub.add_argument("--add", metavar="LABELS", help="keep these labels too: a file, or the name of an upload")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--out", metavar="FILE", help="also write the file of preferences here")
    sub.add_argument("--json", action="store_true", help="print one JSON object at the end")


def label(options: argparse.Namespace) -> int:
    """Sample, label, keep; print the name by which a reward model's run knows the labels."""
    spec = spec_of(parse(options.model).run)
    earlier = labels.lines_of(labels.adopt(options.add)) if options.add else []
    against = {"against": parse(options.against).pinned.name} if options.against else {}
    found = computed({"job": "pairs_to_label", "model": parse(options.model).pinned.name, "count": options.pairs,
                      "seed": options.seed, **against})
    pairs = found["pairs"]
    picks = labels.by_gold(spec, pairs, options.seed) if options.by == "gold" else by_hand(pairs)
    new = labels.preferences(pairs, picks)
    place = labels.keep([*earlier, *new])
    if options.out:
        _copy(place, path_of(options.out))
    if options.json:
        print(json.dumps({"labelled_pairs": place, "labels": len(earlier) + len(new), "new": len(new),
                          "model": found["model"], "file": str(uploads.file_at(place))}))
    else:
        more = f", after {len(earlier)} earlier ones" if earlier else ""
        print(f"{len(new)} pairs of {found['model']} have a label{more}: {place}\n"
              f"python -m labcore run --algorithm reward_model --task {spec.task} --labels {place}")
    return 0


def by_hand(pairs: Sequence[labels.Unlabelled]) -> list[str | None]:
    """The labels that the user picks at the terminal; pairs after they quit have none."""
    picks: list[str | None] = []
    for place, pair in enumerate(pairs, 1):
        print(f"\n{place} of {len(pairs)}   {pair['prompt']!r}\n  a  {pair['a']!r}\n  b  {pair['b']!r}")
        pick = _asked()
        if pick == QUIT:
            break
        picks.append(None if pick == SKIP else pick)
    return picks + [None] * (len(pairs) - len(picks))


def _asked() -> str:
    while True:
        try:
            pick = input(f"better: a or b ({SKIP}: skip, {QUIT}: quit)? ").strip().lower()
        except EOFError:
            return QUIT
        if pick in (*labels.PICKS, SKIP, QUIT):
            return pick


def _copy(place: str, target: Path) -> None:
    try:
        write_output(target, lambda path: path.write_bytes(labels.file_of(place).read_bytes()))
    except OSError as error:
        raise LabError(f"The labels cannot be written to {target} ({os_reason(error)}): choose another place. They are "
                       f"kept as {place}.") from error
