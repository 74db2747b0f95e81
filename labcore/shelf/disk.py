"""What runs take on the disk, and which of their files can go while their curves and results stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from labcore.files import checkpoints as checkpoint
from labcore.files.artifacts import fetch
from labcore.files.artifacts.deletion import deleted
from labcore.files.paths import check_writable, run_folder
from labcore.files.removal import remove
from labcore.files.sizes import size

SPARE = ("samples", "lines", "export")  # what is there to be looked at, and what can be made again


def spare_size(run_id: str) -> int:
    """Bytes that `delete_spare` would free."""
    return sum(map(size, _spare_folders(run_id)))


def delete_spare(run_id: str) -> int:
    """Delete an ended run's samples, exports and all its checkpoints but the first, the best and the newest; return the
    bytes that it freed.

    Its curves, its events and its result stay: it can be opened, exported, also as a capsule, played and resumed, and
    forked from its start and its end.
    """
    check_writable()
    freed = 0
    for folder in list(_spare_folders(run_id, published=True)):
        freed += size(folder)
        remove(folder)
        deleted(folder)
    return freed


def _spare_folders(run_id: str, published: bool = False) -> Iterator[Path]:
    """Those that are here; with `published` also those that only the object store has."""
    folder = run_folder(run_id)
    yield from (folder / name for name in SPARE
                if (folder / name).is_dir() or (published and fetch.files(run_id, name)))
    found = checkpoint.steps(folder) if published else checkpoint.local(folder)
    best = checkpoint.best_step(folder)
    yield from (path for step, path in found[1:-1] if step != best)
