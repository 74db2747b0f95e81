"""Folders and files that are either complete or not there: written under another name, synced, then renamed.

A checkpoint is such a folder, `checkpoints/step-000050`, whose content is the session's affair. Kept are the newest
two, the first, and a thinned ladder between them to fork from; the others are deleted by renaming them away first, so
that no half of one is ever seen.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path

KEEP = 2
LADDER, LADDER_BYTES = 10, 200_000_000  # what is kept between the first and the newest two, at most
START = "start"  # where a fork keeps its parent's checkpoint until it has one of its own
_NAME = re.compile(r"step-(\d{6,})")


def save(run_folder: Path, step: int, fill: Callable[[Path], None], marked: Container[int] = ()) -> Path:
    """Write the checkpoint of `step` by `fill(folder)` and prune the ones before it; see `prune` for `marked`.

    A checkpoint of that step which is there already is kept: a run's steps are the same every time.

    Raises:
        OSError: the disk is full or not writable; nothing is left of the attempt.
    """
    target = run_folder / "checkpoints" / f"step-{step:06d}"
    if not target.exists():
        write_folder(target, fill)
    prune(run_folder, marked=marked)
    return target


def steps(run_folder: Path) -> list[tuple[int, Path]]:
    """The complete checkpoints of a run, oldest first: (step, folder)."""
    folder = run_folder / "checkpoints"
    names = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()] if folder.is_dir() else []
    return sorted((int(match[1]), path) for match, path in names if match)


def newest(run_folder: Path) -> tuple[int, Path] | None:
    """The newest complete checkpoint, or None."""
    found = steps(run_folder)
    return found[-1] if found else None


def prune(run_folder: Path, keep: int = KEEP, marked: Container[int] = ()) -> None:
    """Delete what is not to be kept (see the module), and what a killed worker left half written.

    The ladder loses those first that stand closest to their neighbours, and the steps `marked` last.
    """
    folder, found = run_folder / "checkpoints", steps(run_folder)
    sizes = {path: size(path) for _, path in found[1:-keep]}
    while len(sizes) > LADDER or sum(sizes.values()) > LADDER_BYTES:
        places = range(1, len(found) - keep)
        at = min(places, key=lambda place: (found[place][0] in marked, found[place + 1][0] - found[place - 1][0]))
        _, path = found.pop(at)
        del sizes[path]
        path.rename(folder / f".old-{path.name}")
    for path in folder.glob(".*") if folder.is_dir() else ():
        shutil.rmtree(path)


def size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def take_along(parent_folder: Path, step: int, run_folder: Path) -> None:
    """Give a fork the checkpoint of `step` and the spec of its parent, which may lose them before the fork starts.

    The files are linked, so that they take no room. Where that fails the fork has to find them at its parent's.
    """
    def fill(folder: Path) -> None:
        shutil.copytree(dict(steps(parent_folder))[step], folder / "checkpoint", copy_function=link)
        link(parent_folder / "spec.json", folder / "spec.json")

    with suppress(KeyError, OSError):
        write_folder(run_folder / START, fill)


def link(source: Path | str, target: Path | str) -> None:
    """Have the file at `target` as well, without room of its own where the disk allows that."""
    try:
        os.link(source, target)
    except OSError:  # another disk, or one that knows no links
        shutil.copy2(source, target)


def write_folder(target: Path, fill: Callable[[Path], None]) -> None:
    """Make the folder `target` with the content that `fill(folder)` writes: all of it or nothing.

    Raises:
        OSError: it cannot be written, or `target` is there already; nothing is left of the attempt.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        unfinished.chmod(0o755)  # mkdtemp's own is for one user only
        fill(unfinished)
        for folder, _, files in os.walk(unfinished):
            for name in files:
                _sync(os.path.join(folder, name))
            _sync(folder)
        unfinished.rename(target)
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    _sync(target.parent)


def write_text(path: Path, text: str) -> None:
    """`write_bytes` of `text` as UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` such that a reader finds the old content or the new one.

    Not synced: it can be remade.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def _sync(path: str | Path) -> None:
    folder = os.path.isdir(path)
    if folder and os.name != "posix":
        return  # only POSIX can open a folder
    descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
