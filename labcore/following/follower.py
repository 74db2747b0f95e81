"""Follow folders: find the files that trainers write there, read what is new in them, and send it to the lab.

What was read is kept in `RL_LAB_HOME/following`, so that another start of the follower goes on where this one ended.
It is kept after the lab's client has written it. If the follower is killed in between, some rows are sent twice, which
the lab knows by their steps and numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from labcore.errors import LabError, listed
from labcore.following import memory
from labcore.following.calls import Call, Row
from labcore.following.folder import Folder
from labcore.following.growing import Stamp, stamp
from labcore.following.layouts import HEAD, HELD_OUT, LAYOUTS, Layout, candidates
from labcore.following.reader import Damaged, Reader
from labcore.following.sending import Sending
from labcore.runs.files.untrusted import opened
from labcore.watch import Watch

IDLE_SECONDS = 900.0  # after which a run whose files do not change is left: its trainer may be gone
KEEP_SECONDS = 5.0  # between two times that what was read is kept
SETTLED_SECONDS = 5.0  # after which a file that is new to the follower counts as written
WAIT_SECONDS = 60.0  # in which an empty file may become the log for which others wait
MOST_RUNS = 200  # in one file
RARELY = 30  # looks between two at a file of completions that was read: it may be written again
_OF_TRAINER = ("checkpoint-", "trainer_state.json", "training_args.bin", "completions")  # beside the folder `runs`


@dataclass
class Source:
    """A file that is followed: its layout, the path of its run, its reader, and its stamp at the last look."""

    name: str
    layout: Layout
    run: str
    reader: Reader
    stamp: Stamp | None = None
    settled: bool = False
    said: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _New:
    """A file that is not followed yet; `waits` where its layout or a better log is awaited."""

    name: str
    layout: Layout
    run: str
    waits: bool = False


class Follower:
    """Follows one folder. `say` prints a sentence; `connect` are the options of `Watch` that say where the lab is.

    Raises LabError where another process follows the folder, or what was read of it cannot be read.
    """

    def __init__(self, folder: Path, say: Callable[[str], None], connect: Mapping[str, Any]):
        self.path, self._say, self._connect = folder, say, connect
        self._kept = memory.Kept(folder)
        self._folder = Folder(folder)
        self._sources: dict[str, Source] = {}
        self._other: set[str] = set()  # files that are not followed
        self._without: set[str] = set()  # of these the ones that have no step
        self._seen: dict[str, float] = {}  # when a file that is not followed yet was first seen
        self._doubled: set[tuple[str, Any]] = set()  # runs and kinds of files that have their numbers once more
        self._said: set[str] = set()
        self._runs: dict[str, Sending] = {}
        self._looks, self._keeps, self._new = 0, 0.0, False

    def look(self, last: bool = False) -> bool:
        """Read what is new. `last`: all files are complete as they are. Returns whether anything was new."""
        if not self.path.is_dir():
            self._say_once(f"{self.path} is not there yet: waiting for it.")
            return False
        self._looks += 1
        names = self._folder.files()
        self._find(names, last)
        busy = set[str]()
        for source in sorted(self._sources.values(), key=_order):
            busy |= self._read(source, last)
        quiet = [run.quiet() for key, run in self._runs.items() if key not in busy]
        if not last:
            self._leave_idle()
        self._new = self._new or bool(busy) or any(quiet)
        if self._new and time.monotonic() - self._keeps > KEEP_SECONDS:
            self._keep()
        return bool(busy)

    def finish(self) -> None:
        """End all runs: their files were read to the end."""
        for run in self._runs.values():
            run.finish(f"Read from {self.path.name}.")
        self._keep()
        self._kept.close()

    def close(self) -> None:
        """Stop following. The runs have not ended."""
        for run in self._runs.values():
            run.quiet()
            run.leave()
        self._keep()
        self._kept.close()

    def _keep(self) -> None:
        self._kept.write()
        self._keeps, self._new = time.monotonic(), False

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self._say(sentence)

    # ---------------------------------------------------------------- files

    def _find(self, names: list[str], last: bool) -> None:
        """Follow the files that are new, those with numbers first: completions go with the numbers of their run, and
        wait for these where a file cannot be told yet."""
        may = [found for name in names if name not in self._sources and (found := self._recognised(name, last))]
        waiting = [each for each in may if each.waits]
        for new in sorted((each for each in may if not each.waits), key=lambda each: (
                not each.layout.numbers, LAYOUTS.index(each.layout), each.name)):
            if new.layout.numbers:
                better = any(LAYOUTS.index(each.layout) < LAYOUTS.index(new.layout) and each.run in _beside(new)
                             for each in waiting)
            else:
                better = bool(waiting) and not any(each.layout.numbers for each in self._sources.values())
            if not better:
                self._follow(new, names)
        if left := sorted(self._without - self._other):
            self._other.update(left)
            self._say(f"{self.path.name}: not followed, because they have no step: {listed(left, 5)}.")

    def _recognised(self, name: str, last: bool) -> _New | None:
        """The layout of a file; None where it has none. Where that cannot be told yet, it waits for a while."""
        may = candidates(name) if name not in self._other else []
        head = _head(self.path / name) if may else b""
        fits = [(layout.begins(head), layout, run) for layout, run in may]
        found = next((each for each in fits if each[0] is not False), None)
        age = time.monotonic() - self._seen.setdefault(name, time.monotonic())
        if found is None:
            (self._without if may else self._other).add(name)
            return None
        fit, layout, run = found
        if fit and (last or age >= layout.patience):
            return _New(name, layout, run)
        if last:
            self._without.add(name)
        return _New(name, layout, run, waits=True) if not last and age < WAIT_SECONDS else None

    def _follow(self, new: _New, names: list[str]) -> None:
        name, layout, run = new.name, new.layout, new.run
        if layout.numbers:
            run = self._own_folder(name, layout, run, names)
            taken = [source for source in self._sources.values() if source.layout.numbers
                     and source.run in _beside(replace(new, run=run))]
            if taken and not (layout.many and layout is taken[0].layout):
                self._other.add(name)
                if (run, layout.path) not in self._doubled:
                    self._doubled.add((run, layout.path))
                    self._say(f"{self.path.name}/{name} is not followed, because {self.path.name}/{taken[0].name} has "
                              "the numbers of that run.")
                return
        else:
            run = self._run_of_completions(run)
        shared = self._kept.of("shared", f"{run}\n{LAYOUTS.index(layout)}")
        reader = layout.reader(self.path / name, self._kept.of("files", name), shared, lambda sentence: self._say_once(
            f"{self.path.name}/{name} {sentence}."))
        self._sources[name] = Source(name, layout, run, reader)

    def _own_folder(self, name: str, layout: Layout, run: str, names: list[str]) -> str:
        """Of several folders `runs/DATE_HOST` each is a run of its own, unless a trainer of Hugging Face made them."""
        dated = found["dated"] if (found := layout.path.fullmatch(name)) and "dated" in found.groupdict() else None
        if not dated:
            return run
        before = f"{run}/" if run else ""
        others = any(each.startswith(f"{before}runs/") and not each.startswith(f"{before}{dated}") for each in names)
        trainer = any(each.startswith(before + mark) for each in names for mark in _OF_TRAINER)
        return f"{before}{dated}".strip("/") if others and not trainer else run

    def _run_of_completions(self, run: str) -> str:
        """The run that completions belong to: that with numbers in their folder or below it, or the only one there."""
        runs = {source.run for source in self._sources.values() if source.layout.numbers}
        if run in runs or run.rpartition("/")[2] == HELD_OUT:
            return run
        below = {each for each in runs if not run or each.startswith(f"{run}/")}
        return min(below if len(below) == 1 else runs if len(runs) == 1 else {run})

    def _read(self, source: Source, last: bool) -> set[str]:
        """Read a file that changed, or once more after it stood still. Returns the runs that got something new."""
        rarely = not source.layout.numbers and self._looks % RARELY == 0
        if source.settled and not source.layout.numbers and not rarely and not last:
            return set()
        now = stamp(self.path / source.name)
        settled = now == source.stamp or (now is not None and source.stamp is None
                                          and time.time() - now.changed / 1e9 > SETTLED_SECONDS)
        if now is None or (settled and source.settled and not rarely and not last):
            return set()
        source.stamp, source.settled = now, settled
        busy = set[str]()
        for call in _calls(source.reader, settled or last):
            if isinstance(call, Row) and call.clock is None:
                call = replace(call, clock=now.changed / 1e9)
            if found := self._run(source, getattr(call, "run", "")):
                key, run = found
                run.take(call)
                busy.add(key)
        return busy

    # ---------------------------------------------------------------- runs

    def _run(self, source: Source, inner: str) -> tuple[str, Sending] | None:
        """The run `inner` of a file; None of a file with too many, whose column is no name of a run."""
        key = f"{source.run}\n{inner}" if inner else source.run
        if key not in self._runs:
            if inner and sum(each.startswith(f"{source.run}\n") for each in self._runs) >= MOST_RUNS:
                source.reader.say(f"has more than {MOST_RUNS} runs: rows of further ones are left out")
                return None
            name = "/".join(filter(None, (self.path.absolute().name, source.run, inner)))
            about = self._kept.of("runs", key)
            about.setdefault("name", name)
            about.setdefault("tool", source.layout.tool)
            self._runs[key] = Sending(about, self._begin, source.reader.say)
        return key, self._runs[key]

    def _begin(self, name: str, tool: str, config: Mapping[str, Any], run_id: str) -> Watch:
        watch = Watch(name, tool=tool, config=config, run_id=run_id, **self._connect)
        if not watch.active:
            raise LabError(f"{name} cannot be sent to the lab: see the warning above.")
        self._say_once(f"{name} is sent to the lab as {run_id}.")
        return watch

    def _leave_idle(self) -> None:
        """Close the client of runs whose files have not changed for long; new rows open it again."""
        newest: dict[str, int] = {}
        for source in self._sources.values():
            if source.stamp:
                newest[source.run] = max(newest.get(source.run, 0), source.stamp.changed)
        for key, run in self._runs.items():
            if run.going and time.time() - newest.get(key.partition("\n")[0], 0) / 1e9 > IDLE_SECONDS and not (
                    run.kept):
                run.leave()


def _calls(reader: Reader, settled: bool) -> Iterator[Call]:
    """What is new in a file. One that cannot be read is said, and looked at again when it changes."""
    try:
        yield from reader.look(settled)
    except Damaged as error:
        reader.say(str(error))
    except (LabError, OSError) as error:
        reader.say(f"cannot be read now: {str(error).rstrip('.')}")


def _beside(new: _New) -> set[str]:
    """The runs that a file is of: one that stands in for a better log is of that of its folder."""
    return {new.run, new.run.rpartition("/")[0]} if new.layout.patience else {new.run}


def _order(source: Source) -> tuple[bool, int, str]:
    """Completions first, so that they are sent with their step; the files of one log as they were written."""
    return source.layout.numbers, source.stamp.changed if source.stamp and source.layout.many else 0, source.name


def _head(path: Path) -> bytes:
    with suppress(LabError, OSError), opened(path) as file:
        return file.read(HEAD)
    return b""
