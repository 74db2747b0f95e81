"""Manifests: of each published thing the names, sizes and SHA-256 of its files. A thing without a manifest does not
exist.

The files lie beside it in the store, each under its hash. The manifest is written when all of them are there, and
deleted before they are.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from labcore.runs.files.artifacts.object_store import ObjectStore
from labcore.runs.files.artifacts.units import safe
from labcore.runs.files.storage import Damaged
from labcore.runs.files.untrusted import json_of

NAME, FORMAT = "manifest.json", 1
_CHUNK = 2**20


@dataclass(frozen=True)
class File:
    """A file's bytes and the hex digits of its SHA-256."""

    size: int
    sha256: str


Manifest = dict[str, File]  # by the file's name within the thing


def of_file(path: Path) -> File:
    """The entry of a manifest for the file at `path`."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return File(size, digest.hexdigest())


def of_bytes(content: bytes) -> File:
    """The entry of a file with this content."""
    return File(len(content), hashlib.sha256(content).hexdigest())


def read(store: ObjectStore, thing: str) -> Manifest | None:
    """The manifest of a thing; None if it is not published. Raises LabError if the store is away, or the manifest is
    damaged."""
    content = store.get(f"{thing}/{NAME}")
    if content is None:
        return None
    try:
        fields = json_of(content)
        files = {name: File(int(file["size"]), str(file["sha256"])) for name, file in fields["files"].items()}
        if fields["format"] != FORMAT or not all(safe(name) and _possible(file) for name, file in files.items()):
            raise ValueError("its format, a name, a size or a hash is wrong")
        return files
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(store, thing, "its manifest cannot be read") from error


def _possible(file: File) -> bool:
    """True if the hash is one: it names an object, which is fetched, copied and deleted."""
    return file.size >= 0 and re.fullmatch("[0-9a-f]{64}", file.sha256) is not None


def write(store: ObjectStore, thing: str, files: Mapping[str, File]) -> None:
    """Write the manifest of a thing. From now on the thing exists in the store."""
    text = json.dumps({"format": FORMAT, "files": {name: asdict(files[name]) for name in sorted(files)}},
                      ensure_ascii=False)
    store.put(f"{thing}/{NAME}", text.encode())


def damaged(store: ObjectStore, thing: str, what: str) -> Damaged:
    """The sentence about a thing of the store that cannot be used."""
    return Damaged(f"{thing} in {store.url} is damaged ({what}), so it is not used: python -m labcore publish RUN "
                   "--again on a machine that has the files sends them anew.")
