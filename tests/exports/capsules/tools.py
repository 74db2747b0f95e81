"""Runs to pack, and capsules packed again as somebody else might have."""

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from labcore.errors import LabError
from labcore.exports.capsules import packing, reading
from labcore.runs.spec.run_spec import RunSpec, make
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.runs import fake

SMALL = {"prompts_per_step": 4, "group_size": 4, "sft_steps": 3, "max_new_tokens": 4}
Moves = dict[int, tuple[str, float]]  # after the step: a knob and its value


def maze(steps: int = 12, algorithm: str = "q_learning", **knobs) -> RunSpec:
    return make(kind="maze", algorithm_key=algorithm, task_key="textbook", steps=steps, knobs={"pace": 0.0} | knobs)


def ran(store: Store, spec: RunSpec, moves: Moves | None = None, stop: int | None = None) -> str:
    """A run of `spec` whose knobs are moved after some steps, stopped after step `stop`."""
    run_id = store.create(spec)

    def on_record(of: str, record: Record, seconds: float) -> None:
        if of == run_id and record.step in (moves or {}):
            key, value = moves[record.step]
            store.ask(run_id, "set", {"knob": key, "value": value})
        if of == run_id and record.step == stop:
            store.ask(run_id, "stop")

    assert drive(store, run_id, on_record=on_record) == ("stopped" if stop else "finished"), store.run(run_id).message
    return run_id


def faked(store: Store, steps: int = 25, **knobs) -> str:
    """A run without a model, with one knob moved."""
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
    told = json.loads(files.pop(packing.MANIFEST)) | manifest
    if "files" not in manifest:
        told["files"] = {name: {"sha256": hashlib.sha256(text).hexdigest(), "bytes": len(text)}
                         for name, text in files.items()}
    return rewritten(path, files | {packing.MANIFEST: json.dumps(told).encode()})


def rewritten(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def refused(path: Path) -> str:
    """Why the capsule is refused: one sentence or two, about this file."""
    with pytest.raises(LabError) as caught, reading.unpacked(path):
        raise AssertionError("it was read")
    assert "\n" not in str(caught.value)
    return str(caught.value)
