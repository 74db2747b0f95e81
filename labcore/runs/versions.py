"""The versions that a run was made with: the lab's code, the libraries and the machine. A replay compares them. Imports
no torch."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import labcore
from labcore.machine import exact_processor
from labcore.runs.files import atomic, storage, written
from labcore.runs.spec.session import Device, Session, device_of

FILE = "versions.json"
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "gymnasium", "safetensors")
# What the numbers of a run depend on.
_ENGINE = ("catalog", "classic", "llm", "maths", "runs", "tasks", "workers")

Versions = dict[str, Any]


def here(device: Device | None = None) -> Versions:
    """The versions of this process. `device` is the session's torch device, where it has one."""
    found: Versions = {"lab": labcore.__version__, "code": code(), **_machine(), "device": "cpu"}
    if torch := sys.modules.get("torch"):
        found |= {"threads": torch.get_num_threads(), "instructions": torch.backends.cpu.get_cpu_capability()}
    if torch and device is not None and device.type != "cpu":
        found["device"] = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return found


@cache
def code() -> str:
    """Twelve hex digits that name the content of the engine's source files, when they were first asked for."""
    root, digest = Path(labcore.__file__).parent, hashlib.sha256()
    for path in sorted([*root.glob("*.py"), *(path for name in _ENGINE for path in (root / name).rglob("*.py"))]):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def note(folder: Path, step: int, session: Session) -> None:
    """Store the versions with which the run in `folder` is made from `step` on, unless they are unchanged."""
    there, now = _read(folder / FILE), here(device_of(session))
    if not there or {key: value for key, value in there[-1].items() if key != "from"} != now:
        atomic.write_text(folder / FILE, json.dumps([*there, {"from": step, **now}], indent=1))


def noted(folder: Path) -> list[Versions]:
    """The versions that `note` wrote. Each entry counts from the step after its `from` up to the `from` of the next
    entry. Empty for an old run."""
    return _read(storage.fetch(folder / FILE))


def _read(path: Path) -> list[Versions]:
    try:
        found = written.read(path, list, "what the run was made with so far is not known")
    except FileNotFoundError:
        return []
    except written.Damaged as error:
        print(error, file=sys.stderr, flush=True)
        return []
    return [each for each in found if isinstance(each, dict)]


@cache
def _machine() -> Versions:
    return {"python": platform.python_version(), **{name: _version(name) for name in LIBRARIES},
            "system": platform.system(), "machine": platform.machine(), "processor": exact_processor()}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # not installed, or put there by hand
        return "unknown"
