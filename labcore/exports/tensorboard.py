"""A run as one event file of TensorBoard, with every metric of every step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from labcore.sinks import event_file
from labcore.store.rows import Event, RunRow, Step


def write(folder: Path, run: RunRow, rows: Sequence[Step], events: Sequence[Event]) -> Path:
    """Write `events.out.tfevents.<when it began>.<run>` into `folder`. Returns the file.

    x is the step; the time of a step is when the run began plus its active seconds, so pauses are left out.
    """
    begun = next((event.time for event in events if event.kind in ("started", "forked")), run.started or run.created)
    shift = begun - (rows[0].seconds if rows and run.spec.parent else 0.0)  # a fork's clock continues its parent's
    records = (event_file.event(shift + row.seconds, row.step, row.metrics) for row in rows)
    path = folder / f"events.out.tfevents.{int(begun)}.{run.id}"
    path.write_bytes(event_file.head(begun) + b"".join(records))
    return path
