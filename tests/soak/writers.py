"""Kills inside the writing of exports and imports: the result is whole or not there, and a second try works.

A command writes in a fork and is killed at one of the places where it opens, makes, links or renames a file, or a
moment after it, in the middle of a write.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from labcore.runs.store.dialects import sqlite_url
from labcore.runs.store.store import Store
from tests.exports.capsules.tools import content
from tests.soak.inputs import answer, processes
from tests.soak.report import Report

WRITING = os.O_WRONLY | os.O_RDWR
CHANGES = ("os.mkdir", "os.link", "os.rename", "os.remove", "os.rmdir")
MOMENT = 0.004  # seconds after a change, at most
RUN = ("run", "--kind", "maze", "--algorithm", "q_learning", "--steps", "8", "--json")
COMMANDS: Mapping[str, tuple[str, ...]] = {  # what is written, by the command
    "export": ("export", "{run}", "--out", "{out}/folder/export"),
    "capsule": ("export", "{run}", "--capsule", "--out", "{out}/run.zip"),
    "import of a capsule": ("import", "{capsule}"),
    "import of a table": ("import", "{table}")}


class Strike:
    """Counts the changes of files in this process, and kills it at change number `at`, `moment` seconds later."""

    def __init__(self, at: int, moment: float):
        self._left, self._moment = at, moment

    def __call__(self, event: str, given: tuple[Any, ...]) -> None:
        if not (event in CHANGES or (event == "open" and isinstance(given[2], int) and given[2] & WRITING)):
            return
        self._left -= 1
        if self._left == 0 and self._moment:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it ends the process wherever it is, as SIGKILL does
            signal.setitimer(signal.ITIMER_REAL, self._moment)
        elif self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def struck(at: int, moment: float, words: list[str], home: Path, place: Path, said: Path) -> None:
    """In a fork: a command that is killed at its change number `at`."""
    sys.addaudithook(Strike(at, moment))
    answer(words, home, place, said)


class Writers:
    """Trials on a lab of their own in the folder `place`."""

    def __init__(self, report: Report, place: Path):
        self._report, self._place = report, place
        for folder in ("here", "user", "tmp", "files"):
            (place / folder).mkdir(parents=True)
        self._pattern = place / "pattern"
        assert self._do(answer, list(RUN), self._pattern) == 0, self._said()
        self._run = next(path.name for path in self._pattern.iterdir() if path.name.startswith("q_learning"))
        self._whole = {kind: self._first(kind) for kind in COMMANDS}

    def _first(self, kind: str) -> object:
        """What an undisturbed command writes; kept as the files that the imports read."""
        with self._lab() as (home, out):
            assert self._do(answer, self._words(kind, out), home) == 0, self._said()
            if kind == "export":
                shutil.copy(out / "folder" / "export" / "metrics.csv", self._place / "files" / "table.csv")
            elif kind == "capsule":
                shutil.copy(out / "run.zip", self._place / "files" / "run.zip")
            return written(kind, home, out)

    def trial(self, chance: random.Random) -> None:
        """Kill one writer. Raises AssertionError where half of something is left, or a second try fails."""
        kind = chance.choice(list(COMMANDS))
        self.one(kind, 1 + int(chance.random() ** 2 * 120), chance.choice((0, chance.uniform(0, MOMENT))))

    def one(self, kind: str, at: int, moment: float) -> None:
        """Kill the writer of `kind` at its change number `at`, `moment` seconds later."""
        with self._lab() as (home, out):
            words = self._words(kind, out)
            code = self._do(struck, words, home, at, moment)
            assert code in (0, -signal.SIGKILL, -signal.SIGALRM), f"{kind} ended with {code}: {self._said()}"
            left = written(kind, home, out)
            assert left in (None, self._whole[kind]), f"half of it is there after the kill at {at}: {left}"
            assert self._do(answer, words, home) == 0, f"the second try fails after the kill at {at}: {self._said()}"
            again = written(kind, home, out, twice=left is not None)
            assert again == self._whole[kind], f"the second try gave something else after the kill at {at}: {again}"
            self._report.count("Kills inside the writing of exports and imports",
                               "too late: all was written" if code == 0 else kind)

    def _lab(self) -> Lab:
        return Lab(self._pattern, self._place)

    def _words(self, kind: str, out: Path) -> list[str]:
        files = self._place / "files"
        return [word.format(run=self._run, out=out, capsule=files / "run.zip", table=files / "table.csv")
                for word in COMMANDS[kind]]

    def _do(self, how: Callable[..., None], words: list[str], home: Path, *more: float) -> int | None:
        process = processes.Process(target=how, args=(*more, words, home, self._place, self._place / "said"))
        process.start()
        process.join()
        return process.exitcode

    def _said(self) -> str:
        return (self._place / "said").read_text(errors="replace")[-500:]


class Lab:
    """A lab for one trial: a copy of `pattern`, and a folder for what is exported; both are gone afterwards."""

    def __init__(self, pattern: Path, place: Path):
        self._pattern, self._folder = pattern, place / "trial"

    def __enter__(self) -> tuple[Path, Path]:
        home, out = self._folder / "home", self._folder / "out"
        shutil.copytree(self._pattern, home)
        out.mkdir()
        return home, out

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder)


def written(kind: str, home: Path, out: Path, twice: bool = False) -> object:
    """What a command of `kind` left, but for names that differ each time; None where it left nothing. Names with a
    dot in front do not count: nobody reads them. `twice`: an import that was there already came a second time."""
    if kind == "export":
        return _files(out / "folder") or None
    if kind == "capsule":
        return _sealed(out / "run.zip") if (out / "run.zip").exists() else None
    if kind == "import of a table":
        found = [_files(each) for each in (home / "imported").glob("[!.]*")]
        return None if not found else [sorted(each) for each in found[twice:]]
    return _imported(home, twice)


def _files(folder: Path) -> dict[str, bytes]:
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return {str(name): (folder / name).read_bytes() for name in names
            if not any(part.startswith(".") for part in name.parts)}


def _sealed(capsule: Path) -> dict[str, str]:
    return {name: seal["sha256"] for name, seal in json.loads(content(capsule)["manifest.json"])["files"].items()}


def _imported(home: Path, twice: bool) -> object:
    """The rows and the files of the run that was imported. Raises AssertionError where a folder is no run's."""
    store = Store(sqlite_url(home / "lab.db"))
    try:
        rows = {row.id: row for row in store.runs()}
        folders = {path.name for path in home.glob("q_learning*") if path.is_dir()}
        assert folders == set(rows), f"folders without a run, or the other way round: {folders ^ set(rows)}"
        found = [row for row in rows.values() if "imported" in row.tags][twice:]
        return [(len(store.steps_after(row.id)), row.state, sorted(_files(home / row.id))) for row in found] or None
    finally:
        store.dispose()
