"""Commands print without the control characters that a text of others may hold: a terminal obeys them."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

from labcore.catalog.amounts import left
from labcore.runs import jobs
from labcore.runs.spec import activity
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from labcore.runs.titles import title

ERASE = "\r\x1b[K"  # the lab's own: the line is written again
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but the tab and the end of a line


class _Plain:
    """A stream that escapes control characters as JSON does, so JSON stays the same JSON."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        begin = ERASE if text.startswith(ERASE) else ""
        plain = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text[len(begin):])
        self._stream.write(begin + plain)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def plain() -> Iterator[None]:
    """A context in which nothing printed reaches standard output or standard error with a control character."""
    with redirect_stdout(_Plain(sys.stdout)), redirect_stderr(_Plain(sys.stderr)):
        yield


# ---------------------------------------------------------------- progress
# The progress line of a run in the foreground.

_HEADLINE = ("episode_return", "eval_return", "value_error", "reward", "exact_match", "rewards/accuracies", "kl",
             "loss")
_TERMINAL_SECONDS = 0.1
_LOG_SECONDS = 5.0
_ACTIVITY_SECONDS = 10.0  # in a log file, of a step that takes long


def computed(spec: jobs.Spec) -> dict[str, Any]:
    """The result of a job, computed in this process. On a terminal, a line shows its progress.

    Raises LabError as `labcore.runs.jobs.compute`.
    """
    with doing():
        return jobs.compute(spec)


@contextmanager
def doing() -> Iterator[None]:
    """A context in which, on a terminal, a line shows the current activity."""
    if not sys.stderr.isatty():
        yield
        return

    def heard(words: str, done: int, total: int) -> None:
        sys.stderr.write(f"{ERASE}{activity.now(words, done, total)}")
        sys.stderr.flush()
    try:
        with activity.listening(activity.Throttled(heard, 0.0)):
            yield
    finally:
        sys.stderr.write(ERASE)
        sys.stderr.flush()


class Progress:
    """Writes one line to standard error: rewritten in place on a terminal, every few seconds in a log file."""

    def __init__(self, store: Store, quiet: bool = False):
        self._store, self._quiet = store, quiet
        self._terminal = sys.stderr.isatty()
        self._run_id, self._title, self._steps, self._shown, self._open = "", "", 0, 0.0, False
        self._begun: tuple[int, float] | None = None  # the step and the second that its pace is counted from
        self._values: dict[str, float] = {}
        self._left, self._told = "", 0.0  # how long the run will take, and when an activity was last shown

    def show(self, run_id: str, record: Record, seconds: float) -> None:
        """Say where the run is after `record`."""
        if self._quiet:
            return
        if run_id != self._run_id:
            self._begin(run_id)
        for note in record.notes:
            self._write(f"{self._title}  step {record.step}: {note}")
            self.close()
        if self._begun is None:
            self._begun = (record.step - 1, seconds if record.step > 1 else 0.0)
        self._values |= {key: record.metrics[key] for key in _HEADLINE if key in record.metrics}
        now = time.monotonic()
        if now - self._shown < (_TERMINAL_SECONDS if self._terminal else _LOG_SECONDS) and record.step < self._steps:
            return
        self._shown = now
        self._write(self._line(record, seconds, self._begun))

    def within(self, run_id: str, step: int, doing: str) -> None:
        """Show the activity within a long step, or before the first step."""
        if self._quiet:
            return
        if run_id != self._run_id:
            self._begin(run_id)
        now = time.monotonic()
        if self._terminal or now - max(self._shown, self._told) >= _ACTIVITY_SECONDS:
            self._told = now
            self._write(f"{self._title}  {doing}" + (f"  {self._left}" if step > 1 and self._left else ""))

    def close(self) -> None:
        """End the line."""
        if self._open:
            sys.stderr.write("\n")
            self._open = False

    def _begin(self, run_id: str) -> None:
        self.close()
        run = self._store.run(run_id)
        self._run_id, self._title, self._steps, self._values = run_id, title(run), run.spec.steps, {}
        self._begun, self._left, self._told = None, "", time.monotonic()

    def _write(self, line: str) -> None:
        sys.stderr.write(f"{ERASE}{line}" if self._terminal else f"{line}\n")
        sys.stderr.flush()
        self._open = self._terminal

    def _line(self, record: Record, seconds: float, begun: tuple[int, float]) -> str:
        steps, spent = record.step - begun[0], seconds - begun[1]
        speed = steps / spent if spent > 0 else 0.0
        to_come = self._steps - record.step
        self._left = "" if not to_come else f"{left(to_come / speed)} left" if speed else "…"
        pace = f"{speed:z.1f} steps/s" if speed >= 1 or not speed else f"{1 / speed:z.1f} s/step"
        numbers = "  ".join(f"{key.removeprefix('rewards/')} {value:z.3f}" for key, value in self._values.items())
        return f"{self._title}  {record.step}/{self._steps}  {numbers}  {pace}  {self._left}".rstrip()
