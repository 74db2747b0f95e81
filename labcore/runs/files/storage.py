"""The lab's folder and the object store behind it: all that the rest of the lab asks of an object store.

Where `RL_LAB_ARTIFACTS` names none, `storage()` is a `Storage`: this machine's files are all there is, nothing is
fetched and nobody is told of a change. Where it names one, `storage()` is `artifacts.shared.Shared`, which is imported
only then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Self, TypeVar

from labcore.errors import LabError
from labcore.runs.files.paths import log_file

VARIABLE, CACHE_VARIABLE, CACHE_GB = "RL_LAB_ARTIFACTS", "RL_LAB_CACHE_GB", 50.0
Result = TypeVar("Result")
Item = TypeVar("Item")


class Away(LabError):
    """The object store does not answer, or not to us: what is asked of it has to wait."""


class Damaged(LabError):
    """What the object store holds is not what was published."""


class Publishing:
    """What publishes the files of a worker or of a lab's server, as a context. This one publishes nothing."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Begin."""

    def close(self) -> None:
        """Publish no more; what is under way is cut off with the process."""

    def begin(self, run_id: str, step: int) -> None:
        """Fetch what other machines have of a run that is about to continue at `step`; from now on publish its changes.

        Raises:
            LabError: the object store is away, and this machine has no checkpoint to continue from.
        """

    def complete(self, run_id: str, cut: Callable[[], bool]) -> None:
        """Publish all files of a run before its last state is written; less patiently once the lab is gone (`cut`)."""


class Storage:
    """The files of this machine alone. Paths are those of the lab's folder."""

    shared = False  # whether machines see each other's files

    def fetch(self, path: Path | str) -> Path:
        """The file or folder at `path`, fetched where this machine lacks it. A path that exists nowhere is returned.

        A path into another machine's home is found in this one, for checkpoints, bases and uploads.

        Raises:
            LabError: it is needed from the object store, which is away or holds it damaged.
            OSError: it cannot be written here.
        """
        return Path(path)

    def has(self, path: Path | str, *, sure: bool = False) -> bool:
        """Whether a file or folder exists here or is published. Fetches nothing. An object store that is away has
        nothing; with `sure` that is a LabError."""
        return Path(path).exists()

    def fetch_run(self, run_id: str) -> None:
        """Fetch all files of a run but its checkpoints. Raises LabError as `fetch`."""

    def fetch_log(self, run_id: str) -> Path:
        """The log of a run that no worker has now, with the lines of workers elsewhere; a missing path where there is
        none."""
        return log_file(run_id)

    def names(self, folder: Path) -> list[str]:
        """The published names in a run's folder of checkpoints, samples or lines; none where the store is away."""
        return []

    def holds(self, checkpoint: Path, content: bytes) -> bool:
        """Whether a file of a published checkpoint has this content."""
        return False

    def copy_start(self, parent: str, checkpoint: str, run_id: str) -> None:
        """Publish for a fork the checkpoint and the spec of its parent. Raises LabError where the store is away."""

    def changed(self, path: Path, marked: Container[int] = ()) -> None:
        """The file or folder at `path` changed, or is about to. `marked`: see `checkpoints.prune`."""

    def deleted(self, path: Path) -> None:
        """What was at `path` is deleted for good. Raises LabError where the setting cannot be used."""

    def publish_now(self, path: Path) -> None:
        """Publish the run or upload of `path` before going on, or later where the object store is away."""

    def publish(self, runs: Any, chosen: Sequence[str], again: bool) -> Iterator[str]:
        """Publish the chosen runs, or everything that is not published; yields a line for each. With `again` also files
        that were published before. `runs` is the lab's Store.

        Raises:
            LabError: there is no object store, or it is away; or this machine cannot publish such a run.
        """
        raise LabError(f"There is no object store to publish to: set {VARIABLE} to s3://BUCKET/FOLDER, "
                       "gs://BUCKET/FOLDER or file:///FOLDER.")

    def of_worker(self, runs: Any) -> Publishing:
        """What publishes the runs of a worker. `runs` is the lab's Store. Raises LabError as `deleted`."""
        return Publishing()

    def of_lab(self, runs: Any) -> Publishing:
        """What publishes the files that the lab's folder has and the object store lacks, and keeps the folder small.

        Raises:
            LabError: the object store cannot be used, or `RL_LAB_CACHE_GB` is no number.
        """
        return Publishing()

    def trim(self, runs: Any) -> None:
        """Delete here, beyond `RL_LAB_CACHE_GB`, what is published and long unused. Raises LabError as `of_lab`."""

    def lacks(self) -> str:
        """The package that this machine lacks for the object store, in words; empty where it lacks none."""
        return ""

    def each(self, do: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """`do` of each item; several at a time where a question to the object store takes long."""
        return [do(item) for item in items]

    def settings(self) -> list[tuple[str, str, str]]:
        """The settings of the object store for people: the name, the value in use, what it does."""
        return [(VARIABLE, "not set",
                 "An object store or a shared folder, through which machines pass each other what is in RL_LAB_HOME"),
                (CACHE_VARIABLE, os.environ.get(CACHE_VARIABLE, "").strip() or f"{CACHE_GB:g}",
                 "With it, the gigabytes of RL_LAB_HOME above which published, unused files are deleted there")]


_ALONE = Storage()


def chosen() -> str:
    """`RL_LAB_ARTIFACTS`; empty where there is no object store."""
    return os.environ.get(VARIABLE, "").strip()


def storage() -> Storage:
    """The storage of this process."""
    return _shared() if chosen() else _ALONE


@cache
def _shared() -> Storage:
    found: Storage = resolve_name("labcore.runs.files.artifacts.shared:Shared")()
    return found


@contextmanager
def in_home(folder: Path) -> Iterator[None]:
    """Have this process work in a lab of its own in `folder`, without an object store; then in the one before."""
    names = ("RL_LAB_HOME", "RL_LAB_STORE", VARIABLE, "RL_LAB_READ_ONLY")
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ["RL_LAB_HOME"] = str(folder)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in before.items() if value is not None})
