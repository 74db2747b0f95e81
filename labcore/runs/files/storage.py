"""The lab's folder and the object store behind it: all that the rest of the lab asks of an object store.

If `RL_LAB_ARTIFACTS` is not set, the functions here run as written: only this machine's files exist, nothing is fetched
and no change is reported. If it is set, the functions of `artifacts` that they name run instead, and only then that
package is imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ParamSpec, Self, TypeVar

from labcore.errors import LabError
from labcore.runs.files.paths import log_file

VARIABLE, CACHE_VARIABLE, CACHE_GB = "RL_LAB_ARTIFACTS", "RL_LAB_CACHE_GB", 50.0
PACKAGE = "labcore.runs.files.artifacts"
Given = ParamSpec("Given")
Result = TypeVar("Result")
Item = TypeVar("Item")


class Away(LabError):
    """The object store does not answer, or refuses us, so requests to it have to wait."""


class Damaged(LabError):
    """The object store's content differs from what was published."""


class Publishing:
    """A context that publishes the files of a worker or of a lab's server. This one publishes nothing."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Begin."""

    def close(self) -> None:
        """Stop publishing. An unfinished transfer ends with the process."""

    def begin(self, run_id: str, step: int) -> None:
        """Fetch the files of other machines for a run that continues at `step`, and publish its changes from now on.
        Raises LabError where the object store is away, and this machine has no checkpoint to continue from."""

    def complete(self, run_id: str, cut: Callable[[], bool]) -> None:
        """Publish all files of a run before its last state is written; with less patience once the lab has ended
        (`cut`)."""


def chosen() -> str:
    """`RL_LAB_ARTIFACTS`; empty where there is no object store."""
    return os.environ.get(VARIABLE, "").strip()


def shown(url: str) -> str:
    """The URL fit for a message: without a key that somebody wrote into it.

    >>> shown("s3://key:secret@bucket/lab?token=1"), shown("file:///home/me@work"), shown("")
    ('s3://bucket/lab', 'file:///home/me@work', '')
    """
    scheme, mark, place = url.partition("://")
    return url if scheme == "file" else f"{scheme}{mark}{re.split('[?#]', place.rpartition('@')[2])[0]}"


def _answered_by(function: str) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Have a function of `artifacts` answer where there is an object store."""
    def decorated(alone: Callable[Given, Result]) -> Callable[Given, Result]:
        @wraps(alone)
        def ask(*given: Given.args, **named: Given.kwargs) -> Result:
            answer: Callable[Given, Result] = resolve_name(f"{PACKAGE}.{function}") if chosen() else alone
            return answer(*given, **named)
        return ask
    return decorated


@_answered_by("fetch:bring")
def fetch(path: Path | str) -> Path:
    """The file or folder at `path`, fetched where this machine lacks it. A path that exists nowhere is returned.

    A path into another machine's home is found in this one, for checkpoints, bases and uploads.

    Raises:
        LabError: it is needed from the object store, which is away or holds it damaged.
        OSError: it cannot be written here.
    """
    return Path(path)


@_answered_by("fetch:there")
def has(path: Path | str, *, sure: bool = False) -> bool:
    """True if a file or folder exists here or is published. Fetches nothing. An object store that is away has nothing;
    with `sure` that is a LabError."""
    return Path(path).exists()


@_answered_by("fetch:bring_run")
def fetch_run(run: str) -> None:
    """Fetch all files of a run but its checkpoints, also what workers elsewhere added to its versions and its log.
    Raises LabError if the object store is away; or if it holds a damaged file, which is reported after all other files
    have been fetched."""


@_answered_by("fetch:bring_log")
def fetch_log(run: str) -> Path:
    """The log of a run that no worker has now, with the lines of workers on other machines; the path does not exist if
    there is no log."""
    return log_file(run)


@_answered_by("fetch:names")
def names(run: str, kind: str) -> list[str]:
    """The names of a run's published checkpoints, samples or lines; none where the object store is away."""
    return []


@_answered_by("fetch:holds")
def holds(checkpoint: Path, content: bytes) -> bool:
    """True if a file of a published checkpoint has this content."""
    return False


@_answered_by("fetch:take_along")
def copy_start(parent: str, step: str, run: str) -> None:
    """Publish the start of the fork `run`: copy it from the files that its parent has published. Raises LabError if the
    object store is away."""


@_answered_by("changes:changed")
def changed(path: Path, marked: Container[int] = ()) -> None:
    """The file or folder at `path` changed, or is about to. `marked`: see `checkpoints.prune`."""


@_answered_by("deletion:deleted")
def deleted(path: Path) -> None:
    """Report that `path` has been deleted for good. Raises LabError if the setting of the object store cannot be
    used."""


@_answered_by("publish:now")
def publish_now(path: Path) -> None:
    """Publish the unit of `path` before going on: a worker elsewhere may need it at once. Where the object store is
    away, it is published later."""


@_answered_by("publishers:by_hand")
def publish(runs: Any, chosen: Sequence[str], again: bool) -> Iterator[str]:
    """Publish the chosen runs, or everything that is not published; yields a line for each. With `again` also files
    that were published before. `runs` is the lab's Store. Raises LabError if there is no object store, or it is away;
    or if this machine cannot publish one of the runs."""
    raise LabError(f"There is no object store to publish to: set {VARIABLE} to s3://BUCKET/FOLDER, gs://BUCKET/FOLDER "
                   "or file:///FOLDER.")


@_answered_by("publishers:OfWorker")
def of_worker(runs: Any) -> Publishing:
    """The context that publishes the runs of a worker. Raises LabError where the setting cannot be used."""
    return Publishing()


@_answered_by("publishers:OfLab")
def of_lab(runs: Any) -> Publishing:
    """The context that publishes all files of the lab's folder that the object store lacks, and keeps the folder small.
    Raises LabError if the object store cannot be used, or `RL_LAB_CACHE_GB` is no number."""
    return Publishing()


@_answered_by("publishers:trim")
def trim(runs: Any) -> None:
    """Delete published files here that have long been unused, until the folder is within `RL_LAB_CACHE_GB`. Raises
    LabError as `of_lab`."""


@_answered_by("object_store:lacks")
def lacks() -> str:
    """The package that this machine lacks for the object store, in words; empty where it lacks none."""
    return ""


@_answered_by("object_store:each")
def each(do: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """`do` of each item; several at a time where a question to the object store takes long."""
    return [do(item) for item in items]


@contextmanager
def in_home(folder: Path) -> Iterator[None]:
    """Have this process work in a lab of its own in `folder`, without an object store; afterwards in the lab from
    before."""
    names = ("RL_LAB_HOME", "RL_LAB_STORE", VARIABLE, "RL_LAB_READ_ONLY")
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ["RL_LAB_HOME"] = str(folder)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in before.items() if value is not None})
