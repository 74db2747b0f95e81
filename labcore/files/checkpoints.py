"""Checkpoints: folders `checkpoints/step-000050` that are complete or not there. A session writes what is in them.

Kept are the newest two, the first, and a thinned ladder between them to fork from; the others are deleted by renaming
them away first, so that no half of one is ever seen.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path

from labcore.files import atomic
from labcore.files.sizes import size

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
        atomic.write_folder(target, fill)
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
        _rename_away(path)
    _clear(folder)


def forget_after(run_folder: Path, step: int) -> None:
    """Delete the checkpoints beyond `step`, the last one that the store has of the run: it comes to them again.

    There are some where the store is an older copy that was put back, or lost its last rows with the power.
    """
    for at, path in steps(run_folder):
        if at > step:
            _rename_away(path)
    _clear(run_folder / "checkpoints")


def _rename_away(path: Path) -> None:
    path.rename(path.with_name(f".old-{path.name}"))


def _clear(folder: Path) -> None:
    for path in folder.glob(".*") if folder.is_dir() else ():
        shutil.rmtree(path)


def take_along(parent_folder: Path, step: int, run_folder: Path) -> None:
    """Give a fork the checkpoint of `step` and the spec of its parent, which may lose them before the fork starts.

    The files are linked, so that they take no room. Where that fails the fork has to find them at its parent's.
    """
    def fill(folder: Path) -> None:
        shutil.copytree(dict(steps(parent_folder))[step], folder / "checkpoint", copy_function=atomic.link)
        atomic.link(parent_folder / "spec.json", folder / "spec.json")

    with suppress(KeyError, OSError):
        atomic.write_folder(run_folder / START, fill)
