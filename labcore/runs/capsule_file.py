"""Read a run capsule that may come from anybody: nothing in it is believed before it is checked, nothing in it is run.

Files are unpacked into a folder that goes away again, under names that cannot lead out of it, each compared with its
hash in the manifest. Numbers, spec and events are read as data and validated as if they were typed in. Imports no
torch.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labcore.catalog.metrics import METRICS
from labcore.errors import LabError
from labcore.runs import capsule
from labcore.runs.capsule import CHECKPOINTS, DATA, EVENTS, FORMAT, MANIFEST, SPEC, VERSION
from labcore.runs.faults import disk_full
from labcore.runs.rows import ENDED, STATES, Event, Step
from labcore.runs.spec import RunSpec, make

LARGEST = 16 * 2**30  # bytes unpacked
MOST_FILES = 10_000
MOST_SHRUNK = 200  # how many times smaller than its content a zip of more than `SMALL` may be
SMALL = 100 * 2**20  # bytes
_TEXT_BYTES = 512 * 2**20  # the largest manifest, spec or table
_BLOCK = 2**20
_COUNTERS = ("step", "tokens", "seconds", "env_steps")
_CHECKPOINT, _RUN_ID = re.compile(r"step-(\d{6,})"), re.compile(r"\w[\w.-]{0,99}")


@dataclass(frozen=True)
class Capsule:
    """A checked capsule, unpacked in `folder`. `spec` still has the capsule's own paths; see `located`."""

    name: str
    folder: Path
    manifest: Mapping[str, Any]
    spec: RunSpec
    rows: tuple[Step, ...]
    events: tuple[Event, ...]

    @property
    def run(self) -> str:
        return self.manifest["run"]

    @property
    def first(self) -> Path | None:
        """The checkpoint that the run began with; None where it was too large for a capsule."""
        path = self.folder / CHECKPOINTS / f"step-{capsule.first_step(self.spec):06d}"
        return path if path.is_dir() and not self.manifest["left_out"] else None

    def located(self, model: str, data: Path | None, device: str | None = None) -> RunSpec:
        """The spec, checked as one that is typed in, with the places of its model and of the user's file here.

        Raises:
            LabError: this lab has no such algorithm, task or knob, or a value is out of bounds.
        """
        spec = self.spec
        return make(kind=spec.kind, algorithm_key=spec.algorithm, task_key=spec.task, model=model, knobs=spec.knobs,
                    seed=spec.seed, steps=spec.steps, device=device or spec.device, threads=spec.threads,
                    data=str(data) if data else None, parent=spec.parent, twin=spec.twin)

    @property
    def data(self) -> Path | None:
        """The user's file."""
        return self.folder / self.spec.data if self.spec.data else None


@contextmanager
def unpacked(path: Path | str) -> Iterator[Capsule]:
    """The capsule at `path`, unpacked for as long as it is needed.

    Raises:
        LabError: it is no capsule, of another version, damaged, incomplete, too large, or tries to write elsewhere.
    """
    path = Path(path)
    if path.is_dir():
        raise LabError(f"{path} is a folder: give a capsule, the zip file that export --capsule writes.")
    if not path.is_file():
        raise LabError(f"There is no file {path}: check the path.")
    with tempfile.TemporaryDirectory(prefix="rl-lab-capsule-") as temporary:
        folder = Path(temporary) / "content"
        folder.mkdir()
        try:
            with zipfile.ZipFile(path) as archive:
                manifest = _manifest(path.name, archive)
                _extract(path.name, archive, manifest["files"], folder)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise LabError(f"{path.name} is not a whole zip file ({_first_line(error)}): copy it again, or export the "
                           "run again.") from error
        except OSError as error:
            why = "the disk is full" if disk_full(error) else error.strerror
            raise LabError(f"{path.name} cannot be unpacked into {tempfile.gettempdir()} ({why}): free some space, or "
                           "set TMPDIR to another folder.") from error
        yield _read(path.name, folder, manifest)


# ---------------------------------------------------------------- the zip


def _manifest(name: str, archive: zipfile.ZipFile) -> dict[str, Any]:
    """The manifest, after checking that the zip can be unpacked at all."""
    entries = archive.infolist()
    _check_names(name, [entry.filename for entry in entries])
    for entry in entries:
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise _fault(name, f"{entry.filename!r} is a link")
        if entry.flag_bits & 0x1:
            raise _fault(name, f"{entry.filename!r} is encrypted")
    total, packed = sum(entry.file_size for entry in entries), sum(entry.compress_size for entry in entries)
    if total > LARGEST or (total > SMALL and total > MOST_SHRUNK * packed):
        raise _fault(name, f"it would unpack to {total / 2**30:.2f} GiB from {packed / 2**20:.1f} MiB")
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if total > free:
        raise LabError(f"{name} needs {total / 2**20:.0f} MiB, and {tempfile.gettempdir()} has {free / 2**20:.0f} MiB "
                       "left: free some space, or set TMPDIR to another folder.")
    if MANIFEST not in archive.namelist():
        raise LabError(f"{name} holds no {MANIFEST}, so it is no run capsule: make one with export --capsule.")
    if archive.getinfo(MANIFEST).file_size > _TEXT_BYTES:
        raise _fault(name, f"its {MANIFEST} is too large")
    manifest = _json(name, MANIFEST, archive.read(MANIFEST))
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise LabError(f"The {MANIFEST} of {name} is not a run capsule's: make one with export --capsule.")
    if manifest.get("version") != VERSION:
        raise LabError(f"{name} is a capsule of version {manifest.get('version')!r}, and this lab reads version "
                       f"{VERSION}: use the lab that wrote it, or a newer one.")
    _check_manifest(name, manifest)
    listed, there = {*manifest["files"], MANIFEST}, set(archive.namelist())
    if missing := sorted(listed - there):
        raise _fault(name, f"{missing[0]!r} is missing")
    if extra := sorted(there - listed):
        raise _fault(name, f"{extra[0]!r} is not in its manifest")
    return manifest


def _check_names(name: str, names: list[str]) -> None:
    """Every name is a plain relative path of its own, also on a system that does not tell upper from lower case."""
    if len(names) > MOST_FILES:
        raise _fault(name, f"it holds {len(names):,} files")
    seen: set[str] = set()
    for entry in names:
        parts = entry.split("/")
        if entry.startswith("/") or "\\" in entry or ":" in entry or {"", ".", ".."} & set(parts) or (
                not entry.isprintable()):
            raise _fault(name, f"{entry!r} is not a plain path within it")
        if entry.casefold() in seen:
            raise _fault(name, f"{entry!r} is in it twice")
        seen.add(entry.casefold())


def _check_manifest(name: str, manifest: dict[str, Any]) -> None:
    wanted = {"run": str, "state": str, "message": str, "created": (int, float), "step": int, "made_with": list,
              "exported_with": dict, "left_out": dict, "files": dict}
    for key, kind in wanted.items():
        if not isinstance(manifest.get(key), kind):
            raise _fault(name, f"its manifest has no proper {key!r}")
    for file, seal in manifest["files"].items():
        if not isinstance(seal, dict) or not isinstance(seal.get("sha256"), str):
            raise _fault(name, f"its manifest has no hash of {file!r}")
        if not _belongs(file):
            raise _fault(name, f"{file!r} is no part of a capsule")
    for part in (SPEC, EVENTS, capsule.METRICS):
        if part not in manifest["files"]:
            raise _fault(name, f"{part!r} is missing")
    if not all(manifest.get(key) is None or isinstance(manifest[key], (int, float)) for key in ("started", "ended")):
        raise _fault(name, "its manifest has no proper times")
    if not _RUN_ID.fullmatch(manifest["run"]) or manifest["state"] not in STATES:
        raise _fault(name, "its manifest names no run of the lab")
    if not all(isinstance(entry, dict) for entry in manifest["made_with"]):
        raise _fault(name, "its manifest has no proper 'made_with'")


def _belongs(file: str) -> bool:
    top, *rest = file.split("/")
    if top == CHECKPOINTS:
        return len(rest) > 1 and bool(_CHECKPOINT.fullmatch(rest[0]))
    if top == DATA:
        return len(rest) == 1
    return not rest and top in (SPEC, EVENTS, capsule.METRICS, capsule.KNOBS, capsule.README)


def _extract(name: str, archive: zipfile.ZipFile, files: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    for file, seal in files.items():
        target, digest = folder / file, hashlib.sha256()
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(file) as source, target.open("xb") as sink:
            while block := source.read(_BLOCK):
                digest.update(block)
                sink.write(block)
        if digest.hexdigest() != seal["sha256"]:
            raise LabError(f"{file} in {name} is not what was packed (its SHA-256 is another one): copy the capsule "
                           "again, or export the run again.")


# ---------------------------------------------------------------- its content


def _read(name: str, folder: Path, manifest: dict[str, Any]) -> Capsule:
    spec = RunSpec.from_json(_text(name, folder, SPEC))
    if not _sound_types(spec) or not _sound_parent(spec.parent):
        raise _fault(name, f"its {SPEC} is no run's")
    if spec.data and (Path(spec.data).parts[0] != DATA or spec.data not in manifest["files"]):
        raise _fault(name, f"its {SPEC} names a file outside of it")
    rows, events = tuple(_rows(name, folder)), tuple(_events(name, folder))
    if not rows or rows[-1].step != manifest["step"]:
        raise _fault(name, f"its {capsule.METRICS} does not end with step {manifest['step']}")
    state = manifest["state"] if manifest["state"] in ENDED else "interrupted"
    found = Capsule(name, folder, {"started": None, "ended": None, **manifest, "state": state}, spec, rows, events)
    if not found.first and not manifest["left_out"]:
        raise _fault(name, "the checkpoint that the run began with is missing")
    return found


def _sound_types(spec: RunSpec) -> bool:
    """What `make` takes for granted; the values themselves are its to check."""
    texts = (spec.kind, spec.algorithm, spec.task, spec.model, spec.device, spec.data or "")
    return all(isinstance(text, str) for text in texts) and isinstance(spec.knobs, dict)


def _sound_parent(parent: object) -> bool:
    return parent is None or (isinstance(parent, tuple) and len(parent) == 2 and isinstance(parent[0], str)
                              and bool(_RUN_ID.fullmatch(parent[0])) and type(parent[1]) is int)


def _rows(name: str, folder: Path) -> Iterator[Step]:
    header, *lines = _table(name, folder, capsule.METRICS)
    unknown = [key for key in header if key not in METRICS and key not in _COUNTERS]
    if unknown:
        raise LabError(f"{name} has the metric {unknown[0]!r}, which this lab does not know: use the lab that wrote "
                       "it, or a newer one.")
    if not {"step", "tokens", "seconds"} <= set(header):
        raise _fault(name, f"its {capsule.METRICS} has no column step, tokens or seconds")
    last = 0
    for line in lines:
        values = {key: _number(name, text) for key, text in zip(header, line, strict=True) if text}
        counters = {key: values.pop(key, 0) for key in _COUNTERS}
        if not all(type(counters[key]) is int for key in ("step", "tokens", "env_steps")) or counters["step"] <= last:
            raise _fault(name, f"its {capsule.METRICS} does not count its steps")
        last = counters["step"]
        yield Step(**counters, metrics=values)


def _events(name: str, folder: Path) -> Iterator[Event]:
    header, *lines = _table(name, folder, EVENTS)
    if not {"step", "time", "kind", "payload"} <= set(header):
        raise _fault(name, f"its {EVENTS} lacks a column")
    for number, line in enumerate(lines, 1):
        row = dict(zip(header, line, strict=True))
        payload = _json(name, EVENTS, row["payload"].encode())
        step, time = _number(name, row["step"]), _number(name, row["time"])
        if not isinstance(payload, dict) or type(step) is not int or not row["kind"].isidentifier() or (
                row["kind"] == "knob" and not _sound_change(payload)):
            raise _fault(name, f"line {number} of its {EVENTS} is no event")
        yield Event(number, step, row["kind"], payload, float(time))


def _sound_change(payload: Mapping[str, Any]) -> bool:
    return (isinstance(payload.get("knob"), str) and type(payload.get("update")) is int
            and payload.get("between") in (0, 1) and isinstance(payload.get("to"), (bool, int, float, str)))


def _table(name: str, folder: Path, file: str) -> list[list[str]]:
    try:
        rows = list(csv.reader(io.StringIO(_text(name, folder, file), newline="")))
    except csv.Error as error:
        raise _fault(name, f"its {file} is no table ({error})") from error
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise _fault(name, f"its {file} is no table")
    return rows


def _text(name: str, folder: Path, file: str) -> str:
    if (folder / file).stat().st_size > _TEXT_BYTES:
        raise _fault(name, f"its {file} is too large")
    try:
        return (folder / file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _fault(name, f"its {file} is not UTF-8") from error


def _json(name: str, file: str, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _fault(name, f"its {file} is not JSON") from error


def _number(name: str, text: str) -> int | float:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _fault(name, f"{text[:40]!r} in its tables is no number")
    return value


def _fault(name: str, what: str) -> LabError:
    return LabError(f"{name} is not a sound capsule ({what}): copy it again, or export the run again.")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
