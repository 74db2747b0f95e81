"""Base models by their names, the hashes of the SFT specs that make them: `base/NAME` in the lab's folder.

A few come with the lab (`labcore/bases/NAME`); one is copied into the lab's folder when a run first starts from it,
and is from then on a base as any other. What is in the folder once never changes, so a spec gives the same run again.
Each has `model`, a Hugging Face folder, and `run.json`, the run that made it: null for one that came with the lab.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import labcore
from labcore.runs.files import atomic, storage, written
from labcore.runs.files.paths import home, is_id, named, read_only

SHIPPED = Path(labcore.__file__).parent / "bases"


def folder(name: str) -> Path:
    """Where the base `name` is kept; not made here. Raises LabError where `name` cannot be an id."""
    return named(name, home() / "base")


def shipped(name: str) -> bool:
    """True if the base comes with the lab."""
    return is_id(name) and (SHIPPED / name).is_dir()


def there(name: str) -> bool:
    """True if a run can start from the base at once: it is in the lab's folder, published, or comes with the lab."""
    return folder(name).exists() or shipped(name) or storage.has(folder(name))


def take(name: str) -> Path | None:
    """The folder of the base, copied from the package where it comes with the lab, or fetched; None where it must be
    made.

    Raises:
        LabError: it is published, and cannot be fetched.
        OSError: it cannot be written.
    """
    target = folder(name)
    if read_only():
        return readable(name)
    if not target.exists() and shipped(name):
        try:
            atomic.write_folder(target, lambda new: _copy(SHIPPED / name, new))
        except OSError:
            if not target.exists():  # else another process was faster
                raise
    elif not shipped(name):
        storage.fetch(target)
    return target if target.exists() else None


def readable(name: str) -> Path | None:
    """The folder of the base for reading. For a base that comes with the lab and from which no run has started, this is
    the package's folder, so that looking at a page copies nothing. Otherwise as `take`."""
    target = folder(name)
    if target.exists():
        return target
    if shipped(name):
        return SHIPPED / name
    storage.fetch(target)
    return target if target.exists() else None


def maker(name: str) -> str | None:
    """The run that made a base of the lab's folder; None for one that came with the lab, or whose file is damaged."""
    try:
        made_by = written.read(folder(name) / "run.json", dict, "which run made this base is not known").get("run")
    except written.Damaged as error:
        print(error, file=sys.stderr, flush=True)
        return None
    return made_by if isinstance(made_by, str) else None


def keep(target: Path, policy: Path, run: str | None) -> None:
    """Make `target` the folder of a base from the weights in `policy`, which `run` made, unless it is there. Raises
    OSError if it cannot be written."""
    def fill(new: Path) -> None:
        shutil.copytree(policy, new / "model")
        (new / "run.json").write_text(json.dumps({"run": run}), encoding="utf-8")

    if not target.exists():
        atomic.write_folder(target, fill)
        storage.changed(target)


def _copy(source: Path, target: Path) -> None:
    """Copy files without their permissions: a package may be installed where nobody may write."""
    for path in source.rglob("*"):
        if path.is_file():
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
