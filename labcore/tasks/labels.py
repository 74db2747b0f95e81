"""Labels of pairs: the better of two completions, chosen by a person or by the task's own gold score with its noise.

Pairs to label are those of the job `pairs_to_label`; a pick is "a", "b", or None where nobody chose. What was picked
is kept as an upload, a file of preferences that a reward model learns from: its knob `labelled_pairs` names it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labcore.errors import LabError, os_reason, quoted
from labcore.runs.files import atomic, uploads
from labcore.runs.files.jsonl import LIMIT, read_objects
from labcore.runs.files.paths import home, made, path_of
from labcore.runs.files.untrusted import whole
from labcore.runs.spec.run_spec import RunSpec
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
    """Keep lines of preferences as an upload. Returns its name, for the knob `labelled_pairs` of a reward model. Raises
    LabError if there are none, or the file cannot be written."""
    if not lines:
        raise LabError("No pair has a label yet: choose the better one of at least one pair.")
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return uploads.keep(NAME, whole(text).encode()).parent.name


def adopt(labels: str) -> str:
    """The upload that somebody names, by its name or as a file, which is then kept. Returns its name. Raises LabError
    if there is no such file or upload, or it holds no pairs."""
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
    """The side that the task's gold score picks: as its own labels, with the noise of its `label_temperature`.

    A task without that knob picks the higher score, and neither where both are the same. Raises LabError if the task
    has no score.
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


# ---------------------------------------------------------------- label log
# The labels that a person gives, kept at every click: nothing is lost where the page is closed.
#
# `RL_LAB_HOME/labels/NAME.jsonl` has a line for each labelled pair, as the job `pairs_to_label` gave it, with its pick.
# A name stands for a task and a model: labels of all their policies are learnt from together.

def name(spec: RunSpec) -> str:
    """Twelve hex digits for the task, its file, and the model of a run."""
    return hashlib.sha256(json.dumps([spec.task, spec.data, spec.model]).encode()).hexdigest()[:12]


def path(spec: RunSpec) -> Path:
    """Where these labels are kept; not made here."""
    return home() / "labels" / f"{name(spec)}.jsonl"


def add(spec: RunSpec, pair: Mapping[str, Any], pick: str) -> None:
    """Keep a label: "a" or "b" is the better side of `pair`. The label is on the disk when the function returns. Raises
    LabError if it cannot be written."""
    assert pick in PICKS
    target = path(spec)
    made(target.parent)
    try:
        atomic.append_row(target, {**pair, "pick": pick, "time": round(time.time(), 3)})
    except OSError as error:
        raise LabError(f"The label could not be kept in {target} ({os_reason(error)}): free some space, or check the "
                       "folder's permissions.") from error


def rows(spec: RunSpec) -> list[dict[str, Any]]:
    """All labels of a task and a model, oldest first: pairs with their `pick`. What is no label stays in the file."""
    return [row for row in atomic.rows(path(spec)) if _is_label(row)]


def _is_label(row: Mapping[str, Any]) -> bool:
    return row.get("pick") in PICKS and all(isinstance(row.get(key), str) for key in ("prompt", "answer", *PICKS)) and (
        all(isinstance(row.get(f"{side}_truncated"), bool) for side in PICKS) and "line" in row)
