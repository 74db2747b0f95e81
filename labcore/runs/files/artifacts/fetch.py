"""Fetch files that this home lacks. Sizes and hashes are checked before a file gets its name; a damaged file is not
used.

Files that are here are used as they are. A store that is away is asked again after some seconds; until then only files
that are here are listed, and a request for any other file fails with a LabError.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import takewhile
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from filelock import FileLock

from labcore.runs.files import atomic
from labcore.runs.files.artifacts import changes, manifest, object_store, units
from labcore.runs.files.artifacts.manifest import File, Manifest
from labcore.runs.files.artifacts.object_store import ObjectStore, each
from labcore.runs.files.paths import CHECKPOINTS, LOG, PICTURES, START, VERSIONS, is_checkpoint
from labcore.runs.files.storage import Away, Damaged

FRESH_SECONDS = 2.0  # how long an answer of the store is valid: pages ask many times in a second
AWAY_SECONDS = 10.0
_KEPT = 1000  # answers
_lock = threading.Lock()
_answers: dict[tuple[str, str, str], tuple[float, Any]] = {}  # store, question, thing -> when, and the answer
_away: dict[str, tuple[float, Away]] = {}
Answer = TypeVar("Answer")


def bring(path: Path | str) -> Path:
    """See `storage.fetch`."""
    given, store = Path(path), object_store.opened()
    path = _in_this_home(given)
    if thing := units.whole_with(path):
        _bring_whole(store, thing)
    elif (loose := units.loose_with(path)) and not path.exists():
        files = _manifest(store, loose[0]) or {}
        if loose[1] in files:
            _bring_file(store, loose[0], (path, files[loose[1]]))
    return path if path.exists() else given


def there(path: Path | str, *, sure: bool = False) -> bool:
    """See `storage.has`."""
    path, store = Path(path), object_store.opened()
    if path.exists():
        return True
    path = _in_this_home(path)
    thing, loose = units.whole_with(path), units.loose_with(path)
    if thing and units.folder(thing).exists():  # complete, unless somebody removed a file
        return path.exists()
    try:
        if thing:
            inside = path.relative_to(units.folder(thing)).as_posix()
            files = _manifest(store, thing) or {}
            return any(inside in (".", name) or name.startswith(f"{inside}/") for name in files)
        return loose is not None and loose[1] in (_manifest(store, loose[0]) or {})
    except (Away, Damaged):
        if sure:
            raise
        return False


def _in_this_home(path: Path) -> Path:
    """The path as an absolute one where it is in this home, or in that of another machine and not to be seen here."""
    if units.place(path.absolute()) is not None:
        return path.absolute()
    return path if path.exists() else units.moved(path) or path


def names(run: str, kind: str) -> list[str]:
    """See `storage.names`."""
    store, thing = object_store.opened(), f"{run}/{kind}"
    try:
        found = (_asked(store, "checkpoints", run, lambda: _checkpoints(store, run)) if kind == CHECKPOINTS else
                 list(_manifest(store, thing) or {}))
        gone = {*changes.to_forget()} if found else set()
        return [name for name in found if not gone & {thing, f"{thing}/{name}"}]
    except (Away, Damaged):
        return []


def holds(checkpoint: Path, content: bytes) -> bool:
    """See `storage.holds`."""
    try:
        found = _manifest(object_store.opened(), units.whole_with(checkpoint) or "") or {}
        return manifest.of_bytes(content) in found.values()
    except (Away, Damaged):
        return False


def bring_run(run: str) -> None:
    """See `storage.fetch_run`."""
    store, faults = object_store.opened(), []
    for thing in (units.RUN, *PICTURES):
        try:
            _bring_loose(store, f"{run}/{thing}")
        except Damaged as error:
            faults.append(error)
    if faults:
        raise faults[0]


def bring_log(run: str) -> Path:
    """See `storage.fetch_log`. A store that is away, or holds it damaged, adds nothing."""
    store, thing = object_store.opened(), f"{run}/{units.RUN}"
    path = units.folder(thing) / LOG
    with suppress(Away, Damaged):
        published = (_manifest(store, thing) or {}).get(path.name)
        if published and (not path.exists() or _continued(store, path, published)):
            _bring_file(store, thing, (path, published))
    return path


def forget_answers() -> None:
    """Forget the store's recent answers, so that it is asked anew."""
    with _lock:
        _answers.clear()
        _away.clear()


def take_along(parent: str, step: str, run: str) -> None:
    """See `storage.copy_start`. Objects are copied within the store."""
    store = object_store.opened()
    origin = {f"{CHECKPOINTS}/{step}": "checkpoint/", units.RUN: ""}
    found: Manifest = {}
    for name, prefix in origin.items():
        files = manifest.read(store, f"{parent}/{name}") or {}
        for file, entry in files.items():
            if prefix or file == "spec.json":
                store.copy(f"{parent}/{name}/{entry.sha256}", f"{run}/{START}/{entry.sha256}")
                found[f"{prefix}{file}"] = entry
    if "spec.json" in found and len(found) > 1:
        manifest.write(store, f"{run}/{START}", found)


def _bring_whole(store: ObjectStore, thing: str) -> None:
    target = units.folder(thing)
    if _use(target):
        return
    with FileLock(changes.lock_of(thing)):
        files = None if target.exists() else _manifest(store, thing)
        if files:
            _begin(store, target)
            try:
                atomic.write_folder(target, lambda new: _fill(store, thing, files, new), sync=False)
            except Damaged:
                now = manifest.read(store, thing)
                if now in (None, files):
                    raise
                # It lost its optimizer meanwhile.
                atomic.write_folder(target, lambda new: _fill(store, thing, now, new), sync=False)


def _bring_loose(store: ObjectStore, thing: str) -> None:
    folder = units.folder(thing)
    _use(folder)
    wanted = [(folder / file, entry) for file, entry in (_manifest(store, thing) or {}).items()
              if not (folder / file).exists() or _continued(store, folder / file, entry)]
    each(partial(_bring_file, store, thing), wanted)


def _continued(store: ObjectStore, path: Path, published: File) -> bool:
    """True if a worker elsewhere may have added to a file that is here."""
    if path.name not in (VERSIONS, LOG) or manifest.of_file(path) == published:
        return False
    unit = units.unit_with(path)
    return path.name == LOG or (unit is not None and changes.is_published(unit, store.begin()))


def _put_before(log: Path, fill: Callable[[Path], object]) -> None:
    """Put what `fill(path)` writes before the lines that only this log has: in place, since a worker has it open."""
    with TemporaryDirectory() as folder:
        fill(Path(folder) / log.name)
        with (Path(folder) / log.name).open("rb") as file:
            before = file.readlines()
    with log.open("r+b") as file:
        own = file.readlines()
        same = sum(1 for _ in takewhile(lambda lines: lines[0] == lines[1], zip(before, own, strict=False)))
        file.seek(0)
        file.writelines([*before, *own[same:]])


def _use(folder: Path) -> bool:
    """Have a folder count as used just now, so that it is not dropped; whether it is there."""
    with FileLock(changes.lock("cache")):
        if not folder.exists():
            return False
        with suppress(OSError):  # a folder of somebody else
            os.utime(folder)
        return True


def _fill(store: ObjectStore, thing: str, files: Mapping[str, File], folder: Path) -> None:
    def one(name: str) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _get(store, thing, files[name], path)

    each(one, files)


def _begin(store: ObjectStore, path: Path) -> None:
    """Of a unit that this home has nothing of, all that it will have is published: it is not sent back."""
    unit = units.unit_with(path)
    if unit and not units.folder(unit).exists():
        changes.set_published(unit, store.begin())


def _bring_file(store: ObjectStore, thing: str, wanted: tuple[Path, File]) -> None:
    path, file = wanted
    _begin(store, path)
    write = _put_before if path.name == LOG and path.exists() else atomic.write_file
    try:
        write(path, lambda new: _get(store, thing, file, new))
    except Damaged:
        now = (manifest.read(store, thing) or {}).get(path.name)
        if now in (None, file):
            raise
        write(path, lambda new: _get(store, thing, now, new))  # it was published anew meanwhile


def _get(store: ObjectStore, thing: str, file: File, path: Path) -> None:
    """Fetch a file and compare it with what its manifest says."""
    if not store.fetch(f"{thing}/{file.sha256}", path):
        raise manifest.damaged(store, thing, f"the file {file.sha256[:12]}… is missing")
    found = manifest.of_file(path)
    if found != file:
        what = "another content" if found.size == file.size else f"{found.size:,} of {file.size:,} bytes"
        raise manifest.damaged(store, thing, f"the file {file.sha256[:12]}… has {what}")


def _manifest(store: ObjectStore, thing: str) -> Manifest | None:
    return _asked(store, "manifest", thing, lambda: manifest.read(store, thing))


def _checkpoints(store: ObjectStore, run: str) -> list[str]:
    found = map(PurePosixPath, store.names(f"{run}/{CHECKPOINTS}"))
    return sorted(path.parts[0] for path in found
                  if path.parts[1:] == (manifest.NAME,) and is_checkpoint(path.parts[0]))


def _asked(store: ObjectStore, question: str, thing: str, ask: Callable[[], Answer]) -> Answer:
    """The store's answer, or its answer of just now. A store that is away is not asked again at once."""
    key, now = (store.url, question, thing), time.monotonic()
    with _lock:
        when, fault = _away.get(store.url, (0.0, None))
        if fault and now < when + AWAY_SECONDS:
            raise fault
        if key in _answers and now < _answers[key][0] + FRESH_SECONDS:
            kept: Answer = _answers[key][1]
            return kept
    try:
        answer = ask()
    except Away as error:
        with _lock:
            _away[store.url] = now, error
        raise
    with _lock:
        if len(_answers) >= _KEPT:
            _answers.clear()
        _answers[key] = now, answer
    return answer
