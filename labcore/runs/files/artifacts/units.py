"""Units of publishing: folders of the lab's home, by their paths there. A manifest names their files.

| thing                     | whole | holds |
|---------------------------|-------|-------|
| `RUN/checkpoints/step-N`  | yes   | a checkpoint |
| `RUN/start`               | yes   | what a fork starts from |
| `base/HASH`               | yes   | a base model |
| `uploads/PLACE`           | yes   | a file of the user's |
| `RUN/samples`, `RUN/lines`| no    | a JSON file for a step |
| `RUN/run`                 | no    | the files of `LOOSE` that lie in the run's folder itself |

A thing that is whole is there with all its files or not at all, and never changes, except that an old large checkpoint
loses its optimizer state. Of the others each file stands for
itself. A unit is what is published in one go: `RUN`, `base/HASH` or `uploads/PLACE`.
"""

from __future__ import annotations

import re
from pathlib import Path

from labcore.errors import LabError, quoted
from labcore.runs.files.paths import BEST, CHECKPOINTS, LOG, PICTURES, START, STEP, VERSIONS, home, is_id, is_run_id

RUN = "run"
LOOSE = ("spec.json", VERSIONS, "columns.safetensors", LOG, BEST)
_WHOLE = re.compile(rf"(?P<thing>(?:base|uploads)/\w+|[^/]+/(?:{CHECKPOINTS}/{STEP}|{START}))(?:/.*)?")
_INSIDE = re.compile(rf"(?:base|uploads)/\w+(?:/.*)?|[^/]+/{CHECKPOINTS}/{STEP}(?:/.*)?")


def folder(thing: str) -> Path:
    """The folder of a thing in this home. Raises LabError if no thing can have this name."""
    if not can_be(thing):
        raise LabError(f"{quoted(thing)} is not a valid name for stored files: the lab does not look for it.")
    return home() / thing.removesuffix(f"/{RUN}")


def can_be(thing: str) -> bool:
    """True if the name can be that of a thing or a unit: ids with slashes between them."""
    return all(map(is_id, thing.split("/")))


def place(path: Path) -> str | None:
    """A path below this home as a text with slashes; None where it is, or may be, elsewhere."""
    return path.relative_to(home()).as_posix() if path.is_relative_to(home()) and ".." not in path.parts else None


def whole_with(path: Path) -> str | None:
    """The whole thing that `path` is, or is in."""
    found = _WHOLE.fullmatch(place(path) or "")
    return found["thing"] if found and _can_be(found["thing"]) else None


def loose_with(path: Path) -> tuple[str, str] | None:
    """The thing and the name of a file that stands for itself."""
    parts = (place(path) or "").split("/")
    if len(parts) == 3 and parts[1] in PICTURES and is_run_id(parts[0]):
        return f"{parts[0]}/{parts[1]}", parts[2]
    if len(parts) == 2 and parts[1] in LOOSE and is_run_id(parts[0]):
        return f"{parts[0]}/{RUN}", parts[1]
    return None


def moved(path: Path) -> Path | None:
    """The path in this home of a checkpoint, a base or an upload that `path` names in the home of another machine.

    Homes may lie anywhere: what counts is the end of the path, the shortest one that names such a thing.
    """
    parts = path.parts[1:] if path.is_absolute() else ()
    for at in reversed(range(len(parts))):
        rest = "/".join(parts[at:])
        if _INSIDE.fullmatch(rest) and whole_with(home() / rest):
            return home() / rest
    return None


def unit_with(path: Path) -> str | None:
    """The unit that `path` belongs to; None of what is never published."""
    parts = (place(path) or "").split("/")
    if parts[0] in ("base", "uploads"):
        return "/".join(parts[:2]) if len(parts) > 1 and is_id(parts[1]) else None
    return parts[0] if is_run_id(parts[0]) else None


def is_run(unit: str) -> bool:
    """True if a unit is a run."""
    return "/" not in unit


def safe(name: str) -> bool:
    """True if a name in a manifest, or of an object, stays within its folder and is not that folder itself."""
    return not {"", ".", ".."} & {*name.split("/")} and not set(name) & set("\\\0:")


def _can_be(thing: str) -> bool:
    first = thing.split("/")[0]
    return can_be(thing) and (first in ("base", "uploads") or is_run_id(first))
