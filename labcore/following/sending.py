"""What was read of a run, as calls of `Watch`: numbers by step, completions beside them, settings, the end.

A step is sent once it is complete: when a later one comes, or when nothing more came for a while, since loggers write
the numbers of a step one after the other. Steps that come again are sent again: the lab makes forks of them.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from labcore.errors import LabError
from labcore.following.calls import Call, Completions, Named, Pictures, Row, Settings
from labcore.following.reader import Memory
from labcore.runs.imports.layouts import Layout, is_axis, known, layout_of
from labcore.runs.store.rows import COUNTERS
from labcore.watch import Watch

UNIX_TIME = 1e9  # seconds of a run are less
_CLOCKS = ("_timestamp", "timestamp", "time", "wall_time")  # columns of the time of day
BACKLOG = 200  # steps with completions that are sent of those that were there before
FLUSHED = 500  # steps between two waits for the client
_NONE = 3  # rows without a step after which a log has none
Open = Callable[[str, str, Mapping[str, Any], str], Watch]  # name, tool, config, id


class Sending:
    """One run. `memory` is JSON, and all that is known of it. `begin(name, tool, config, id)` opens the client."""

    def __init__(self, memory: Memory, begin: Open, say: Callable[[str], None]):
        self.memory, self._begin, self._say = memory, begin, say
        self._watch: Watch | None = None
        self._waiting: list[Pictures] = []
        self._sent = 0
        self._columns: set[str] = set()
        self._layout: Layout = layout_of(())

    @property
    def going(self) -> bool:
        """True while its client is open."""
        return self._watch is not None

    @property
    def kept(self) -> bool:
        """True while a step waits for more of it."""
        return bool(self.memory.get("row") or self._waiting)

    def take(self, call: Call) -> None:
        """Send a call, or keep it until its step is complete."""
        if isinstance(call, Row):
            self._row(call)
        elif isinstance(call, Pictures):
            self._waiting.append(call)
        elif isinstance(call, Completions):
            self._waiting.append(Pictures(call.step, lambda: call))
        elif isinstance(call, Settings):
            self._settings(call.values)
        elif isinstance(call, Named):
            self.memory["name"] = call.name
        else:
            self.quiet()
            self._open().finish(call.state, call.message)
            self._watch = None

    def quiet(self) -> bool:
        """Nothing more came for a while: what is kept is complete. Returns whether anything was kept."""
        kept = self.kept
        self._send()
        self._pictures(math.inf)
        if kept and self._watch:
            self._watch.flush()
        return kept

    def leave(self) -> None:
        """Close the client; the run has not ended."""
        if self._watch:
            self._watch.close()
            self._watch = None

    def finish(self, message: str) -> None:
        """End the run, all of which was read."""
        self.quiet()
        if self._watch:
            self._watch.finish("finished", message)
            self._watch = None

    # ---------------------------------------------------------------- numbers

    def _row(self, row: Row) -> None:
        numbers = {name: float(value) for name, value in row.values.items()
                   if isinstance(value, int | float) and not isinstance(value, bool)}
        times = [name for name in _CLOCKS if numbers.get(name, 0.0) > UNIX_TIME]
        clock = next((numbers.pop(name) for name in times), time.time() if row.clock is None else row.clock)
        self._learn(numbers)
        step = self._step(numbers)
        loose = self.memory.setdefault("loose", {})
        if step is None:  # an evaluation between two steps, say: it is drawn with the next one
            loose.update(numbers)
            self.memory["without"] = self.memory.get("without", 0) + 1
            if self.memory["without"] == _NONE and "axis" not in self.memory:
                self._say("has no step column, so its rows cannot be placed: name one column step")
            return
        kept: dict[str, Any] = self.memory.setdefault("row", {})
        if kept and kept["step"] != step:
            self._send()
            kept = self.memory["row"] = {}
        kept.setdefault("numbers", {}).update({**loose, **numbers})
        kept.update(step=step, clock=clock)
        loose.clear()

    def _learn(self, names: Iterable[str]) -> None:
        """Know the log's layout by all columns that any of its rows had."""
        columns = self.memory.setdefault("columns", [])
        if new := [name for name in names if name not in self._columns]:
            columns += new
        if new or not self._columns:
            self._columns.update(columns)
            self._layout = layout_of(self._columns)

    def _step(self, numbers: dict[str, float]) -> int | None:
        """The step of a row by the column that placed the first one, or the number of the row in a log that counts its
        rows. None where it has no step."""
        if self._layout.row:
            count = self.memory["count"] = self.memory.get("count", 0) + 1
            sums = self.memory.setdefault("sums", {})
            for counter, metric in self._layout.sums.items():
                lengths = [value for name, value in numbers.items() if math.isfinite(value)
                           and any(key == metric for key, _ in known(self._layout, name))]
                sums[counter] = sums.get(counter, 0) + int(sum(lengths[:1]))
                numbers[counter] = float(sums[counter])
            return int(count)
        if "axis" not in self.memory:
            found = (name for axis in self._layout.axes for name in numbers if is_axis(axis, name))
            if (name := next(found, None)) is None:
                return None
            self.memory["axis"] = name
        axes = [self.memory["axis"], *self._twins(numbers)]
        step = next((numbers[name] for name in axes if name in numbers), math.nan)
        return int(step) if math.isfinite(step) and step >= 0 else None

    def _twins(self, numbers: Mapping[str, float]) -> list[str]:
        """The other axes that said the same as the first one in every row: verl's step and its training/global_step."""
        chosen, twins = self.memory["axis"], self.memory.setdefault("twins", {})
        for name in numbers if chosen in numbers else ():
            if name != chosen and any(is_axis(axis, name) for axis in self._layout.axes):
                twins[name] = twins.get(name, True) and numbers[name] == numbers[chosen]
        return [name for name, same in twins.items() if same]

    def _send(self) -> None:
        """Send the step that is kept, after the completions of the steps up to it."""
        kept = self.memory.pop("row", None)
        if not kept:
            return
        self._learn(kept["numbers"])
        self._pictures(kept["step"])
        tokens, seconds = self._counter("tokens", kept["numbers"]), self._seconds(kept["numbers"], kept["clock"])
        self._open().log(kept["step"], self._without_axes(kept["numbers"], kept["step"]),
                         None if tokens is None else int(tokens), seconds)
        self._sent += 1
        if self._sent % FLUSHED == 0:
            self._open().flush()

    def _without_axes(self, numbers: Mapping[str, float], step: int) -> dict[str, float]:
        """A row's numbers without the columns that only place it, and with what its steps count."""
        axes = self._layout.axes
        found = {name: value for name, value in numbers.items() if not any(is_axis(each, name) for each in axes)
                 or any(key in COUNTERS for key, _ in known(self._layout, name))}
        counts = next((axis.counts for axis in axes if is_axis(axis, self.memory.get("axis", ""))), "")
        if counts and not any(key == counts for name in found for key, _ in known(self._layout, name)):
            found[counts] = float(step)
        return found

    def _seconds(self, numbers: Mapping[str, float], clock: float) -> float:
        """Seconds since the start of the run: a column of them, or the time of day less that of the first row. A log
        without either counts from when its first row was read."""
        said = self._counter("seconds", numbers)
        if said is not None and said < UNIX_TIME:
            return said
        clock = said or clock
        return max(0.0, clock - float(self.memory.setdefault("began", clock)))

    def _counter(self, key: str, numbers: Mapping[str, float]) -> float | None:
        """The number of a counter by the best of its names; None where it has none."""
        ranks = {name: rank for name in numbers for of, rank in known(self._layout, name) if of == key}
        value = numbers[min(ranks, key=lambda name: ranks[name])] if ranks else math.nan
        return value if math.isfinite(value) else None

    # ---------------------------------------------------------------- the rest

    def _pictures(self, last: float) -> None:
        """Send the completions of the steps up to `last`: of very many some, spread over all of them."""
        self._waiting.sort(key=lambda each: each.step)
        ready = [each for each in self._waiting if each.step <= last]
        self._waiting = self._waiting[len(ready):]
        if len(ready) > BACKLOG:
            self._say(f"{len(ready):,} steps have completions: those of {BACKLOG} of them are shown")
            ready = [ready[place * len(ready) // BACKLOG] for place in range(BACKLOG - 1)] + ready[-1:]
        for each in ready:
            try:
                found = each.read()
            except LabError as error:
                self._say(f"is left out: {str(error).rstrip('.')}")
                each.done()
                continue
            watch = self._open()
            watch.rollouts(found.step, found.prompts, found.completions, found.rewards, group=found.group, **found.more)
            watch.flush()
            each.done()

    def _settings(self, values: Mapping[str, Any]) -> None:
        """The settings of the run; those that change later begin with the next step."""
        now = self.memory.setdefault("config", {})
        new = {key: value for key, value in values.items() if key not in now or now[key] != value}
        now.update(new)
        if new and self._watch:
            self._send()
            self._watch.config(new)

    def _open(self) -> Watch:
        if self._watch is None:
            named = self._layout.tool
            tool = self.memory["tool"] if named == layout_of(()).tool else named
            name = str(self.memory["name"])[-100:]
            run_id = self.memory.setdefault("id", f"{_slug(name)}-{secrets.token_hex(3)}")
            self._watch = self._begin(name, tool, self.memory.get("config", {}), run_id)
        return self._watch


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "run"
