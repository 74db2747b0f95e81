"""Helpers: copies of recorded files, readers of growing files, a follower of one folder, and the lines that it sent."""

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

from labcore.runs.files.paths import home
from labcore.watch.following.calls import Call, Row
from labcore.watch.following.follower import Follower
from labcore.watch.following.reader import Reader

RECORDED = Path(__file__).parent / "recorded"


def copied(name: str, folder: Path) -> Path:
    """A copy of recorded files in `folder`, those unpacked that are compressed."""
    target = folder / name
    shutil.copytree(RECORDED / name, target)
    for path in target.rglob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    for path in target.rglob("*"):
        os.utime(path)  # a run whose files are old is left
    return target


def content(pattern: str) -> bytes:
    """The content of the recorded file that a pattern finds."""
    path, = RECORDED.glob(pattern)
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


class Followed:
    """A file that grows, and a reader of it."""

    def __init__(self, path: Path, reader: type[Reader]):
        self.path, self.kind, self.said = path, reader, list[str]()
        self.memory: dict[str, Any] = {}
        path.touch()
        self.restart()

    def restart(self) -> None:
        """Another process goes on with what this one knew."""
        self.memory = json.loads(json.dumps(self.memory))
        self.reader = self.kind(self.path, self.memory, {}, self.said.append)

    def look(self, settled: bool = False) -> list[Call]:
        return [*self.reader.look(settled)]

    def append(self, data: bytes) -> list[Call]:
        """What is found once the file has this too."""
        with self.path.open("ab") as file:
            file.write(data)
        return self.look()


def rows(calls: list[Call]) -> list[dict[str, Any]]:
    """The rows among some calls."""
    return [dict(call.values) for call in calls if isinstance(call, Row)]


def sent(kind: str = "") -> dict[str, list[dict[str, Any]]]:
    """The lines that were sent, by the name of their run: those of a kind, or all but the first of each process."""
    found: dict[str, list[dict[str, Any]]] = {}
    for folder in sorted((home() / "watched").iterdir()) if (home() / "watched").exists() else ():
        name = json.loads((folder / "run.json").read_text())["name"]
        for path in sorted((folder / "spool").iterdir()):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found.setdefault(name, []).extend(line for line in lines if line["kind"] == (kind or line["kind"]))
    return found


def curve(lines: list[dict[str, Any]], key: str) -> dict[int, Any]:
    """The numbers called `key` by step."""
    numbers = [line for line in lines if line["kind"] == "numbers"]
    return {line["step"]: line["numbers"][key] for line in numbers if key in line["numbers"]}


class Session:
    """A follower of one folder, its sentences, and its looks."""

    def __init__(self, folder: Path):
        self.folder, self.said = folder, list[str]()
        self.begin()

    def begin(self) -> None:
        self.follower = Follower(self.folder, self.said.append, {})

    def restart(self) -> None:
        self.follower.close()
        self.begin()

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.follower.look()


def once(folder: Path) -> list[str]:
    """Read what is in a folder, then end. Returns what was said."""
    session = Session(folder)
    session.follower.look(last=True)
    session.follower.finish()
    return session.said


def tool_of(name: str) -> str:
    return sent("run")[name][0]["tool"]
