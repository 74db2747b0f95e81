"""The watcher: one process that reads the files of all watched runs into the store.

The lab's launcher starts it when the folder of watched runs changes, and it ends when no run is going. While it waits
it looks at the time of that one folder, which every program that sends touches.
`python -m labcore.workers.watcher`: the lifeline is standard input.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from labcore.errors import LabError
from labcore.runs.files.paths import is_id
from labcore.runs.store.rows import GOING
from labcore.runs.store.store import Store
from labcore.watching import spool
from labcore.workers import process
from labcore.workers.lifeline import Lifeline
from labcore.workers.watched_run import WatchedRun

COMMAND = (sys.executable, "-m", "labcore.workers.watcher")
POLL_SECONDS = 0.5
LOOK_SECONDS = 5.0  # between two looks at all folders, whatever the time of theirs says
SILENT_SECONDS = 90.0  # after which a program that gives no sign of life is gone: it gives one every 15 s
SETTLED_SECONDS = 1.0  # how long the newest step waits for more numbers of it


@dataclass
class Folder:
    """A watched folder: its reader, the newest sign of life, and when that was noticed."""

    path: Path
    run: WatchedRun
    at: dict[str, int] = field(default_factory=dict)
    sign: tuple[Any, ...] = ()
    noticed: float = 0.0
    waits: float = 0.0  # since when lines of the newest step wait
    going: bool = False


class Watcher:
    """Everything that is watched in this lab."""

    def __init__(self, store: Store):
        self._store = store
        self._folders: dict[str, Folder] = {}
        self._places = store.watched()

    @property
    def waits(self) -> bool:
        """True if lines of a newest step wait for more of it."""
        return any(folder.waits for folder in self._folders.values())

    def look(self) -> bool:
        """Read what is new. Returns whether any run is going."""
        for path in sorted(spool.root().iterdir()) if spool.root().is_dir() else ():
            if is_id(path.name) and path.is_dir() and path.name not in self._folders:
                place = self._places.get(path.name, {})
                self._folders[path.name] = Folder(path, WatchedRun(self._store, path.name), place.get("at", {}))
        for folder in [*self._folders.values()]:
            try:
                self._read(folder)
            except LabError as error:  # the disk is full, say: it is tried again, from the last place in the store
                print(error, file=sys.stderr, flush=True)
                self._folders.pop(folder.path.name)
                self._places = self._store.watched()
        return any(folder.going for folder in self._folders.values())

    def _read(self, folder: Folder) -> None:
        now, more = time.monotonic(), True
        sign = _sign(folder.path)
        if sign != folder.sign:
            folder.sign, folder.noticed = sign, now
        while more:
            lines, more = spool.lines(folder.path, folder.at)
            if not more and lines:
                lines = self._settled(folder, lines, now)
            if not lines:
                break
            place = folder.run.take(lines)
            folder.at, folder.going = place["at"], True
        if folder.going and not folder.waits:
            self._check(folder, now)

    def _settled(self, folder: Folder, lines: list[spool.Line], now: float) -> list[spool.Line]:
        """The lines without those of the newest step, which may get more numbers; with them once it is quiet."""
        last = next((line.said.get("step") for line in reversed(lines) if line.said.get("kind") == "numbers"), None)
        first = next((place for place, line in enumerate(lines) if line.said.get("kind") == "numbers"
                      and line.said.get("step") == last), len(lines))
        if lines[-1].said.get("kind") == "end" or first == len(lines) or (
                folder.waits and now - folder.noticed > SETTLED_SECONDS):
            folder.waits = 0.0
            return lines
        folder.waits = folder.waits or now
        return lines[:first]

    def _check(self, folder: Folder, now: float) -> None:
        """See whether a run has ended, or its program is gone."""
        place = self._store.watched().get(folder.path.name, {})
        rows = self._store.runs_named([*{*place.get("runs", {}).values()}])
        folder.going = any(row.state in GOING for row in rows.values())
        if folder.going and now - folder.noticed > SILENT_SECONDS:
            cut = spool.unfinished(folder.path, folder.at)
            said = " Its last line was cut in the middle." if cut else ""
            folder.run.end("interrupted", f"Nothing came from the program for {SILENT_SECONDS:.0f} s: it ended, or its "
                           f"connection is gone.{said} The run goes on here as soon as it sends again.")
            folder.going = False
        kept = spool.forget_read(folder.path, folder.at)
        if kept != folder.at:
            folder.run.keep(kept)
            folder.at = kept


def _sign(path: Path) -> tuple[Any, ...]:
    """What changes whenever the program of a folder writes or gives a sign of life."""
    found = []
    for each in (path / spool.ABOUT, *spool.files(path)[-3:]):
        with suppress(FileNotFoundError):
            found.append((each.name, (stat := each.stat()).st_size, stat.st_mtime_ns))
    return tuple(found)


def lock() -> FileLock:
    """Held by the one watcher of a lab's folder."""
    return FileLock(spool.root() / ".lock")


def main() -> None:
    """Watch until the lab is gone, or nothing is going any more."""
    try:
        with lock().acquire(blocking=False), Lifeline(sys.stdin.fileno()) as lifeline:
            watcher, rung, looked = Watcher(Store()), -1, 0.0
            going = True
            while not lifeline.cut and going:
                now = time.monotonic()
                if (time_of := changed()) != rung or now - looked > LOOK_SECONDS or watcher.waits:
                    rung, looked = time_of, now
                    going = watcher.look()
                time.sleep(POLL_SECONDS)
    except Timeout:
        return  # another lab on this folder watches


def changed() -> int:
    """The time of the folder of watched runs, in nanoseconds; 0 where there is none."""
    try:
        return os.stat(spool.root()).st_mtime_ns
    except OSError:
        return 0


class Watching:
    """The watcher as the launcher has it: a thread that starts it when something is written."""

    def __init__(self, store: Store):
        self._store = store
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="watching", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        seen = 0
        while not self._closed.wait(2 * POLL_SECONDS):
            if (now := changed()) == seen or (self._process and self._process.poll() is None):
                continue
            seen = now
            with suppress(OSError, LabError):  # no process is to be had now: at the next sign
                self._cut()
                self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE,
                                                 env=process.environment(self._store.url))

    def _cut(self) -> None:
        if self._process:
            assert self._process.stdin
            with suppress(OSError):
                self._process.stdin.close()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End the watcher. What comes later is read when a lab is there again."""
        self._closed.set()
        self._thread.join()
        self._cut()


if __name__ == "__main__":
    main()
