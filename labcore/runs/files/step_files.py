"""The files of a run's steps in its folders `samples` and `lines`: `step-000005.json`, or `step-000005.json.gz` if it
is large. Large files contain mostly numbers as text, and compression saves three quarters of the disk space.

A file of samples begins with the hashes of its prompts, so a page that looks for a prompt in many files reads only the
beginning of each.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from labcore.errors import LabError
from labcore.runs.files import atomic, storage, untrusted
from labcore.runs.files.paths import run_folder
from labcore.runs.files.untrusted import NotJSON, json_of
from labcore.runs.files.written import Damaged

LARGE = 2**19  # bytes of JSON from which a file is compressed
LONGEST = 2**29  # bytes of JSON that are read; no step is larger
_LEVEL = 1  # of gzip: level 3 takes twice as long for 4 % less
PROMPTS = "prompt_hashes"  # the key of the hashes
HEAD = 2**14  # bytes of JSON that are searched for the hashes; 700 prompts fit
_HEAD = re.compile(rf'\{{"step": [0-9]+, "{PROMPTS}": \[((?:"[0-9a-f]{{16}}"(?:, )?)*)\]')
_NAME = re.compile(r"step-([0-9]{6,})\.json(\.gz)?")


def found(folder: Path) -> list[Path]:
    """Return the files in a folder, sorted by step."""
    there = {path: step for path in folder.glob("step-*") if (step := step_of(path.name)) is not None}
    return sorted(there, key=there.__getitem__)


def step_of(name: str) -> int | None:
    """Return the step of a file from its name; None for other files.

    >>> step_of("step-000005.json"), step_of("step-1000000.json.gz"), step_of(".5.part")
    (5, 1000000, None)
    """
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def steps_of(run_id: str, kind: str) -> list[int]:
    """The steps of a run that have a file of `kind` ("samples" or "lines"), oldest first, here or published."""
    names = {path.name for path in found(run_folder(run_id) / kind)} | {*storage.names(run_id, kind)}
    return sorted({step for name in names if (step := step_of(name)) is not None})


def path_of(run_id: str, kind: str, step: int) -> Path:
    """Return the path of a file, downloaded if another machine wrote it. The path may not exist."""
    plain = run_folder(run_id) / kind / f"step-{step:06d}.json"
    packed = _packed(plain)
    return storage.fetch(packed if not plain.exists() and storage.has(packed) else plain)


def write(folder: Path, step: int, text: str) -> Path:
    """Write the JSON of a step, replacing an existing file. Returns its path."""
    plain = folder / f"step-{step:06d}.json"
    if len(text) < LARGE:
        atomic.write_text(plain, text)
        _packed(plain).unlink(missing_ok=True)
        return plain
    atomic.write_bytes(_packed(plain), gzip.compress(untrusted.whole(text).encode(), _LEVEL, mtime=0))
    plain.unlink(missing_ok=True)
    return _packed(plain)


def prompt_hash(group: Mapping[str, Any]) -> str:
    """Return a short hash of a group's prompt, which may be long; of a conversation with all its turns.

    >>> prompt_hash({"prompt": "2 + 2 = "}), prompt_hash({"prompt": "Go on.", "rendered": "2 + 2 = "})
    ('c9237217457c9a2f', 'c9237217457c9a2f')
    """
    whole = untrusted.whole(str(group.get("rendered") or group["prompt"]))
    return hashlib.blake2b(whole.encode(), digest_size=8).hexdigest()


def with_prompts(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a file with the hashes of the prompts of its batch at its beginning, if it has a batch."""
    groups = content.get("groups")
    if not isinstance(groups, list):
        return dict(content)
    return {"step": content["step"], PROMPTS: [prompt_hash(group) for group in groups], **content}


def prompts_of(path: Path) -> list[str] | None:
    """Return the hashes of the prompts from the beginning of a file; None if they are not there, as in files of earlier
    versions, or the file cannot be read."""
    with suppress(OSError, EOFError, zlib.error):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(HEAD).decode("utf-8", "replace")
        if hashes := _HEAD.match(head):
            return re.findall(r"\w+", hashes[1])
    return None


def content(path: Path) -> bytes:
    """Return the JSON in a file.

    Raises:
        FileNotFoundError: it does not exist.
        Damaged: the compressed file is incomplete.
    """
    try:
        return untrusted.unzipped(path.name, path.read_bytes(), LONGEST)
    except LabError as error:
        raise Damaged(f"{path} is damaged ({str(error).partition(':')[0]}): delete it.") from error


def read(path: Path, then: str) -> dict[str, Any]:
    """Read the file of a worker; `then` is the advice in the error if it is damaged.

    Raises:
        FileNotFoundError: it does not exist.
        Damaged: it was not written by a worker.
    """
    try:
        value = json_of(content(path), constants=True)
    except NotJSON as error:
        raise Damaged(f"{path} is damaged ({error}): {then}.") from error
    if not isinstance(value, dict) or not isinstance(value.get("step"), int):
        raise Damaged(f"{path} is damaged (it has no step): {then}.")
    return value


def _packed(plain: Path) -> Path:
    return plain.with_name(f"{plain.name}.gz")
