"""Capsules to test with: packed, and packed again as somebody else might have."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from labcore.errors import LabError
from labcore.runs import capsule, capsule_file
from labcore.runs.worker import drive
from tests.runs import fake


def ran(store, steps: int = 25, **knobs) -> str:
    run_id = store.create(fake.grpo(steps, **knobs))
    store.ask(run_id, "set", {"knob": "beta", "value": 0.2})
    drive(store, run_id, start=fake.start)
    return run_id


def content(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sealed(path: Path, changed: dict[str, bytes | None] | None = None, **manifest) -> Path:
    """The capsule again with other files (None: left out) under their true hashes, and another manifest."""
    files = {name: text for name, text in (content(path) | (changed or {})).items() if text is not None}
    told = json.loads(files.pop(capsule.MANIFEST)) | manifest
    if "files" not in manifest:
        told["files"] = {name: {"sha256": hashlib.sha256(text).hexdigest(), "bytes": len(text)}
                         for name, text in files.items()}
    return rewritten(path, files | {capsule.MANIFEST: json.dumps(told).encode()})


def rewritten(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def refused(path: Path) -> str:
    """Why the capsule is refused: one sentence or two, about this file."""
    with pytest.raises(LabError) as caught, capsule_file.unpacked(path):
        raise AssertionError("it was read")
    assert "\n" not in str(caught.value)
    return str(caught.value)
