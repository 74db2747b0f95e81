"""Follow folders: find the logs of trainers, read new content, and send it to the lab.

The read positions are saved in `RL_LAB_HOME/following`, so a restarted follower continues at them. They are saved after
the client has written the rows. If the follower is killed in between, some rows are sent twice, and the lab recognises
them by their steps and numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from labcore.errors import LabError, listed
from labcore.runs.files.untrusted import opened
from labcore.watch import Watch
from labcore.watch.following import memory
from labcore.watch.following.calls import Call, Row
from labcore.watch.following.folder import Folder
from labcore.watch.following.growing import Stamp, stamp
from labcore.watch.following.layouts import HEAD, HELD_OUT, LAYOUTS, Layout, candidates
from labcore.watch.following.reader import Damaged, Reader
from labcore.watch.following.sending import Sending
from labcore.watch.following.step_files import StepFile

IDLE_SECONDS = 900.0  # without a change of its files, after which a run is no longer sent: its trainer may have ended
KEEP_SECONDS = 5.0  # between two saves of the read positions
SETTLED_SECONDS = 5.0  # after which a file that is new to the follower counts as complete
WAIT_SECONDS = 60.0  # for which other files wait for an empty file to become a log
MOST_RUNS = 200  # in one file
RARELY = 30  # looks between two checks of a file of completions that was read before
_OF_TRAINER = ("checkpoint-", "trainer_state.json", "training_args.bin", "completions")  # beside the folder `runs`


@dataclass
class Source:
    """A followed file: its layout, the path of its run, its reader, and its stamp at the last look."""

    name: str
    layout: Layout
    run: str
    reader: Reader
    stamp: Stamp | None = None
    settled: bool = False
    said: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _New:
    """A file that is not followed yet; `waits` if its layout is still unknown or a better log may appear."""

    name: str
    layout: Layout
    run: str
    waits: bool = False


class Follower:
    """Follows one folder. `say` prints a sentence; `connect` are the options of `Watch` for the address of the lab.

    Raises LabError if another process follows the folder, or if the saved read positions cannot be read.
    """

    def __init__(self, folder: Path, say: Callable[[str], None], connect: Mapping[str, Any]):
        self.path, self._say, self._connect = folder, say, connect
        self._kept = memory.Kept(folder)
        self._folder = Folder(folder)
        self._sources: dict[str, Source] = {}
        self._other: set[str] = set()  # files that are not followed
        self._without: set[str] = set()  # files among them that have no step
        self._seen: dict[str, float] = {}  # file that is not followed yet -> time at which it was first seen
        self._doubled: set[tuple[str, Any]] = set()  # (run, layout) of files that repeat the metrics of a run
        self._said: set[str] = set()
        self._runs: dict[str, Sending] = {}
        self._looks, self._keeps, self._new = 0, 0.0, False

    def look(self, last: bool = False) -> bool:
        """Read new content. `last`: all files are complete. Returns True if anything was new."""
        if not self.path.is_dir():
            self._say_once(f"{self.path} does not exist yet: waiting for it.")
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
        """End all runs, because their files were read completely."""
        for run in self._runs.values():
            run.finish(f"Read from {self.path.name}.")
        self._keep()
        self._kept.close()

    def close(self) -> None:
        """Stop following, without ending the runs."""
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
        """Follow new files, files with metrics first. Completions are added to the run of their metrics, and wait while
        the layout of a file is unknown."""
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
            self._say(f"{self.path.name}: not followed, because they are no log with a step: {listed(left, 5)}. rl-lab "
                      "import FILE reads charts exported from Weights & Biases.")

    def _recognised(self, name: str, last: bool) -> _New | None:
        """Return the layout of a file; None if it has none. If the layout cannot be decided yet, the file waits."""
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
                              "the metrics of this run.")
                return
        else:
            run = self._run_of_completions(run)
        shared = self._kept.of("shared", f"{run}\n{LAYOUTS.index(layout)}")
        reader = layout.reader(self.path / name, self._kept.of("files", name), shared, lambda sentence: self._say_once(
            f"{self.path.name}/{name} {sentence}."))
        self._sources[name] = Source(name, layout, run, reader)

    def _own_folder(self, name: str, layout: Layout, run: str, names: list[str]) -> str:
        """Return the run of a log: each of several folders `runs/DATE_HOST` is a separate run, unless a trainer of
        Hugging Face wrote them."""
        dated = found["dated"] if (found := layout.path.fullmatch(name)) and "dated" in found.groupdict() else None
        if not dated:
            return run
        before = f"{run}/" if run else ""
        others = any(each.startswith(f"{before}runs/") and not each.startswith(f"{before}{dated}") for each in names)
        trainer = any(each.startswith(before + mark) for each in names for mark in _OF_TRAINER)
        return f"{before}{dated}".strip("/") if others and not trainer else run

    def _run_of_completions(self, run: str) -> str:
        """Return the run of completions: the run with metrics in the same folder or below it, or the only run."""
        runs = {source.run for source in self._sources.values() if source.layout.numbers}
        if run in runs or run.rpartition("/")[2] == HELD_OUT:
            return run
        below = {each for each in runs if not run or each.startswith(f"{run}/")}
        return min(below if len(below) == 1 else runs if len(runs) == 1 else {run})

    def _read(self, source: Source, last: bool) -> set[str]:
        """Read a file that changed, and once more when it stops changing. Returns the runs with new data."""
        rarely = isinstance(source.reader, StepFile) and self._looks % RARELY == 0
        if source.settled and isinstance(source.reader, StepFile) and not rarely and not last:
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
        """Close the clients of runs whose files have not changed for IDLE_SECONDS; new rows open them again."""
        newest: dict[str, int] = {}
        for source in self._sources.values():
            if source.stamp:
                newest[source.run] = max(newest.get(source.run, 0), source.stamp.changed)
        for key, run in self._runs.items():
            if run.going and time.time() - newest.get(key.partition("\n")[0], 0) / 1e9 > IDLE_SECONDS and not (
                    run.kept):
                run.leave()


def _calls(reader: Reader, settled: bool) -> Iterator[Call]:
    """Yield the new data of a file. An unreadable file is reported and read again when it changes."""
    try:
        yield from reader.look(settled)
    except Damaged as error:
        reader.say(str(error))
    except (LabError, OSError) as error:
        reader.say(f"cannot be read now: {str(error).rstrip('.')}")


def _beside(new: _New) -> set[str]:
    """The runs to which a file may belong: its own run and, in some layouts, the run of its folder."""
    return {new.run, new.run.rpartition("/")[0]} if new.layout.patience else {new.run}


def _order(source: Source) -> tuple[bool, int, str]:
    """Sort key: completions first, so that they are sent with their step; files of one log by time."""
    return source.layout.numbers, source.stamp.changed if source.stamp and source.layout.many else 0, source.name


def _head(path: Path) -> bytes:
    with suppress(LabError, OSError), opened(path) as file:
        return file.read(HEAD)
    return b""
