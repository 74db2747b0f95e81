"""The progress line of a run in the foreground."""

from __future__ import annotations

import sys
import time

from labcore.cli.terminal import ERASE
from labcore.runs.titles import title
from labcore.spec.record import Record
from labcore.store.store import Store

_HEADLINE = ("episode_return", "eval_return", "value_error", "reward", "exact_match", "rewards/accuracies", "kl",
             "loss")
_TERMINAL_SECONDS = 0.1
_LOG_SECONDS = 5.0


class Progress:
    """Writes one line to standard error: rewritten in place on a terminal, every few seconds in a log file."""

    def __init__(self, store: Store, quiet: bool = False):
        self._store, self._quiet = store, quiet
        self._terminal = sys.stderr.isatty()
        self._run_id, self._title, self._steps, self._shown, self._open = "", "", 0, 0.0, False
        self._begun: tuple[int, float] = (0, 0.0)
        self._values: dict[str, float] = {}

    def show(self, run_id: str, record: Record, seconds: float) -> None:
        """Say where the run is after `record`."""
        if self._quiet:
            return
        if run_id != self._run_id:
            self.close()
            run = self._store.run(run_id)
            self._run_id, self._title, self._steps, self._values = run_id, title(run), run.spec.steps, {}
            self._begun = (record.step - 1, seconds if record.step > 1 else 0.0)
        self._values |= {key: record.metrics[key] for key in _HEADLINE if key in record.metrics}
        now = time.monotonic()
        if now - self._shown < (_TERMINAL_SECONDS if self._terminal else _LOG_SECONDS) and record.step < self._steps:
            return
        self._shown = now
        line = self._line(record, seconds)
        sys.stderr.write(f"{ERASE}{line}" if self._terminal else f"{line}\n")
        sys.stderr.flush()
        self._open = self._terminal

    def close(self) -> None:
        """End the line."""
        if self._open:
            sys.stderr.write("\n")
            self._open = False

    def _line(self, record: Record, seconds: float) -> str:
        steps, spent = record.step - self._begun[0], seconds - self._begun[1]
        speed = steps / spent if spent > 0 else 0.0
        left = f"{(self._steps - record.step) / speed:.0f} s left" if speed else "…"
        numbers = "  ".join(f"{key.removeprefix('rewards/')} {value:.3f}" for key, value in self._values.items())
        return f"{self._title}  {record.step}/{self._steps}  {numbers}  {speed:.1f} steps/s  {left}"
