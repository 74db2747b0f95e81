"""The reader's progress: predictions, their runs and verdicts, kept in the lab's folder across restarts.

Every attempt at a lesson is kept; the newest one counts. A prediction cannot be changed once its runs were started.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from labcore.errors import LabError
from labcore.runs.files.paths import LESSONS
from labcore.runs.files.user_json import Kept

_KEPT = Kept(LESSONS, "lessons", dict, "Your progress in the lessons")


@dataclass(frozen=True)
class Attempt:
    """One attempt at a lesson. `choice` is the predicted choice from 0, `curve` the drawn one ((x, y) pairs, x from 0
    to 1 of the run); one of the two is given. `sweep` names the runs, empty before they are started. `says` is the
    newest verdict ("holds", "fails", "close" or "" where there is none yet) over so many `seeds`, `right` whether the
    prediction came true. `closed`: the reader has begun anew, so the attempt is kept but no longer open.
    """

    at: float
    choice: int | None = None
    curve: tuple[tuple[float, float], ...] = ()
    sweep: str = ""
    says: str = ""
    right: bool | None = None
    seeds: int = 0
    closed: bool = False


def path() -> Path:
    """The file in which progress is kept."""
    return _KEPT.path


def attempts() -> dict[str, list[Attempt]]:
    """The attempts by the name of the lesson, oldest first. Raises LabError if the file cannot be read."""
    return {name: [_attempt(each) for each in found] for name, found in _sound(_KEPT.read()).items()}


def newest(name: str) -> Attempt | None:
    """The open attempt; None before a prediction. Raises LabError as `attempts`."""
    return _open([asdict(each) for each in attempts().get(name, [])])


def predict(name: str, choice: int | None = None, curve: Sequence[tuple[float, float]] = ()) -> Attempt:
    """Begin an attempt by a prediction. Raises LabError if the last attempt has not ended, or the file cannot be
    written."""
    with _changing() as entries:
        if _open(entries.get(name, [])):
            raise LabError("You have already made a prediction: it cannot be changed once its runs have started.")
        predicted = Attempt(time.time(), choice, tuple((float(x), float(y)) for x, y in curve))
        entries.setdefault(name, []).append(asdict(predicted))
    return predicted


def anew(name: str) -> None:
    """Close the open attempt. The next prediction begins another one."""
    _change(name, closed=True)


def begin(name: str, sweep: str) -> None:
    """Note that the runs of the newest attempt were started."""
    _change(name, sweep=sweep)


def settle(name: str, says: str, right: bool | None, seeds: int) -> None:
    """Note the verdict of the newest attempt over so many seeds."""
    _change(name, says=says, right=right, seeds=seeds)


def _change(name: str, **fields: Any) -> None:
    with _changing() as entries:
        attempt = _open(entries.get(name, []))
        if attempt is None:
            raise LabError("There is no prediction yet: make one first.")
        entries[name][-1] = asdict(replace(attempt, **fields))


def _open(entries: Sequence[Any]) -> Attempt | None:
    last = _attempt(entries[-1]) if entries else None
    return None if last is None or last.closed else last


def _attempt(entry: Any) -> Attempt:
    try:
        known = {key: entry[key] for key in Attempt.__dataclass_fields__ if key in entry}
        return Attempt(**{**known, "curve": tuple((float(x), float(y)) for x, y in known.get("curve", ()))})
    except (TypeError, ValueError, AttributeError) as error:
        raise _KEPT.damaged from error


def _sound(entries: dict[str, Any]) -> dict[str, list[Any]]:
    """The entries of the file where each lesson has a list of attempts. Raises LabError where one has not."""
    if not all(isinstance(each, list) for each in entries.values()):
        raise _KEPT.damaged
    return entries


@contextmanager
def _changing() -> Iterator[dict[str, list[Any]]]:
    """All entries, to be changed in place."""
    with _KEPT.changing() as entries:
        yield _sound(entries)
