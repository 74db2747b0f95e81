"""Save disk space in checkpoints: equal files are stored once, and old large checkpoints drop their optimizer state.

AdamW's moments take twice the bytes of the weights, and only an exact continuation needs them. So of a run whose
optimizer state is large the newest checkpoints keep it, and older ones keep the weights alone. A dropped file is
replaced by one without tensors: the checkpoint can be read as before, and an optimizer that reads it starts anew.
"""

from __future__ import annotations

import filecmp
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from labcore.files import atomic

OPTIMIZERS = "optimizer_*.safetensors"
OPTIMIZER_BYTES = 100_000_000  # state up to this size is always kept: that of every built-in model
SHARED_BYTES = 1_000_000  # smaller files are not compared
_HEADER = b'{"__metadata__":{"optimizer":"dropped"}}'
DROPPED = len(_HEADER).to_bytes(8, "little") + _HEADER  # a safetensors file without tensors


def drop_optimizer(folder: Path) -> None:
    """Drop the optimizer state of a checkpoint where it is large. Copies elsewhere, which may be links, keep theirs."""
    files = [path for path in folder.glob(OPTIMIZERS) if path.stat().st_size > len(DROPPED)]
    if sum(path.stat().st_size for path in files) > OPTIMIZER_BYTES or (files and is_dropped(folder)):
        for path in files:  # the second case: a process was killed between two files
            atomic.write_bytes(path, DROPPED, sync=True)


def is_dropped(folder: Path) -> bool:
    """Whether the checkpoint in `folder` has lost optimizer state."""
    return any(path.stat().st_size == len(DROPPED) and path.read_bytes() == DROPPED
               for path in folder.glob(OPTIMIZERS) if path.exists())


def share_equal(folder: Path, earlier: Path) -> None:
    """Replace each large file of `folder` that `earlier` has as well, byte for byte, by a link to that one."""
    for path in _files(folder):
        there = earlier / path.relative_to(folder)
        if path.stat().st_size < SHARED_BYTES or not there.is_file() or path.samefile(there):
            continue
        if filecmp.cmp(path, there, shallow=False):
            path.unlink()
            atomic.link(there, path)


def own_bytes(folders: Sequence[Path]) -> list[int]:
    """Bytes of each folder in files that no other one of `folders` shares: what deleting it frees."""
    stats = [_stats(folder) for folder in folders]
    shared = Counter((stat.st_dev, stat.st_ino) for each in stats for stat in each)
    return [sum(stat.st_size for stat in each if shared[stat.st_dev, stat.st_ino] == 1) for each in stats]


def _stats(folder: Path) -> list[os.stat_result]:
    """Of each file that is still there: another thread may delete some."""
    found = []
    for path in _files(folder):
        with suppress(FileNotFoundError):
            found.append(path.stat())
    return found


def _files(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder):
        yield from (Path(root) / name for name in names)
