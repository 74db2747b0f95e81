"""Report the progress of a computation from within it, such as "update 1 of 2, 3 of 8 prompts".

A listener receives the reports. The reporting code uses no clock, store or folder; without a listener a report is one
look-up. A listener may wait, which pauses the computation, or raise, which aborts it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Activity:
    """`words` with two gaps, such as "sampling {} of {} tokens", for `done` and `total`; `within` are the larger
    activities that it is a part of, the largest first."""

    words: str
    done: int = 0
    total: int = 0
    within: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join((*self.within, self.words.format(f"{self.done:,}", f"{self.total:,}")))


EVERY_SECONDS = 0.5  # between two reports that somebody reads
Listener = Callable[[str, int, int], object]  # words, done, total: see `Activity`
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)
_WITHIN: ContextVar[tuple[str, ...]] = ContextVar("within", default=())


def report(words: str, done: int = 0, total: int = 0) -> None:
    """Report the current activity and its progress: see `Activity`. To be called at every token and micro-batch."""
    if (listener := _LISTENER.get()) is not None:
        listener(words, done, total)


def now(words: str, done: int, total: int) -> Activity:
    """The newest report as a whole, for listeners."""
    return Activity(words, done, total, _WITHIN.get())


class Throttled:
    """A listener that passes a report on only after `first` seconds, and then at most one every `EVERY_SECONDS`. Other
    reports are dropped."""

    def __init__(self, listener: Listener, first: float):
        self._listener, self._next = listener, time.perf_counter() + first

    def __call__(self, words: str, done: int, total: int) -> None:
        if time.perf_counter() >= self._next:
            self._listener(words, done, total)
            self._next = time.perf_counter() + EVERY_SECONDS


@contextmanager
def part_of(words: str) -> Iterator[None]:
    """Within this context all reports are part of a larger activity, such as "update 1 of 2"; no generator may yield
    there."""
    token = _WITHIN.set((*_WITHIN.get(), words))
    try:
        yield
    finally:
        _WITHIN.reset(token)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Within this context `listener` gets each report of this thread, in place of the listener from before; None: no
    listener gets any."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
