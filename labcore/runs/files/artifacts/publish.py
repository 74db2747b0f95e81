"""Publish what this home has: the files under their hashes first, then the manifest. Nothing is sent twice.

A unit of this home is published by one process at a time. A run is published by the worker that has it; for a run of
another machine a home only adds files that the store lacks.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from labcore.errors import LabError
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files import checkpoints as checkpoint_space
from labcore.runs.files.artifacts import changes, deletion, manifest, object_store, units
from labcore.runs.files.artifacts import units as things
from labcore.runs.files.artifacts.changes import changed
from labcore.runs.files.artifacts.manifest import File, Manifest
from labcore.runs.files.artifacts.object_store import ObjectStore, each
from labcore.runs.files.paths import CHECKPOINTS, PICTURES, START, home
from labcore.runs.files.sizes import size as bytes_of
from labcore.runs.files.storage import Away, Damaged, Publishing


@dataclass
class Sent:
    """The state of a run in the store, as the one process that publishes it knows it: it need not ask again."""

    checkpoints: dict[str, int] | None = None  # and their bytes
    loose: dict[str, Manifest] = field(default_factory=dict)
    hashed: dict[Path, tuple[tuple[int, int], File]] = field(default_factory=dict)  # loose files: when, how long; what
    start: bool = True  # whether the start of a fork may exist
    again: bool = False  # whether to send all files anew, since published ones may be damaged


def publish(store: ObjectStore, unit: str, marked: Container[int] = (), *, add: bool = False, mark: bool = True,
            sent: Sent | None = None) -> None:
    """Have all of a unit in the store as it is here. `marked` are the run's checkpoints that are kept longest.

    With `add` what the store has stays as it is: this home may have less of the run than another one. With `mark` the
    unit counts as published from then on: not while somebody writes into it.

    Raises:
        LabError: the store is away.
        OSError: a file here cannot be read.
    """
    with FileLock(changes.lock_of(unit)):
        begun, whole = _stamp(unit), True
        if units.is_run(unit):
            whole = _run(store, unit, marked, add, sent or Sent())
        elif units.folder(unit).is_dir():
            publish_thing(store, unit)
        if mark and whole and _stamp(unit) == begun:
            changes.set_published(unit, store.begin())


def now(path: Path) -> None:
    """See `storage.publish_now`. Raises LabError where the setting cannot be used."""
    if unit := units.unit_with(path):
        changed(path)
        with suppress(Away):  # it is not marked as published: the lab tries again, and says so
            publish(object_store.opened(), unit)


def _run(store: ObjectStore, run: str, marked: Container[int], add: bool, sent: Sent) -> bool:
    """Publish a run; whether the store then has every file as it is here."""
    root = units.folder(run)
    whole = _loose(store, f"{run}/{units.RUN}", lambda _: [root / name for name in units.LOOSE], add, sent)
    there = sent.checkpoints = _checkpoints(store, run, add) if sent.checkpoints is None else sent.checkpoints
    for _, path in checkpoint.local(root):
        thing = f"{run}/{CHECKPOINTS}/{path.name}"
        if (sent.again or path.name not in there) and (sent_bytes := publish_thing(store, thing, sent.again)):
            there[path.name] = sent_bytes
        elif not add and checkpoint_space.is_dropped(path) and there[path.name] > bytes_of(path):
            there[path.name] = _drop_optimizer(store, thing, path)
    here = checkpoint.sizes(root)
    found = [(step, here.get(step, there[checkpoint.name_of(step)])) for step in sorted(map(checkpoint.step_of, there))]
    gone = [] if add else checkpoint.spare(found, marked=marked, most=checkpoint.ladder_bytes(root),
                                           best=checkpoint.best_here(root))
    for name in map(checkpoint.name_of, gone):
        _delete(store, f"{run}/{CHECKPOINTS}/{name}")
        del there[name]
    for name in PICTURES:
        whole &= _loose(store, f"{run}/{name}", (root / name).glob, add, sent)
    if (root / START).is_dir() and not there:
        publish_thing(store, f"{run}/{START}")
    elif there and sent.start and not add:
        _delete(store, f"{run}/{START}")
        sent.start = False
    return whole


def _checkpoints(store: ObjectStore, run: str, add: bool) -> dict[str, int]:
    """The published checkpoints of a run and their bytes. What a killed process left of others is deleted, unless
    another one may be publishing it just now."""
    found: dict[str, dict[str, int]] = {}
    for name, size in store.names(f"{run}/{CHECKPOINTS}").items():
        folder, _, file = name.partition("/")
        found.setdefault(folder, {})[file] = size
    for name, files in found.items():
        if manifest.NAME not in files and not add:
            _delete(store, f"{run}/{CHECKPOINTS}/{name}")
    return {name: sum(files.values()) - files[manifest.NAME] for name, files in found.items() if manifest.NAME in files}


def publish_thing(store: ObjectStore, thing: str, again: bool = False) -> int:
    """Publish a thing that never changes, unless it is there; return its bytes. 0: it was deleted here meanwhile."""
    if not again and (there := _manifest(store, thing)):
        return sum(file.size for file in there.values())
    root = units.folder(thing)
    try:
        paths = {path.relative_to(root).as_posix(): path for path in _files(root)}
        files = {name: manifest.of_file(path) for name, path in paths.items()}
        each(lambda name: store.put_file(f"{thing}/{files[name].sha256}", paths[name]), files)
    except FileNotFoundError:
        if root.is_dir():
            raise
        _delete(store, thing)
        return 0
    if not root.is_dir() or not files:  # pruned between two files
        _delete(store, thing)
        return 0
    manifest.write(store, thing, files)
    return sum(file.size for file in files.values())


def _drop_optimizer(store: ObjectStore, thing: str, folder: Path) -> int:
    """Have a published checkpoint lose the optimizer state that it has lost here; return its bytes."""
    before = manifest.read(store, thing) or {}
    names = [path.name for path in folder.glob(checkpoint_space.OPTIMIZERS) if path.name in before]
    after = {**before, **{name: manifest.of_file(folder / name) for name in names}}
    for name in names:
        store.put_file(f"{thing}/{after[name].sha256}", folder / name)
    manifest.write(store, thing, after)
    gone = {file.sha256 for file in before.values()} - {file.sha256 for file in after.values()}
    store.delete(f"{thing}/{sha256}" for sha256 in sorted(gone))
    return sum(file.size for file in after.values())


def _loose(store: ObjectStore, thing: str, paths: Callable[[str], Iterable[Path]], add: bool, sent: Sent) -> bool:
    """Have the files of a thing in the store as they are here, or with `add` also those: then what the store has stays.
    Whether it has every file as it was here."""
    before = sent.loose[thing] if thing in sent.loose else _manifest(store, thing) or {}
    files: Manifest = {}
    for path in paths("step-*.json*"):
        with suppress(FileNotFoundError):  # not made yet, or thinned since it was listed
            files[path.name] = _file(path, sent)
    after = {**before, **files} if sent.again else {**files, **before} if add else files
    there = {file.sha256 for name, file in before.items() if not (sent.again and name in files)}

    def send(name: str) -> str | None:
        """Send a file as it is now, which another process may be writing; its name where it was thinned meanwhile."""
        try:
            content = (units.folder(thing) / name).read_bytes()
        except FileNotFoundError:
            return name
        after[name] = manifest.of_bytes(content)
        store.put(f"{thing}/{after[name].sha256}", content)
        return None

    new = [name for name, file in files.items() if after[name] == file and file.sha256 not in there]
    for name in filter(None, each(send, new)):
        del after[name]
    sent.loose[thing] = after
    if after != before or sent.again:
        manifest.write(store, thing, after)
        gone = {file.sha256 for file in before.values()} - {file.sha256 for file in after.values()}
        store.delete(f"{thing}/{sha256}" for sha256 in sorted(gone))
    return all(after[name] == file or name in new for name, file in files.items() if name in after)


def _manifest(store: ObjectStore, thing: str) -> Manifest | None:
    """The manifest of a thing; none where it is damaged: then the thing is published anew."""
    try:
        return manifest.read(store, thing)
    except Damaged:
        return None


def _file(path: Path, sent: Sent) -> File:
    """The entry of a manifest for a loose file: hashed again only where it was written since."""
    found = path.stat()
    stamp = found.st_mtime_ns, found.st_size
    kept = sent.hashed.get(path)
    if kept is None or kept[0] != stamp:
        sent.hashed[path] = kept = stamp, manifest.of_file(path)
    return kept[1]


def _files(root: Path) -> Iterator[Path]:
    """The files below a folder, but for what begins with a dot: half-written ones."""
    return (path for path in sorted(root.rglob("*")) if path.is_file()
            and not any(part.startswith(".") for part in path.relative_to(root).parts))


def _delete(store: ObjectStore, thing: str) -> None:
    store.delete_folder(thing, first=manifest.NAME)


def _stamp(unit: str) -> tuple[int, ...]:
    """A stamp that changes when a file of the unit is written or deleted."""
    root = units.folder(unit)
    folders = [root, *(root / name for name in (CHECKPOINTS, *PICTURES) if units.is_run(unit))]
    files = [root / name for name in units.LOOSE] if units.is_run(unit) else []
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in (*folders, *files))


# ---------------------------------------------------------------- publisher
# The thread that publishes beside what a process does: beside a training, or beside the pages of a lab.
#
# It waits in a worker and in a lab's server, never in the supervisor, which forks. Its queue are the names of units
# that changed, each once; what is to be sent lies on the disk. While the store is away it tries again and again, and
# what it could not publish when its process ends is published by the lab's next start.

RETRY_SECONDS = 5.0
REST_SECONDS = 2.0  # between two looks at a unit: many small files are published together

Say = Callable[[str, str], object]  # a unit, and why it is not published; "" once it is


class Publisher(Publishing):
    """A context in which changed files are published. Other machines may have files of `partial` runs that are not
    here, so for such runs the publisher only adds files that the store lacks; if it `adds`, for all runs. Raises
    LabError if `RL_LAB_ARTIFACTS` cannot be used."""

    adds = False

    def __init__(self, say: Say):
        self._say = say
        self.partial: set[str] = set()
        self.live: set[str] = set()  # runs that this process writes into: they are not marked as published
        self._sent: dict[str, Sent] = {}
        self._store = object_store.opened()
        self._changed: set[str] = set()
        self._marked: dict[str, Container[int]] = {}
        self.said: set[str] = set()  # the units of which was said last that they are not published
        self._going = threading.Condition()
        self._hurried = self._closed = self._busy = False
        self._tries = 0  # that failed, since the last one that did not
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        changes.subscribe(self.add)
        self._thread = threading.Thread(target=self._work, name="publisher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._thread:
            changes.unsubscribe(self.add)
            with self._going:
                self._closed = True
                self._going.notify_all()

    def add(self, unit: str, marked: Container[int] = ()) -> None:
        """Put a unit into the queue to be published."""
        with self._going:
            self._changed.add(unit)
            if marked:
                self._marked[unit] = marked
            self._going.notify_all()

    def flush(self, wait: Callable[[], bool] = lambda: True) -> bool:
        """Publish the whole queue at once. Waits until that is done, an attempt has failed, or `wait()` returns False.
        Returns whether it is done.

        `wait` is called a few times in a second.
        """
        with self._going:
            failed = self._tries
            self._hurried = True
            self._going.notify_all()
            try:
                while (self._changed or self._busy) and self._tries <= failed and wait():
                    self._going.wait(0.2)
            finally:
                self._hurried = False
            return not self._changed and not self._busy

    def _work(self) -> None:
        while True:
            with self._going:
                while not self._changed and not self._closed:
                    self._going.wait()
                if self._closed:
                    return
                queue, self._changed, self._busy = sorted(self._changed), set(), True
            try:
                failed = self._publish(self._store, queue)
            except Exception:  # the lab's own fault: it must not keep a run from ending
                traceback.print_exc()
                failed = set(queue)
            with self._going:
                self._changed |= failed
                self._tries = self._tries + 1 if failed else 0
                self._busy = False
                self._going.notify_all()
                self._rest(RETRY_SECONDS if failed else REST_SECONDS)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._hurried and not self._closed and (left := until - time.monotonic()) > 0:
            self._going.wait(left)

    def _publish(self, store: ObjectStore, queue: list[str]) -> set[str]:
        """Publish these units; returns those that could not be."""
        failed = set()
        for unit in queue:
            try:
                if deletion.clear(store):
                    self._sent.clear()
                if things.folder(unit).is_dir():
                    self._send(store, unit)
            except (LabError, OSError) as error:
                self._sent.pop(unit, None)
                failed.add(unit)
                self._report(unit, str(error))
            else:
                self._done(unit)
        return failed

    def _send(self, store: ObjectStore, unit: str) -> None:
        add = self.adds or unit in self.partial
        sent = None if add else self._sent.setdefault(unit, Sent())
        publish(store, unit, self._marked.get(unit, ()), add=add, mark=unit not in self.live, sent=sent)

    def _done(self, unit: str) -> None:
        self._report(unit, "")

    def _report(self, unit: str, why: str) -> None:
        """Say it once when a unit cannot be published, and once when it can be again."""
        if bool(why) == (unit in self.said):
            return
        (self.said.add if why else self.said.discard)(unit)
        self._say(unit, why)


def unpublished(store: ObjectStore) -> list[str]:
    """The units of this home that are not all in the store."""
    root = home()
    store_id = store.begin()
    folders = [*root.glob("[!.]*"), *root.glob("base/[!.]*"), *root.glob("uploads/[!.]*")]
    units = {unit for path in folders if path.is_dir() and (unit := things.unit_with(path))}
    return sorted(unit for unit in units if not changes.is_published(unit, store_id))
