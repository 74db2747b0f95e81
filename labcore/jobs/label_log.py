"""The labels that a person gives, kept at every click: nothing is lost where the page is closed.

`RL_LAB_HOME/labels/NAME.jsonl` has a line for each labelled pair, as the job `pairs_to_label` gave it, with its pick.
A name stands for a task and a model: labels of all their policies are learnt from together.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labcore.errors import LabError, os_reason
from labcore.files import atomic
from labcore.files.paths import home, made
from labcore.jobs.labels import PICKS
from labcore.spec.run_spec import RunSpec


def name(spec: RunSpec) -> str:
    """Twelve hex digits for the task, its file, and the model of a run."""
    text = json.dumps([spec.task, spec.data, spec.model])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def path(spec: RunSpec) -> Path:
    """Where these labels are kept; not made here."""
    return home() / "labels" / f"{name(spec)}.jsonl"


def add(spec: RunSpec, pair: Mapping[str, Any], pick: str) -> None:
    """Keep a label: "a" or "b" is the better one of `pair`. It is on the disk when this returns.

    Raises:
        LabError: it cannot be written.
    """
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
