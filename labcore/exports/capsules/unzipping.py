"""Unpack the zip of a run capsule without trusting it.

It is unpacked under names that cannot lead out of the folder, no more of it than there is room for, and each file is
compared with its hash in the manifest. A small zip cannot make much work: its directory, how far it unpacks and each
file but the checkpoints have bounds. What the files say is for `reading` to check. Imports no torch.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from labcore.errors import LabError, first_line, os_reason, quoted
from labcore.exports.capsules import packing
from labcore.exports.capsules.packing import CHECKPOINTS, DATA, EVENTS, FORMAT, MANIFEST, SEEN, SPEC, VERSION
from labcore.runs.faults import disk_full
from labcore.runs.files import jsonl, untrusted
from labcore.runs.files.adapters import BESIDE
from labcore.runs.files.paths import is_id
from labcore.runs.store.rows import STATES

LARGEST = 16 * 2**30  # bytes unpacked
MOST_FILES = 10_000
MOST_SHRUNK = 100  # how many times smaller than its content a zip may be
SMALL = 2**20  # bytes of the content that do not count for that
TABLE_BYTES = {packing.METRICS: 64 * 2**20, EVENTS: 16 * 2**20, packing.KNOBS: 16 * 2**20}  # the largest table
TEXT_BYTES = 4 * 2**20  # the largest manifest or spec
DIRECTORY_BYTES = 8 * 2**20  # the largest list of the files in a zip
LATEST = 4e9  # seconds since 1970
_BLOCK = 2**20
_CHECKPOINT, _SEEN = re.compile(r"step-([0-9]{6,15})"), re.compile(r"step-([0-9]{6,15})\.json")


def unpack(path: Path, folder: Path) -> dict[str, Any]:
    """Unpack the capsule at `path` into the empty `folder`, and return its manifest. Raises LabError if it is no
    capsule, of another version, damaged, incomplete, too large, or tries to write elsewhere."""
    try:
        with untrusted.opened(path) as file, zipfile.ZipFile(_Sparing(file)) as archive:
            manifest = _manifest(path.name, archive)
            _extract(path.name, archive, manifest["files"], folder)
            return manifest
    # zipfile raises the last two for a compression it does not know, and for an encrypted file.
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise LabError(f"{path.name} is not a whole zip file ({first_line(error)}): copy it again, or export the "
                       "run again.") from error
    except OSError as error:
        why = "the disk is full" if disk_full(error) else os_reason(error)
        raise LabError(f"{path.name} cannot be unpacked into {tempfile.gettempdir()} ({why}): free some space, or "
                       "set TMPDIR to another folder.") from error


class _Sparing:
    """A file of which no more than `DIRECTORY_BYTES` is read at once: zipfile reads the whole list of files so."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(DIRECTORY_BYTES + 1 if size < 0 else min(size, DIRECTORY_BYTES + 1))
        if len(content) > DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"its list of files has more than {DIRECTORY_BYTES // 2**20} MiB")
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _manifest(name: str, archive: zipfile.ZipFile) -> dict[str, Any]:
    """The manifest, after checking that the zip can be unpacked at all."""
    _check_names(name, archive.namelist())
    _check_entries(name, archive)
    manifest = _read_manifest(name, archive)
    _check_manifest(name, manifest)
    listed, there = {*manifest["files"], MANIFEST}, set(archive.namelist())
    if missing := sorted(listed - there):
        raise fault(name, f"{quoted(missing[0])} is missing")
    if extra := sorted(there - listed):
        raise fault(name, f"{quoted(extra[0])} is not in its manifest")
    for file in manifest["files"]:
        _check_size(name, archive, file)
    return manifest


def _check_entries(name: str, archive: zipfile.ZipFile) -> None:
    """All are plain files, and there is room for them."""
    entries = archive.infolist()
    for entry in entries:
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise fault(name, f"{quoted(entry.filename)} is a link")
        if entry.flag_bits & 0x1:
            raise fault(name, f"{quoted(entry.filename)} is encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise fault(name, f"{quoted(entry.filename)} is compressed in another way than the lab does")
    assert archive.fp is not None, "it is open"
    total, packed = sum(entry.file_size for entry in entries), archive.fp.seek(0, 2)  # files in it may share bytes
    seen = sum(entry.file_size for entry in entries if entry.filename.split("/")[0] in SEEN)
    if seen > packing.MOST_SEEN:
        raise fault(name, f"its {' and '.join(SEEN)} have {seen / 2**20:.0f} MiB, more than "
                    f"{packing.MOST_SEEN / 2**20:.0f}")
    if total > min(LARGEST, SMALL + MOST_SHRUNK * packed):
        raise fault(name, f"it would unpack to {total / 2**20:.1f} MiB from {packed / 2**20:.2f} MiB")
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if total > free:
        raise LabError(f"{name} needs {total / 2**20:.0f} MiB, and {tempfile.gettempdir()} has {free / 2**20:.0f} MiB "
                       "left: free some space, or set TMPDIR to another folder.")


def _read_manifest(name: str, archive: zipfile.ZipFile) -> dict[str, Any]:
    """The content of the manifest. Raises LabError if this lab cannot read its version."""
    if MANIFEST not in archive.namelist():
        raise LabError(f"{name} holds no {MANIFEST}, so it is no run capsule: make one with export --capsule.")
    _check_size(name, archive, MANIFEST)
    manifest = read_json(name, MANIFEST, archive.read(MANIFEST))
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise LabError(f"The {MANIFEST} of {name} is not a run capsule's: make one with export --capsule.")
    if manifest.get("version") != VERSION:
        raise LabError(f"{name} is a capsule of version {quoted(manifest.get('version'))}, and this lab reads version "
                       f"{VERSION}: use the lab that wrote it, or a newer one.")
    return manifest


def _check_size(name: str, archive: zipfile.ZipFile, file: str) -> None:
    """No file is larger than its kind can be: all but the checkpoints are read as a whole."""
    top = file.split("/")[0]
    most = {CHECKPOINTS: LARGEST, DATA: jsonl.LIMIT, **dict.fromkeys(SEEN, packing.LONGEST_SEEN),
            **TABLE_BYTES}.get(top, TEXT_BYTES)
    if (size := archive.getinfo(file).file_size) > most:
        raise fault(name, f"{quoted(file)} has {size / 2**20:.0f} MiB, more than {most / 2**20:.0f}")


def _check_names(name: str, names: list[str]) -> None:
    """Every name is a plain relative path of its own, also on a system that does not tell upper from lower case."""
    if len(names) > MOST_FILES:
        raise fault(name, f"it holds {len(names):,} files")
    seen, folders = set(), set()
    for entry in names:
        parts = entry.split("/")
        if entry.startswith("/") or "\\" in entry or ":" in entry or {"", ".", ".."} & set(parts) or (
                not entry.isprintable()):
            raise fault(name, f"{quoted(entry)} is not a plain path within it")
        if entry.casefold() in seen:
            raise fault(name, f"{quoted(entry)} is in it twice")
        seen.add(entry.casefold())
        folders |= {parent.as_posix() for parent in PurePosixPath(entry.casefold()).parents}
    if both := sorted(seen & folders):
        raise fault(name, f"{quoted(both[0])} is a file and a folder in it")


def _check_manifest(name: str, manifest: dict[str, Any]) -> None:
    wanted = {"run": str, "state": str, "message": str, "step": int, "made_with": list,
              "exported_with": dict, "left_out": dict, "files": dict}
    for key, kind in wanted.items():
        if not isinstance(manifest.get(key), kind):
            raise fault(name, f"its manifest has no proper {quoted(key)}")
    _check_files(name, manifest)
    times = [manifest.get("created"), *(manifest[key] for key in ("started", "ended") if manifest.get(key) is not None)]
    if not all(is_time(time) for time in times):
        raise fault(name, "its manifest has no proper times")
    if not is_id(manifest["run"]) or manifest["state"] not in STATES:
        raise fault(name, "its manifest names no run of the lab")
    if not all(isinstance(entry, dict) and type(entry.get("from", 0)) is int for entry in manifest["made_with"]):
        raise fault(name, "its manifest has no proper 'made_with'")
    left_out, kinds = manifest["left_out"], {"checkpoint": str, "bytes": int, "weights": dict}
    if left_out and not all(type(left_out.get(key)) is kind for key, kind in kinds.items()):
        raise fault(name, "its manifest has no proper 'left_out'")


def _check_files(name: str, manifest: dict[str, Any]) -> None:
    """Each listed file has a hash and a place in a capsule; the ones without which there is no run are there."""
    for file, seal in manifest["files"].items():
        if not isinstance(seal, dict) or not isinstance(seal.get("sha256"), str):
            raise fault(name, f"its manifest has no hash of {quoted(file)}")
        if not _belongs(file):
            raise fault(name, f"{quoted(file)} is no part of a capsule")
        dated = _CHECKPOINT.match(file.split("/")[1]) if file.startswith(f"{CHECKPOINTS}/") else None
        if dated and int(dated[1]) > manifest["step"]:
            raise fault(name, f"{quoted(file)} is of a later step than its last, {manifest['step']}")
    for part in (SPEC, EVENTS, packing.METRICS):
        if part not in manifest["files"]:
            raise fault(name, f"{quoted(part)} is missing")


def is_time(value: object) -> bool:
    """Whether it is a number of seconds since 1970 that a clock of our days can show."""
    return (type(value) is int or type(value) is float) and 0 <= value <= LATEST


def _belongs(file: str) -> bool:
    top, *rest = file.split("/")
    if top == CHECKPOINTS:
        return len(rest) > 1 and (rest[0] == BESIDE or bool(_CHECKPOINT.fullmatch(rest[0])))
    if top == DATA:
        return len(rest) == 1
    if top in SEEN:
        return len(rest) == 1 and bool(_SEEN.fullmatch(rest[0]))
    return not rest and top in (SPEC, EVENTS, packing.METRICS, packing.KNOBS, packing.README)


def _extract(name: str, archive: zipfile.ZipFile, files: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    for file, seal in files.items():
        target, digest = folder / file, hashlib.sha256()
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(file) as source, target.open("xb") as sink:
            while block := source.read(_BLOCK):
                digest.update(block)
                sink.write(block)
        if digest.hexdigest() != seal["sha256"]:
            raise LabError(f"{file} in {name} was changed after packing (its SHA-256 does not match): copy the capsule "
                           "again, or export the run again.")


def check_values(name: str, file: str, content: bytes) -> None:
    """Raise LabError where JSON, or a table with JSON in it, may hold more values than there is room for."""
    if packing.values(content) > (most := packing.most_values(file)):
        raise fault(name, f"its {file} has more than {most:,} values")


def read_json(name: str, file: str, content: bytes) -> Any:
    """The content of a JSON file of the capsule `name`. Raises LabError if it is not JSON or has too many values."""
    check_values(name, file, content)
    try:
        return untrusted.json_of(content)
    except untrusted.NotJSON as error:
        raise fault(name, f"its {file} is not JSON that can be read: {error}") from error


def fault(name: str, what: str) -> LabError:
    """The error that the capsule `name` is not sound, because of `what`."""
    return LabError(f"{name} is not a sound capsule ({what}): copy it again, or export the run again.")
