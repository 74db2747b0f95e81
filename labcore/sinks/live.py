"""Send the metrics of a training run to its sinks. A sink that raises is reported once and then dropped; the run
continues."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from labcore.errors import first_line
from labcore.sinks import choice
from labcore.sinks.sink import Sink
from labcore.spec.record import Record
from labcore.store.rows import RunRow
from labcore.store.store import Store


class Live:
    """See the module. What was logged before a resume is not sent again."""

    def __init__(self, store: Store, row: RunRow):
        self._store, self._run_id, self._step = store, row.id, row.step
        self._sinks: dict[str, Sink] = {}
        for name in choice.asked(store, row.id):
            if (sink := self._tried(name, partial(choice.SINKS[name].open, row))) is not None:
                self._sinks[name] = sink
                self._note(f"Metrics are also sent to {choice.SINKS[name].label}: {sink.place}")

    def write(self, record: Record) -> None:
        """Send the metrics of a step that is committed."""
        if record.step <= self._step:
            return
        self._step = record.step
        for name, sink in [*self._sinks.items()]:
            self._tried(name, partial(sink.write, record.step, record.metrics))

    def close(self, broken: bool) -> None:
        """Send the rest, and whether the run ended by a fault."""
        for name, sink in [*self._sinks.items()]:
            self._tried(name, partial(sink.close, broken))
        self._sinks.clear()

    def _tried(self, name: str, do: Callable[[], Any]) -> Any:
        """What `do` returns; None where it raises, and then its sink gets nothing more."""
        try:
            return do()
        except Exception as error:  # of a library that the lab does not know
            self._sinks.pop(name, None)
            reason = first_line(error).rstrip(".")
            self._note(f"Logging to {choice.SINKS[name].label} stopped ({reason}): the run continues, and its metrics "
                       "stay in the lab.")
            return None

    def _note(self, text: str) -> None:
        self._store.log(self._run_id, "note", {"text": text}, self._step)
