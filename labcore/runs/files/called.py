"""The trainer's names of a watched run's metrics that have other names in the lab: `RUN/called.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from labcore.runs.files import atomic
from labcore.runs.files.paths import run_folder
from labcore.runs.files.untrusted import NotJSON, json_of

FILE = "called.json"


def write(folder: Path, names: Mapping[str, str]) -> None:
    """Save the names (our metric -> the trainer's name) in a run's folder."""
    atomic.write_text(folder / FILE, json.dumps(dict(names), ensure_ascii=False))


def read(run_id: str) -> dict[str, str]:
    """Return the saved names of a run; empty if the file is missing or damaged, because they are only for display."""
    try:
        found = json_of((run_folder(run_id) / FILE).read_bytes())
    except (FileNotFoundError, NotJSON):
        return {}
    return {str(key): str(name) for key, name in found.items()} if isinstance(found, dict) else {}
