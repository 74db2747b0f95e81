"""Find the runs that hold the places for which a queued run waits, and the sentence that pages and commands show."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence

from labcore.runs.store.rows import GOING, NO_PLACE, RunRow
from labcore.runs.store.store import Store
from labcore.runs.titles import title

NAMED = 3  # runs that a waiting one names


def going(store: Store, runs: Sequence[RunRow]) -> list[RunRow]:
    """The running and paused runs, newest first; not read if none of `runs` waits for a place."""
    return store.runs(*GOING) if any(run.crowded_out for run in runs) else []


def holders(run: RunRow, going: Sequence[RunRow]) -> list[RunRow]:
    """The runs of `going` that hold the places for which the run waits, oldest first. Empty if the run does not wait,
    or this cannot be known because the runs of another lab or machine hold its places."""
    limit = run.places if run.crowded_out else None
    found = [each for each in going if each.host == platform.node()] if limit else []
    beside = next((each for each in found if short(each)), None)
    if limit and beside and len(found) == limit + 1:
        found.remove(beside)
    return found[::-1] if limit and len(found) == limit else []


def short(run: RunRow) -> bool:
    """True if a run may use the extra place beside sweeps, lessons and studies: a single run, not part of a sweep, a
    lesson or a study, of a kind whose runs are short. The supervisor gives that place to one run at a time."""
    return run.sweep is None and run.spec.kind_row.short


def waiting_sentence(message: str, holders: Sequence[RunRow], name_of: Callable[[RunRow], str] = title) -> str:
    """The message of a waiting run, with the runs that hold the places: "waiting for a free place: GRPO sort #1
    (paused) holds it (RL_LAB_MAX_RUNS=1)". `name_of` writes a run, for example as a link."""
    return message.replace(NO_PLACE, f"{NO_PLACE}: {_holders_sentence(holders, name_of)}", 1) if holders else message


def _holders_sentence(holders: Sequence[RunRow], name_of: Callable[[RunRow], str]) -> str:
    named = [f"{name_of(run)} ({run.state})" for run in holders[:NAMED]]
    others = len(holders) - NAMED
    if others > 0:
        named.append(f"{others} other{'s' if others > 1 else ''}")
    return f"{named[0]} holds it" if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]} hold all"
