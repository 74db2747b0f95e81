"""The watcher: one process that reads the files of all watched runs into the store.

The launcher starts it when the folder of watched runs changes, and it exits when no watched run is running. While it
waits it polls the modification time of this folder, which every client updates.
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
from labcore.watch.converting import spool
from labcore.workers import alerts, process
from labcore.workers.lifeline import Lifeline
from labcore.workers.watched_run import WatchedRun

COMMAND = (sys.executable, "-m", "labcore.workers.watcher")
POLL_SECONDS = 0.5
LOOK_SECONDS = 5.0  # between two checks of all folders, even if the modification time is unchanged
LOOKS = 20  # checks of running runs between two checks of ended runs
SILENT_SECONDS = 90.0  # without a heartbeat (sent every 15 s), after which a trainer counts as ended
GONE_SECONDS = 20.0  # the same if its process does not exist here, as with another container
SETTLED_SECONDS = 1.0  # how long the newest step waits for more metrics
CLOSED = "The lab was closed while the trainer was running. It reads the lines sent since then when it is open again."


@dataclass
class Folder:
    """A watched folder: its reader, the last sign of activity, and the time at which it was noticed."""

    path: Path
    run: WatchedRun
    place: dict[str, Any]
    sign: tuple[Any, ...] = ()
    noticed: float = field(default_factory=time.monotonic)
    waits: bool = False  # lines of the newest step wait for more metrics
    fault: str = ""  # why it could not be read
    again: bool = False  # it is to be read at the next look because the store failed

    @property
    def at(self) -> dict[str, int]:
        """The read position in each file."""
        found: dict[str, int] = self.place.get("at", {})
        return found


class Watcher:
    """Reads all watched folders of the lab."""

    def __init__(self, store: Store):
        self._store = store
        self._folders: dict[str, Folder] = {}
        self._places = store.watched()
        self._looks = 0

    @property
    def waits(self) -> bool:
        """True if lines of a newest step wait for more metrics."""
        return any(folder.waits for folder in self._folders.values())

    @property
    def going(self) -> bool:
        """True if any run is running, or waits for a store that failed."""
        return any(folder.run.going or folder.again for folder in self._folders.values())

    def look(self) -> None:
        """Read new lines: of running runs in each call, of other runs now and then."""
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
            except Exception as error:  # the lines stay in their files, and other runs are not affected
                self._failed(name, error)

    def _failed(self, name: str, error: Exception) -> None:
        """Report once why a folder could not be read, and discard its unsaved state. If the store failed, for example
        because the disk is full, the folder is read again in the next call."""
        before = self._folders.get(name) or self._new(name)
        fault = "" if isinstance(error, NoSuchRun) else str(error)  # in the trash: its lines wait
        if fault and fault != before.fault:
            traceback.print_exception(error, limit=0 if isinstance(error, LabError) else None)
        self._places = self._store.watched()
        self._folders[name] = replace(self._new(name), sign=before.sign, noticed=before.noticed, fault=fault,
                                      again=bool(fault) and isinstance(error, LabError))

    def close(self) -> None:
        """Mark running runs as interrupted, because the lab closes."""
        for folder in self._folders.values():
            if folder.run.going:
                folder.run.end("interrupted", CLOSED)

    def _new(self, name: str) -> Folder:
        return Folder(spool.folder_of(name), WatchedRun(self._store, name), self._places.get(name, {}))

    def _found(self, name: str) -> Folder:
        """Open a folder that is new to this process. If its trainer is still running, its run continues."""
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
        """Return the lines without the newest step, which may get more metrics; with it after SETTLED_SECONDS."""
        places = [place for place, line in enumerate(lines) if line.said.get("kind") == "numbers"]
        if not places or lines[-1].said.get("kind") == "end" or now - folder.noticed > SETTLED_SECONDS:
            return lines
        newest = lines[places[-1]].said.get("step")
        folder.waits = True
        return lines[:next(place for place in places if lines[place].said.get("step") == newest)]

    def _check(self, folder: Folder, now: float) -> None:
        """Check whether the trainer of a run has ended, and delete files that were read."""
        silent = now - folder.noticed
        if folder.run.going and (silent > SILENT_SECONDS or (silent > GONE_SECONDS and _gone(folder))):
            cut = " Its last line was incomplete and is lost." if spool.unfinished(
                folder.path, folder.at) else ""
            why = "The trainer's process exited without ending the run." if _gone(folder) else (
                f"The trainer sent nothing for {SILENT_SECONDS:.0f} s: it ended, or its connection failed.")
            folder.run.end("interrupted", f"{why}{cut} Lines that it had not written yet are lost. The run "
                           "continues when the trainer sends again.")
        if not folder.run.going:
            spool.give_back(folder.path, folder.at)
        if (kept := spool.forget_read(folder.path, folder.at)) != folder.at:
            folder.place = folder.run.keep(kept)


def _gone(folder: Folder) -> bool:
    """True if the sending process was on this machine and no longer exists."""
    pid, host = folder.place.get("process") or (None, None)
    return isinstance(pid, int) and pid > 0 and host == platform.node() and not psutil.pid_exists(pid)


def _seconds_silent(path: Path) -> float:
    """Return the seconds since the client of a folder last wrote lines or a heartbeat."""
    newest = 0.0
    for each in (path / spool.ABOUT, *spool.files(path)[-3:]):
        with suppress(FileNotFoundError, NotADirectoryError):
            newest = max(newest, each.stat().st_mtime)
    return time.time() - newest


def _sign(path: Path) -> tuple[Any, ...]:
    """Return a value that changes whenever the client of a folder writes lines or a heartbeat."""
    found = []
    for each in (path / spool.ABOUT, *spool.files(path)[-3:]):
        with suppress(FileNotFoundError, NotADirectoryError):
            found.append((each.name, (stat := each.stat()).st_size, stat.st_mtime_ns))
    return tuple(found)


def lock() -> FileLock:
    """Return the lock that the only watcher of a lab's folder holds."""
    return FileLock(spool.root() / ".lock")


def main() -> None:
    """Watch until the lab closes, or no watched run is running."""
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
        return  # another lab already watches this folder


def changed() -> int:
    """Return the modification time of the folder of watched runs in ns; 0 if it does not exist."""
    try:
        return os.stat(spool.root()).st_mtime_ns
    except OSError:
        return 0


class Watching:
    """The launcher's thread that starts the watcher when a client writes."""

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
            with suppress(OSError, LabError):  # the process cannot be started now: retry at the next change
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
        """Stop the watcher. Lines that arrive later are read when a lab is running again."""
        self._closed.set()
        self._thread.join()
        self._cut()


if __name__ == "__main__":
    main()
