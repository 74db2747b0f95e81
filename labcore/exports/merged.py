"""The whole model that a LoRA run has learnt, its adapter added to its base, as a zip. Imports no torch by itself."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from labcore.errors import LabError
from labcore.exports.folder import pack
from labcore.files import atomic
from labcore.files import checkpoints as checkpoint
from labcore.files.artifacts import fetch
from labcore.files.paths import is_run_id, made, run_folder


def file(run_id: str) -> Path:
    """Where the zip of a run is kept, in its own `export` folder."""
    return run_folder(run_id) / "export" / f"{run_id}-merged.zip"


def merge(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The job `merge` of a run's checkpoint: {"bytes"} of the zip, which `file` names.

    Raises:
        LabError: there is no such checkpoint, or its base model is not there.
    """
    run_id, step = str(spec["run"]), int(spec["step"])
    found = dict(checkpoint.steps(run_folder(run_id))) if is_run_id(run_id) else {}
    if step not in found:
        raise LabError(f"The run {run_id} has no checkpoint of step {step} any more: ask for a newer one.")
    target = made(file(run_id).parent, spare=True) / file(run_id).name
    with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as temporary:
        folder = Path(temporary) / f"{run_id}-merged"
        resolve_name("labcore.llm.nets.model:export_merged")(fetch.bring(found[step]) / "policy", folder)
        atomic.write_file(target, lambda packed: pack(folder, packed))
    return {"bytes": target.stat().st_size}
