"""Checkpoints: folders `checkpoints/step-000050` that are complete or not there. A session writes what is in them.

Kept are the newest two, the first, the best by the run's held-out rows (`mark_best`), and a thinned ladder between them
to fork from; the others are deleted by renaming them away first, so that no half of one is ever seen.
Large ones leave out what older checkpoints do not need.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from labcore.catalog.metrics import METRICS
from labcore.runs.files import atomic, storage
from labcore.runs.files.paths import BEST, CHECKPOINTS, START, is_checkpoint
from labcore.runs.files.removal import remove
from labcore.runs.files.untrusted import json_of

# ---------------------------------------------------------------- checkpoint space
# Save disk space in checkpoints: equal files are stored once, and old large checkpoints drop their optimizer state.
#
# AdamW's moments take twice the bytes of the weights, and only an exact continuation needs them. So of a run whose
# optimizer state is large the newest checkpoints keep it, and older ones keep the weights alone. A dropped file is
# replaced by one without tensors: the checkpoint can be read as before, and an optimizer that reads it starts anew.

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
    """True if the checkpoint in `folder` has lost optimizer state."""
    return any(path.stat().st_size == len(DROPPED) and path.read_bytes() == DROPPED
               for path in folder.glob(OPTIMIZERS) if path.exists())


def share_equal(folder: Path, earlier: Path) -> None:
    """Replace each large file of `folder` that is equal byte for byte in `earlier` by a link to the earlier file."""
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


# ---------------------------------------------------------------- checkpoints

KEEP = 2
LADDER_KNOB = "ladder_mb"  # see `catalog.llm.upkeep`
_OLD, _UNFINISHED = ".old-", ".step-"  # how the names of folders begin that are deleted, or were not completed
_MARK = ("step", "metric", "value")  # of the best checkpoint
LADDER, LADDER_BYTES = 10, 4_000_000_000  # at most: checkpoints, and bytes, between the first and the newest two


def save(run_folder: Path, step: int, fill: Callable[[Path], None], marked: Container[int] = ()) -> Path:
    """Write the checkpoint of `step` by `fill(folder)` and prune the ones before it; see `prune` for `marked`.

    An existing checkpoint of that step is kept, because a run repeats its steps exactly. Raises OSError if the disk is
    full or not writable; nothing is left of the attempt.
    """
    target = run_folder / CHECKPOINTS / name_of(step)
    storage.changed(run_folder, marked)
    if not target.exists():
        before = [path for at, path in local(run_folder) if at < step][-1:]

        def fill_and_share(folder: Path) -> None:
            fill(folder)
            for earlier in before:
                share_equal(folder, earlier)
        atomic.write_folder(target, fill_and_share)
    prune(run_folder, marked=marked)
    storage.changed(run_folder, marked)
    return target


def steps(run_folder: Path) -> list[tuple[int, Path]]:
    """The complete checkpoints of a run, oldest first: (step, folder). Also those that another machine has published:
    `at` and `newest` fetch them."""
    published = {run_folder / CHECKPOINTS / name for name in storage.names(run_folder.name, CHECKPOINTS)}
    return sorted((step_of(path.name), path) for path in published | {path for _, path in local(run_folder)})


def local(run_folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints that this machine has."""
    folder = run_folder / CHECKPOINTS
    found = [path for path in folder.iterdir() if is_checkpoint(path.name)] if folder.is_dir() else []
    return sorted((step_of(path.name), path) for path in found)


def at(run_folder: Path, step: int) -> Path | None:
    """The folder of the checkpoint of `step`, fetched if this machine lacks it; None if there is none. Raises LabError
    if another machine has published it and it cannot be fetched."""
    path = dict(steps(run_folder)).get(step)
    return path and storage.fetch(path)


def newest(run_folder: Path) -> tuple[int, Path] | None:
    """The newest complete checkpoint, or None. Raises LabError as `at`."""
    found = steps(run_folder)
    return (found[-1][0], storage.fetch(found[-1][1])) if found else None


def newest_step(run_folder: Path) -> int | None:
    """The step of the newest complete checkpoint, or None. Fetches nothing."""
    found = steps(run_folder)
    return found[-1][0] if found else None


def name_of(step: int) -> str:
    """The name of the folder of a step's checkpoint."""
    return f"step-{step:06d}"


def step_of(name: str) -> int:
    """The step of a checkpoint with this name."""
    return int(name.removeprefix("step-"))


def prune(run_folder: Path, keep: int = KEEP, marked: Container[int] = ()) -> None:
    """Delete the checkpoints that are not kept (see the module), and those that a killed worker left incomplete.

    The ladder first loses the steps that are closest to their neighbours, and last the steps `marked`. Before that, all
    but the newest lose their optimizer state where it is large.
    """
    folders = dict(local(run_folder))
    for path in list(folders.values())[:-keep]:
        drop_optimizer(path)
    for step in spare(list(sizes(run_folder).items()), keep, marked, ladder_bytes(run_folder), best_here(run_folder)):
        _rename_away(folders[step])
    _clear(run_folder / CHECKPOINTS)


def sizes(run_folder: Path) -> dict[int, int]:
    """Bytes that each checkpoint on this machine takes for itself, by its step."""
    found = local(run_folder)
    return dict(zip([step for step, _ in found], own_bytes([path for _, path in found]), strict=True))


def ladder_bytes(run_folder: Path) -> int:
    """The bound of a run's ladder: that of its spec, or the default where the spec has none."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(json_of((run_folder / "spec.json").read_bytes())["knobs"][LADDER_KNOB]) * 1_000_000
    return LADDER_BYTES


def keeps_optimizer(run_folder: Path, step: int) -> bool:
    """True if the checkpoint of `step` has its optimizer state, so that a continuation from it is exact."""
    path = run_folder / CHECKPOINTS / name_of(step)
    if path.is_dir():
        return not is_dropped(path)
    return not storage.holds(path, DROPPED)


def spare(found: Sequence[tuple[int, int]], keep: int = KEEP, marked: Container[int] = (), most: int | None = None,
          best: int | None = None) -> list[int]:
    """The steps of the checkpoints that can be deleted, among `found`: (step, bytes), oldest first. `most` is the bytes
    of the ladder, which does not include the checkpoint of `best`."""
    there, gone = list(found), []
    most = LADDER_BYTES if most is None else most
    while len(ladder := [each for each in there[1:-keep] if each[0] != best]) > LADDER or (
            sum(size for _, size in ladder) > most):
        places = [place for place in range(1, len(there) - keep) if there[place][0] != best]
        place = min(places, key=lambda place: (there[place][0] in marked, there[place + 1][0] - there[place - 1][0]))
        gone.append(there.pop(place)[0])
    return gone


def mark_best(run_folder: Path, step: int, metric: str, value: float) -> None:
    """Mark the existing checkpoint of `step` as the run's best, with its value of a metric."""
    path = run_folder / BEST
    atomic.write_text(path, json.dumps(dict(zip(_MARK, (step, metric, float(value)), strict=True))))
    storage.changed(path)


def best(run_folder: Path) -> dict[str, Any]:
    """The newest content of `mark_best`; empty if nothing was measured, or the checkpoint is gone."""
    found = _read_mark(storage.fetch(run_folder / BEST))
    return found if found and found["step"] in dict(steps(run_folder)) else {}


def best_here(run_folder: Path) -> int | None:
    """The step of the best checkpoint by what is on this machine, where the run trains: no store is asked."""
    return _read_mark(run_folder / BEST).get("step")


def _read_mark(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found: dict[str, Any] = json_of(path.read_bytes())
        whole = isinstance(found, dict) and [type(found.get(key)) for key in _MARK] == [int, str, float]
        if whole and found["metric"] in METRICS:
            return found
    return {}


def best_step(run_folder: Path) -> int | None:
    """The step of the run's best checkpoint."""
    return best(run_folder).get("step")


def forget_after(run_folder: Path, step: int) -> None:
    """Delete the checkpoints after `step`, the last step of the run in the store. The run will make them again.

    Such checkpoints exist if an older copy of the store was restored, or a power cut lost its last rows.
    """
    for at, path in steps(run_folder):
        if at > step:
            if path.exists():
                _rename_away(path)
            storage.deleted(path)
    _clear(run_folder / CHECKPOINTS)


def _rename_away(path: Path) -> None:
    path.rename(path.with_name(f"{_OLD}{path.name}"))


def _clear(folder: Path) -> None:
    for start in (_OLD, _UNFINISHED) if folder.is_dir() else ():
        for path in folder.glob(f"{start}*"):
            remove(path, below=folder)


def take_along(parent_folder: Path, step: int, run_folder: Path) -> None:
    """Give a fork the checkpoint of `step` and the spec of its parent, which may lose them before the fork starts.

    The files are links, which take no disk space. If that fails, the fork reads its parent's files.
    """
    def fill(folder: Path) -> None:
        shutil.copytree(dict(local(parent_folder))[step], folder / "checkpoint", copy_function=atomic.link)
        atomic.link(parent_folder / "spec.json", folder / "spec.json")

    with suppress(KeyError, OSError):
        atomic.write_folder(run_folder / START, fill)
