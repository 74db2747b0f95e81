"""Publish what this home has: the files under their hashes first, then the manifest. Nothing is sent twice.

A unit of this home is published by one process at a time. A run is the worker's that has it; of another machine's run
a home only adds what the store lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from labcore.files import checkpoint_space
from labcore.files import checkpoints as checkpoint
from labcore.files.artifacts import manifest, object_store, state, things
from labcore.files.artifacts.changes import changed
from labcore.files.artifacts.manifest import Damaged, File, Manifest
from labcore.files.artifacts.object_store import Away, ObjectStore, each
from labcore.files.sizes import size as bytes_of


@dataclass
class Sent:
    """What the one process that publishes a run knows of it in the store: it need not ask again."""

    checkpoints: dict[str, int] | None = None  # and their bytes
    loose: dict[str, Manifest] = field(default_factory=dict)
    hashed: dict[Path, tuple[tuple[int, int], File]] = field(default_factory=dict)  # loose files: when, how long; what
    start: bool = True  # whether there may be what a fork starts from
    again: bool = False  # whether to send all files anew: what is there may be damaged


def publish(store: ObjectStore, unit: str, marked: Container[int] = (), *, add: bool = False, mark: bool = True,
            sent: Sent | None = None) -> None:
    """Have all of a unit in the store as it is here. `marked` are the run's checkpoints that are kept longest.

    With `add` what the store has stays as it is: this home may have less of the run than another one. With `mark` the
    unit counts as published from then on: not while somebody writes into it.

    Raises:
        LabError: the store is away.
        OSError: a file here cannot be read.
    """
    with FileLock(state.lock_of(unit)):
        begun, whole = _stamp(unit), True
        if things.is_run(unit):
            whole = _run(store, unit, marked, add, sent or Sent())
        elif things.folder(unit).is_dir():
            publish_thing(store, unit)
        if mark and whole and _stamp(unit) == begun:
            state.set_published(unit, store.begin())


def now(path: Path) -> None:
    """Publish the unit of `path` before going on: a worker elsewhere may need it at once. Where the store is away, it
    is published later.

    Raises:
        LabError: the setting cannot be used.
    """
    store, unit = object_store.opened(), things.unit_with(path)
    if store and unit:
        changed(path)
        with suppress(Away):  # it is not marked as published: the lab tries again, and says so
            publish(store, unit)


def _run(store: ObjectStore, run: str, marked: Container[int], add: bool, sent: Sent) -> bool:
    """Publish a run; whether the store then has every file as it is here."""
    root = things.folder(run)
    whole = _loose(store, f"{run}/{things.RUN}", lambda _: [root / name for name in things.LOOSE], add, sent)
    there = sent.checkpoints = _checkpoints(store, run, add) if sent.checkpoints is None else sent.checkpoints
    for _, path in checkpoint.local(root):
        thing = f"{run}/{things.CHECKPOINTS}/{path.name}"
        if (sent.again or path.name not in there) and (sent_bytes := publish_thing(store, thing, sent.again)):
            there[path.name] = sent_bytes
        elif not add and checkpoint_space.is_dropped(path) and there[path.name] > bytes_of(path):
            there[path.name] = _drop_optimizer(store, thing, path)
    here = checkpoint.sizes(root)
    found = [(step, here.get(step, there[checkpoint.name_of(step)])) for step in sorted(map(checkpoint.step_of, there))]
    gone = [] if add else checkpoint.spare(found, marked=marked, most=checkpoint.ladder_bytes(root),
                                           best=checkpoint.best_here(root))
    for name in map(checkpoint.name_of, gone):
        _delete(store, f"{run}/{things.CHECKPOINTS}/{name}")
        del there[name]
    for name in things.PICTURES:
        whole &= _loose(store, f"{run}/{name}", (root / name).glob, add, sent)
    if (root / things.START).is_dir() and not there:
        publish_thing(store, f"{run}/{things.START}")
    elif there and sent.start and not add:
        _delete(store, f"{run}/{things.START}")
        sent.start = False
    return whole


def _checkpoints(store: ObjectStore, run: str, add: bool) -> dict[str, int]:
    """The published checkpoints of a run and their bytes. What a killed process left of others is deleted, unless
    another one may be publishing it just now."""
    found: dict[str, dict[str, int]] = {}
    for name, size in store.names(f"{run}/{things.CHECKPOINTS}").items():
        folder, _, file = name.partition("/")
        found.setdefault(folder, {})[file] = size
    for name, files in found.items():
        if manifest.NAME not in files and not add:
            _delete(store, f"{run}/{things.CHECKPOINTS}/{name}")
    return {name: sum(files.values()) - files[manifest.NAME] for name, files in found.items() if manifest.NAME in files}


def publish_thing(store: ObjectStore, thing: str, again: bool = False) -> int:
    """Publish a thing that never changes, unless it is there; return its bytes. 0: it was deleted here meanwhile."""
    if not again and (there := _manifest(store, thing)):
        return sum(file.size for file in there.values())
    root = things.folder(thing)
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
    for path in paths("step-*.json"):
        with suppress(FileNotFoundError):  # not made yet, or thinned since it was listed
            files[path.name] = _file(path, sent)
    after = {**before, **files} if sent.again else {**files, **before} if add else files
    there = {file.sha256 for name, file in before.items() if not (sent.again and name in files)}

    def send(name: str) -> str | None:
        """Send a file as it is now, which another process may be writing; its name where it was thinned meanwhile."""
        try:
            content = (things.folder(thing) / name).read_bytes()
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
    """What a manifest says of a loose file: hashed again only where it was written since."""
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
    """What is another one when a file of the unit was written or deleted meanwhile."""
    root = things.folder(unit)
    folders = [root, *(root / name for name in (things.CHECKPOINTS, *things.PICTURES) if things.is_run(unit))]
    files = [root / name for name in things.LOOSE] if things.is_run(unit) else []
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in (*folders, *files))
