"""Fetch what this home lacks. Sizes and hashes are checked before a file gets its name; what is damaged is not used.

What is here is used as it is. A store that is away is asked again after some seconds; until then nothing but what is
here is listed, and what is wanted of it is an error in words.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from filelock import FileLock

from labcore.files import atomic
from labcore.files.artifacts import manifest, object_store, state, things
from labcore.files.artifacts.manifest import Damaged, File, Manifest
from labcore.files.artifacts.object_store import Away, ObjectStore

FRESH_SECONDS = 2.0  # how long what the store has counts: pages ask many times in a second
AWAY_SECONDS = 10.0
_KEPT = 1000  # answers
_lock = threading.Lock()
_answers: dict[tuple[str, str, str], tuple[float, Any]] = {}  # store, question, thing -> when, and the answer
_away: dict[str, tuple[float, Away]] = {}
Answer = TypeVar("Answer")


def here(path: Path | str) -> Path:
    """The file or folder at `path`, fetched where this home lacks it. What nobody has stays a path to nothing.

    A path into another machine's home is found in this one, for checkpoints, bases and uploads.

    Raises:
        LabError: it is needed from the store, which is away or holds it damaged.
        OSError: it cannot be written here.
    """
    path = Path(path)
    store = object_store.opened()
    if store is None:
        return path
    if things.place(path.absolute()) is None:
        path = path if path.exists() else things.moved(path) or path
    path = path.absolute() if things.place(path.absolute()) is not None else path
    if thing := things.whole_with(path):
        _bring_whole(store, thing)
    elif (loose := things.loose_with(path)) and not path.exists():
        files = _manifest(store, loose[0]) or {}
        if loose[1] in files:
            _bring_file(store, loose[0], path, files[loose[1]])
    return path


def checkpoints(run: str) -> list[str]:
    """The names of a run's published checkpoints; none where the store is away."""
    store = object_store.opened()
    try:
        return _asked(store, "checkpoints", run, lambda: _checkpoints(store, run)) if store else []
    except Away:
        return []


def files(run: str, kind: str) -> list[str]:
    """The names of a run's published files of a kind, `samples` or `lines`; none where the store is away."""
    store = object_store.opened()
    try:
        return list(_manifest(store, f"{run}/{kind}") or {}) if store else []
    except Away:
        return []


def bring_run(run: str) -> None:
    """Have all of a run here but its checkpoints: a worker is about to go on with it.

    Raises:
        LabError: the store is away, or a file there is damaged.
    """
    store = object_store.opened()
    if store is None:
        return
    for name in (things.RUN, *things.PICTURES):
        thing = f"{run}/{name}"
        for file, found in (_manifest(store, thing) or {}).items():
            path = things.folder(thing) / file
            if not path.exists():
                _bring_file(store, thing, path, found)


def copy(source: Path, target: Path) -> None:
    """Publish the whole thing `source` as `target` too, within the store; nothing where it is not published.

    Raises:
        LabError: the store is away.
    """
    store, old, new = object_store.opened(), things.whole_with(source), things.whole_with(target)
    files = manifest.read(store, old) if store and old else None
    if store and new and files:
        for file in files.values():
            store.copy(f"{old}/{file.sha256}", f"{new}/{file.sha256}")
        manifest.write(store, new, files)


def _bring_whole(store: ObjectStore, thing: str) -> None:
    target = things.folder(thing)
    with FileLock(state.lock("cache")):  # nothing is dropped from here on that was used just now
        if target.exists():
            with suppress(OSError):  # a folder of somebody else
                os.utime(target)
            return
    with FileLock(state.lock(thing)):
        files = None if target.exists() else _manifest(store, thing)
        if files:
            atomic.write_folder(target, lambda new: _fill(store, thing, files, new), sync=False)


def _fill(store: ObjectStore, thing: str, files: Mapping[str, File], folder: Path) -> None:
    for name, file in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _get(store, thing, file, path)


def _bring_file(store: ObjectStore, thing: str, path: Path, file: File) -> None:
    try:
        atomic.write_file(path, lambda new: _get(store, thing, file, new))
    except Damaged:
        now = (manifest.read(store, thing) or {}).get(path.name)
        if now in (None, file):
            raise
        atomic.write_file(path, lambda new: _get(store, thing, now, new))  # it was published anew meanwhile


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
    found = map(PurePosixPath, store.names(f"{run}/{things.CHECKPOINTS}"))
    return sorted(path.parts[0] for path in found
                  if path.parts[1:] == (manifest.NAME,) and things.is_checkpoint(path.parts[0]))


def _asked(store: ObjectStore, question: str, thing: str, ask: Callable[[], Answer]) -> Answer:
    """What the store answers, or answered just now. A store that is away is not asked again at once."""
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
