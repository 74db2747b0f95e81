"""Draw the next training rows: from a file in shuffled epochs, from other tasks at random.

Only training uses this module. Evaluations and probes use random numbers of their own, so they do not advance the
epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from labcore.tasks.task import SHUFFLED, Epochs, Row

STREAM = 2**32 + 7  # a tag that no step has, nor a probe: see `probes.answer`
ROWS, LABELLED = 0, 1  # what is drawn from: the run's own rows, and labelled pairs beside them
Position = tuple[int, int, int]  # an epoch, how many of its rows have been drawn, and how many it has
UNDRAWN: Position = (0, 0, 0)


class Draws(Protocol):
    """The part of a session that is needed here. `drawn` is the position in the epochs of ROWS and LABELLED."""

    knobs: dict[str, Any]
    prompt_seed: int
    rng: np.random.Generator
    drawn: tuple[Position, Position]


def in_epochs(session: Draws) -> bool:
    """True if a run draws its rows in shuffled epochs."""
    return session.knobs.get("order") == SHUFFLED


def next_rows(session: Draws, draw: Callable[[int, Any], list[Row]], count: int,
              rng: np.random.Generator | None = None, source: int = ROWS) -> list[Row]:
    """`count` rows by `draw(count, chance)`: chance is the epochs, or without them `rng` (None: the session's)."""
    if not in_epochs(session):
        return draw(count, session.rng if rng is None else rng)
    epochs = Epochs((session.prompt_seed, STREAM, source), *session.drawn[source])
    found, at = draw(count, epochs), [*session.drawn]
    at[source] = epochs.epoch, epochs.drawn, epochs.size
    session.drawn = at[ROWS], at[LABELLED]  # a new tuple: copies of the session keep theirs
    return found


def epochs_done(session: Draws) -> dict[str, float]:
    """The metric `epoch`: the number of passes over the run's rows; empty if rows are drawn at random."""
    epoch, drawn, size = session.drawn[ROWS]
    return {"epoch": epoch + drawn / size} if size else {}
