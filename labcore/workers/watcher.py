"""The watcher: one process that reads the files of all watched runs into the store.

The lab's launcher starts it when the folder of watched runs changes, and it ends when no run is going. While it waits
it looks at the time of that one folder, which every program that sends touches.
`python -m labcore.workers.watcher`: the lifeline is standard input.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from labcore.errors import LabError, NoSuchRun
from labcore.runs.files.paths import is_id
from labcore.runs.store.store import Store
from labcore.watching import spool
from labcore.workers import alerts, process
from labcore.workers.lifeline import Lifeline
from labcore.workers.watched_run import WatchedRun

COMMAND = (sys.executable, "-m", "labcore.workers.watcher")
POLL_SECONDS = 0.5
LOOK_SECONDS = 5.0  # between two looks at all folders, whatever the time of theirs says
LOOKS = 20  # between two looks at runs that are not going
SILENT_SECONDS = 90.0  # after which a program that gives no sign of life is gone: it gives one every 15 s
GONE_SECONDS = 20.0  # the same where its process cannot be seen any more, which it cannot from another container
SETTLED_SECONDS = 1.0  # how long the newest step waits for more numbers of it
CLOSED = ("The lab was closed while the program went on. What it sends meanwhile is read when the lab is open again.")


@dataclass
class Folder:
    """A watched folder: its reader, what it last showed of its program, and when that was noticed."""

    path: Path
    run: WatchedRun
    place: dict[str, Any]
    sign: tuple[Any, ...] = ()
    noticed: float = field(default_factory=time.monotonic)
    waits: bool = False  # lines of the newest step wait for more of it
    fault: str = ""  # why it could not be read
    again: bool = False  # it is to be read at the next look because the store failed

    @property
    def at(self) -> dict[str, int]:
        """How far each file was read."""
        found: dict[str, int] = self.place.get("at", {})
        return found


class Watcher:
    """Everything that is watched in this lab."""

    def __init__(self, store: Store):
        self._store = store
        self._folders: dict[str, Folder] = {}
        self._places = store.watched()
        self._looks = 0

    @property
    def waits(self) -> bool:
        """True if lines of a newest step wait for more of it."""
        return any(folder.waits for folder in self._folders.values())

    @property
    def going(self) -> bool:
        """True if any run is going, or waits for a store that failed."""
        return any(folder.run.going or folder.again for folder in self._folders.values())

    def look(self) -> None:
        """Read what is new: at each look of the runs that are going, of others now and then."""
        self._looks += 1
        there = os.listdir(spool.root()) if spool.root().is_dir() else []
        for name in sorted({*filter(is_id, there), *self._folders}):  # a folder may be deleted while its run goes on
            folder = self._folders.get(name)
            if folder and not (folder.run.going or folder.again or self._looks % LOOKS == 0):
                continue
            try:
                folder = self._folders[name] = folder or self._found(name)
                self._read(folder)
                folder.fault, folder.again = "", False
            except Exception as error:  # the lines stay in their files, and no other run waits for them
                self._failed(name, error)

    def _failed(self, name: str, error: Exception) -> None:
        """Report once why a folder could not be read, and forget what was not written. Where the store failed, say
        because the disk is full, it is read again at the next look."""
        before = self._folders.get(name) or self._new(name)
        fault = "" if isinstance(error, NoSuchRun) else str(error)  # in the trash: its lines wait
        if fault and fault != before.fault:
            traceback.print_exception(error, limit=0 if isinstance(error, LabError) else None)
        self._places = self._store.watched()
        self._folders[name] = replace(self._new(name), sign=before.sign, noticed=before.noticed, fault=fault,
                                      again=bool(fault) and isinstance(error, LabError))

    def close(self) -> None:
        """End what is going, because the lab does."""
        for folder in self._folders.values():
            if folder.run.going:
                folder.run.end("interrupted", CLOSED)

    def _new(self, name: str) -> Folder:
        return Folder(spool.folder_of(name), WatchedRun(self._store, name), self._places.get(name, {}))

    def _found(self, name: str) -> Folder:
        """A folder that is seen for the first time. A run whose program goes on is taken up."""
        folder = self._new(name)
        if folder.place.get("newest") and _seconds_silent(folder.path) < SILENT_SECONDS:
            with suppress(LabError):
                if self._store.run(folder.place["newest"]).state == "interrupted" and not _gone(folder):
                    folder.run.take_up()
        return folder

    def _read(self, folder: Folder) -> None:
        now, more = time.monotonic(), True
        sign = _sign(folder.path)
        if sign != folder.sign:
            folder.sign, folder.noticed = sign, now
        while more:
            lines, more = spool.lines(folder.path, folder.at)
            folder.waits = False
            if not more:
                lines = self._settled(folder, lines, now)
            if lines:
                folder.place = folder.run.take(lines)
        if "deleted" in folder.place:
            spool.forget(folder.path)
        elif not folder.waits:
            self._check(folder, now)

    def _settled(self, folder: Folder, lines: list[spool.Line], now: float) -> list[spool.Line]:
        """The lines without those of the newest step, which may get more numbers; with them once it is quiet."""
        places = [place for place, line in enumerate(lines) if line.said.get("kind") == "numbers"]
        if not places or lines[-1].said.get("kind") == "end" or now - folder.noticed > SETTLED_SECONDS:
            return lines
        newest = lines[places[-1]].said.get("step")
        folder.waits = True
        return lines[:next(place for place in places if lines[place].said.get("step") == newest)]

    def _check(self, folder: Folder, now: float) -> None:
        """See whether the program of a run is gone, and delete files that were read."""
        silent = now - folder.noticed
        if folder.run.going and (silent > SILENT_SECONDS or (silent > GONE_SECONDS and _gone(folder))):
            cut = " Its last line was cut in the middle, and is lost." if spool.unfinished(
                folder.path, folder.at) else ""
            why = "The program's process is gone, and has not ended the run." if _gone(folder) else (
                f"Nothing came from the program for {SILENT_SECONDS:.0f} s: it ended, or its connection did.")
            folder.run.end("interrupted", f"{why}{cut} What it had not written yet is lost. The run continues when the "
                           "program sends again.")
        if not folder.run.going:
            spool.give_back(folder.path, folder.at)
        if (kept := spool.forget_read(folder.path, folder.at)) != folder.at:
            folder.place = folder.run.keep(kept)


def _gone(folder: Folder) -> bool:
    """True if the process that sends was on this machine, and is there no more."""
    pid, host = folder.place.get("process") or (None, None)
    return isinstance(pid, int) and pid > 0 and host == platform.node() and not psutil.pid_exists(pid)


def _seconds_silent(path: Path) -> float:
    """How long ago the program of a folder last wrote, or gave a sign of life."""
    newest = 0.0
    for each in (path / spool.ABOUT, *spool.files(path)[-3:]):
        with suppress(FileNotFoundError, NotADirectoryError):
            newest = max(newest, each.stat().st_mtime)
    return time.time() - newest


def _sign(path: Path) -> tuple[Any, ...]:
    """What changes whenever the program of a folder writes or gives a sign of life."""
    found = []
    for each in (path / spool.ABOUT, *spool.files(path)[-3:]):
        with suppress(FileNotFoundError, NotADirectoryError):
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
            while not lifeline.cut and (rung < 0 or watcher.going or watcher.waits):
                now = time.monotonic()
                if (rings := changed()) != rung or now - looked > LOOK_SECONDS or watcher.waits:
                    rung, looked = rings, now
                    watcher.look()
                time.sleep(POLL_SECONDS)
            watcher.close()
            if not lifeline.cut:
                alerts.wait()
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
        seen, started = 0, -math.inf
        while not self._closed.wait(2 * POLL_SECONDS):
            if (now := changed()) == seen or time.monotonic() - started < LOOK_SECONDS or self._watched():
                continue
            seen, started = now, time.monotonic()
            with suppress(OSError, LabError):  # no process is to be had now: at the next sign
                self._cut()
                self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE,
                                                 env=process.environment(self._store.url))

    def _watched(self) -> bool:
        """True if the home has a watcher: this one's, or that of another lab."""
        if self._process and self._process.poll() is None:
            return True
        try:
            with lock().acquire(blocking=False):
                return False
        except (Timeout, OSError):
            return True

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
