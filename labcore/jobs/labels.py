"""Labels: which of two completions is the better one, by a person or by the task's own gold score with its noise.

Pairs to label are those of the job `pairs_to_label`; a pick is "a", "b", or None where nobody chose. What was picked
is kept as an upload, a file of preferences that a reward model learns from: its knob `labelled_pairs` names it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labcore.errors import LabError, quoted
from labcore.files import uploads
from labcore.files.given import whole
from labcore.files.jsonl import LIMIT, read_objects
from labcore.files.paths import path_of
from labcore.spec.run_spec import RunSpec
from labcore.tasks.preferences import labelled_pairs
from labcore.tasks.reviews import preference
from labcore.tasks.task import Problem, make_task

NAME = "labels.jsonl"
PICKS = ("a", "b")

Unlabelled = Mapping[str, Any]  # prompt, a, b, a_truncated, b_truncated, answer, line; turns of a conversation


def preferences(pairs: Sequence[Unlabelled], picks: Sequence[str | None]) -> list[dict[str, Any]]:
    """The pairs that somebody picked from, one for one with `picks`, as lines of a file of preferences."""
    return [_preference(pair, pick) for pair, pick in zip(pairs, picks, strict=True) if pick is not None]


def keep(lines: Sequence[Mapping[str, Any]]) -> str:
    """Keep lines of preferences as an upload. Returns its name, for the knob `labelled_pairs` of a reward model.

    Raises:
        LabError: there are none, or the file cannot be written.
    """
    if not lines:
        raise LabError("No pair has a label yet: choose the better one of at least one pair.")
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return uploads.keep(NAME, whole(text).encode()).parent.name


def adopt(labels: str) -> str:
    """The upload that somebody names, by its name or as a file, which is then kept. Returns its name.

    Raises:
        LabError: there is no such file or upload, or it holds no pairs.
    """
    place = labels if uploads.file_at(labels) else uploads.keep_file(path_of(labels), LIMIT).parent.name
    labelled_pairs(place)
    return place


def file_of(place: str) -> Path:
    """The file of labels that is kept there. Raises LabError where there is none."""
    path = uploads.file_at(place)
    if path is None:
        raise LabError(f"There are no labels {quoted(place)} here: give a file, or the name that the command label "
                       "printed.")
    return path


def lines_of(place: str) -> list[dict[str, Any]]:
    """The lines of preferences that are kept there. Raises LabError as `file_of`."""
    return read_objects(file_of(place), lambda value, line: dict(value))


def by_gold(spec: RunSpec, pairs: Sequence[Unlabelled], seed: int) -> list[str | None]:
    """What the task's gold score picks: as its own labels, with the noise of its `label_temperature`.

    A task without that knob picks the higher score, and neither where both are the same.

    Raises:
        LabError: the task has no score.
    """
    if not spec.task_row.verifiable:
        raise LabError(f"The task {spec.task!r} has no score that could label pairs: label them yourself.")
    task, rng = make_task(spec.task_row, spec.knobs, spec.data), np.random.default_rng(seed)
    temperature, picks = float(spec.knobs.get("label_temperature", 0.0)), list[str | None]()
    for pair in pairs:
        problem = Problem(pair["prompt"], pair["answer"], pair["line"])
        a, b = (task.score(problem, pair[side]).reward for side in PICKS)
        if a == b and not temperature:
            picks.append(None)
        else:
            picks.append("a" if rng.random() < preference(a - b, temperature) else "b")
    return picks


def _preference(pair: Unlabelled, pick: str) -> dict[str, Any]:
    other = PICKS[1 - PICKS.index(pick)]
    line = {"prompt": pair.get("turns") or pair["prompt"], "chosen": pair[pick], "rejected": pair[other]}
    cut = {"chosen_truncated": pair[f"{pick}_truncated"], "rejected_truncated": pair[f"{other}_truncated"]}
    return line | {key: value for key, value in cut.items() if value}
