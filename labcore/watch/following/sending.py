"""Send the data of a run with `Watch`: metrics by step, completions, settings and the end.

A step is sent when it is complete: when a later step begins, or after a pause, because loggers write the metrics of a
step one after the other. Repeated steps are sent again, and the lab makes forks of them.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from labcore.errors import LabError
from labcore.watch import Watch
from labcore.watch.following.calls import Call, Completions, Named, Pictures, Row, Settings
from labcore.watch.following.columns import Columns
from labcore.watch.following.reader import Memory

UNIX_TIME = 1e9  # larger values are unix times, not seconds of a run
_CLOCKS = ("_timestamp", "timestamp", "time", "wall_time")  # columns with a clock time
BACKLOG = 200  # steps with completions that are sent of those that existed at the start
FLUSHED = 500  # steps between two waits for the client
_DONE = {"train_runtime", "train/train_runtime"}  # in the last row of a Hugging Face trainer
_NONE = 3  # rows without a step after which a log counts as having none
Open = Callable[[str, str, Mapping[str, Any], str], Watch]  # name, tool, config, id


class Sending:
    """One run. `memory` is its state as JSON. `begin(name, tool, config, id)` opens the client."""

    def __init__(self, memory: Memory, begin: Open, say: Callable[[str], None]):
        self.memory, self._begin, self._say = memory, begin, say
        self._watch: Watch | None = None
        self._waiting: list[Pictures] = []
        self._sent = 0
        self._columns = Columns(memory.setdefault("columns", []))

    @property
    def going(self) -> bool:
        """True while the client is open."""
        return self._watch is not None

    @property
    def kept(self) -> bool:
        """True while a step waits for more metrics."""
        return bool(self.memory.get("row") or self._waiting)

    def take(self, call: Call) -> None:
        """Send a call, or store it until its step is complete."""
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
            self._open()
            self._finish(call.state, call.message)

    def quiet(self) -> bool:
        """Send the stored step after a pause. Returns True if there was one."""
        kept = self.kept
        self._send()
        self._pictures(math.inf)
        if kept:
            self._flush()
        return kept

    def leave(self) -> None:
        """Close the client without ending the run."""
        if self._watch:
            self._watch.close()
            self._watch = None

    def finish(self, message: str) -> None:
        """End the run, which was read completely."""
        self.quiet()
        self._finish("finished", message)

    def _finish(self, state: str, message: str = "") -> None:
        if self._watch:
            self._watch.finish(state, message)
            self._watch = None

    # ---------------------------------------------------------------- numbers

    def _row(self, row: Row) -> None:
        numbers = {name: float(value) for name, value in row.values.items()
                   if isinstance(value, int | float) and not isinstance(value, bool)}
        times = [name for name in _CLOCKS if numbers.get(name, 0.0) > UNIX_TIME]
        clock = next((numbers.pop(name) for name in times), row.clock or 0.0)
        self._columns.learn(numbers)
        step = self._step(numbers)
        loose = self.memory.setdefault("loose", {})
        if step is None:  # for example an evaluation between two steps: it is drawn with the next step
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

    def _step(self, numbers: dict[str, float]) -> int | None:
        """Return the step of a row: the column that was the step of the first row, or the row number in a log whose
        rows count as steps. None if it has no step."""
        if self._columns.layout.row:
            count = self.memory["count"] = self.memory.get("count", 0) + 1
            sums = self.memory.setdefault("sums", {})
            for counter, metric in self._columns.layout.sums.items():
                sums[counter] = sums.get(counter, 0) + int(self._columns.number(metric, numbers) or 0)
                numbers[counter] = float(sums[counter])
            return int(count)
        if "axis" not in self.memory:
            if (axis := next((name for name in self._columns.axes if name in numbers), None)) is None:
                return None
            self.memory["axis"] = axis
        axes = [self.memory["axis"], *self._twins(numbers)]
        step = next((numbers[name] for name in axes if name in numbers), math.nan)
        return int(step) if math.isfinite(step) and step >= 0 else None

    def _twins(self, numbers: Mapping[str, float]) -> list[str]:
        """Return the other step columns that equal the first one in every row, such as verl's training/global_step."""
        chosen, twins = self.memory["axis"], self.memory.setdefault("twins", {})
        for name in self._columns.axes if chosen in numbers else ():
            if name != chosen and name in numbers:
                twins[name] = twins.get(name, True) and numbers[name] == numbers[chosen]
        return [name for name, same in twins.items() if same]

    def _send(self) -> None:
        """Send the stored step, after the completions of the steps up to it."""
        kept = self.memory.pop("row", None)
        if not kept:
            return
        self._pictures(kept["step"])
        tokens, seconds = self._columns.number("tokens", kept["numbers"]), self._seconds(kept["numbers"], kept["clock"])
        self._open().log(kept["step"], self._without_axes(kept["numbers"], kept["step"]),
                         None if tokens is None else int(tokens), seconds)
        self._sent += 1
        if not _DONE.isdisjoint(kept["numbers"]):
            self._finish("finished")
        elif self._sent % FLUSHED == 0:
            self._flush()

    def _without_axes(self, numbers: Mapping[str, float], step: int) -> dict[str, float]:
        """Return a row's metrics without pure step columns, and with the quantity that its steps count."""
        found = {name: value for name, value in numbers.items() if name not in self._columns.only_axes}
        counts = self._columns.counted_by(self.memory.get("axis", ""))
        if counts and self._columns.number(counts, found) is None:
            found[counts] = float(step)
        return found

    def _seconds(self, numbers: Mapping[str, float], clock: float) -> float:
        """Return the seconds since the start of the run: from a column, or from the clock time of the first row."""
        said = self._columns.number("seconds", numbers)
        if said is not None and said < UNIX_TIME:
            return said
        clock = said or clock
        return max(0.0, clock - float(self.memory.setdefault("began", clock)))

    # ---------------------------------------------------------------- the rest

    def _pictures(self, last: float) -> None:
        """Send the completions of the steps up to `last`; of very many steps, evenly spaced ones."""
        self._waiting.sort(key=lambda each: each.step)
        ready = [each for each in self._waiting if each.step <= last]
        self._waiting = self._waiting[len(ready):]
        if len(ready) > BACKLOG:
            self._say(f"{len(ready):,} steps have completions: {BACKLOG} of these steps are shown")
            ready = [ready[place * len(ready) // BACKLOG] for place in range(BACKLOG - 1)] + ready[-1:]
        for each in ready:
            try:
                found = each.read()
            except LabError as error:
                self._say(f"is skipped: {str(error).rstrip('.')}")
                each.done()
                continue
            self._open().rollouts(found.step, found.prompts, found.completions, found.rewards, group=found.group,
                                  **found.more)
            self._flush()
            each.done()

    def _settings(self, values: Mapping[str, Any]) -> None:
        """Send the settings of the run; later changes apply from the next step."""
        now = self.memory.setdefault("config", {})
        new = {key: value for key, value in values.items() if key not in now or now[key] != value}
        now.update(new)
        if new and self._watch:
            self._send()
            self._watch.config(new)

    def _flush(self) -> None:
        """Wait until the client has written its queue, because a log is read faster."""
        if self._watch and not self._watch.flush():
            self._say("is read faster than the lab's client can write: is the disk full?")

    def _open(self) -> Watch:
        if self._watch is None:
            named = self._columns.layout.tool
            tool = self.memory["tool"] if named == Columns([]).layout.tool else named
            name = str(self.memory["name"])[-100:]
            run_id = self.memory.setdefault("id", f"{_slug(name)}-{secrets.token_hex(3)}")
            self._watch = self._begin(name, tool, self.memory.get("config", {}), run_id)
        return self._watch


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "run"
