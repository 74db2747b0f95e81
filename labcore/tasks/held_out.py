"""Split the rows of the user's file into training rows and held-out rows, which are used for evaluation only.

The rows are chosen by a hash of their prompts, so all runs on one file hold out the same rows, whatever their seed, and
a prompt that is repeated is on one side only. A second file may take the place of a share of the first.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from labcore.errors import LabError, quoted
from labcore.runs.files import uploads
from labcore.tasks.task import Pair, Problem, Single, Turn

Row = TypeVar("Row", bound=Problem | Pair | Single)
LEAST = 20  # rows, below which a share would be too few to measure anything


@dataclass(frozen=True)
class Parts(Generic[Row]):
    """The rows to train on and those that are held out, in an order that does not depend on the file's. `said` is a
    sentence for the user where the parts are not what the knobs ask for."""

    rows: list[Row]
    held: list[Row]
    said: str = ""


def parts(knobs: Mapping[str, Any], data: Path, read: Callable[[Path], list[Row]]) -> Parts[Row]:
    """The parts of the file `data`, whose rows `read` gives, by the knobs `held_out` and `held_out_file`. Raises
    LabError as `read`, or if the second file does not exist or has every prompt of the first."""
    rows, second = read(data), held_out_file(knobs)
    if second:
        return _without(rows, shuffled(read(second)), data, second)
    return _share(rows, float(knobs.get("held_out", 0)), data)


def held_out_file(knobs: Mapping[str, Any]) -> Path | None:
    """The second file, which the knob `held_out_file` names as an upload; None where there is none. Raises LabError if
    no file is kept there."""
    place = str(knobs.get("held_out_file", ""))
    path = uploads.file_at(place) if place else None
    if place and path is None:
        raise LabError(f"There is no held-out file {quoted(place)} here: give the file again, with --held-out FILE.")
    return path


def in_words(second: Path) -> str:
    """A second file in the middle of a sentence; a first one may have the same name."""
    return f"the held-out file {second.name}"


def shuffled(rows: list[Row]) -> list[Row]:
    """Held-out rows in an order that does not depend on the file's, so that the first of them stand for all."""
    return sorted(rows, key=_key)


def problems_of(rows: Sequence[Problem | Pair | Single]) -> list[Problem]:
    """The rows as prompts with answers; without completions that are not desired."""
    return [problem_of(row) for row in rows if not isinstance(row, Single) or row.label]


def problem_of(row: Problem | Pair | Single) -> Problem:
    """A row as a prompt with the answer that SFT would learn."""
    if isinstance(row, Problem):
        return row
    return Problem(row.prompt, row.chosen if isinstance(row, Pair) else row.completion, row.line, row.turns)


def _share(rows: list[Row], share: float, data: Path) -> Parts[Row]:
    if not share:
        return Parts(rows, [])
    if len(rows) < LEAST:
        return Parts(rows, [], f"{data.name} has {len(rows)} rows, fewer than {LEAST}, so none is held out: give more "
                               "rows, or a second file with --held-out FILE.")
    keys = list(map(_key, rows))
    repeats, most, held, count = Counter(keys), max(1, round(share * len(rows))), set[str](), 0
    for key in sorted(repeats):  # hashes, so this is a shuffle
        if count + repeats[key] <= most:
            held.add(key)
            count += repeats[key]
    if not held:
        return Parts(rows, [], f"Every prompt of {data.name} is repeated so often that none fits into {share:g} of its "
                               "rows, so none is held out: give a second file with --held-out FILE.")
    return Parts([row for row, key in zip(rows, keys, strict=True) if key not in held],
                 shuffled([row for row, key in zip(rows, keys, strict=True) if key in held]))


def _without(rows: list[Row], held: list[Row], data: Path, second: Path) -> Parts[Row]:
    """All rows but those whose prompts are in the second file too."""
    there = set(map(_key, held))
    left = [row for row in rows if _key(row) not in there]
    if not left:
        raise LabError(f"Every prompt of {data.name} is in {second.name} too, so there is nothing to train on: give "
                       "another held-out file.")
    gone = len(rows) - len(left)
    told = f"{gone:,} row{'s' if gone != 1 else ''} of {data.name} {'are' if gone != 1 else 'is'} not trained on, since"
    return Parts(left, held, f"{told} {second.name} has the same prompts." if gone else "")


def _key(row: Problem | Pair | Single) -> str:
    """The hash of a row's prompt, whatever its spaces."""
    turns = row.turns or [Turn("user", row.prompt)]
    text = json.dumps([[role, " ".join(content.split())] for role, content in turns])
    return hashlib.sha256(text.encode()).hexdigest()
