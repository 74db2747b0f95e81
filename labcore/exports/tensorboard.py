"""A run as TensorBoard reads it: one event file with every metric of every step. Needs no TensorBoard, no torch.

The file is a row of TFRecords (length, its checksum, content, its checksum); each content is a protobuf message Event,
of which only scalars are needed: a dozen lines. tensorboardX writes the same but imports torch wherever it is
installed (2.6.5, `tensorboardX/writer.py`), so the page, which exports in its own process, would load it too.
https://github.com/tensorflow/tensorboard: tensorboard/compat/proto/event.proto, summary.proto
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import google_crc32c
import numpy as np

from labcore.store.rows import Event, RunRow, Step

_VERSION = b"brain.Event:2"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # how a field is written


def write(folder: Path, run: RunRow, rows: Sequence[Step], events: Sequence[Event]) -> Path:
    """Write `events.out.tfevents.<when it began>.<run>` into `folder`. Returns the file.

    x is the step; the time of a step is when the run began plus its active seconds, so pauses are left out.
    """
    begun = next((event.time for event in events if event.kind in ("started", "forked")), run.started or run.created)
    shift = begun - (rows[0].seconds if rows and run.spec.parent else 0.0)  # a fork's clock continues its parent's
    contents = [_field(1, _FIXED64, struct.pack("<d", begun)) + _field(3, _BYTES, _VERSION),
                *(_event(shift + row.seconds, row) for row in rows)]
    path = folder / f"events.out.tfevents.{int(begun)}.{run.id}"
    path.write_bytes(b"".join(map(_record, contents)))
    return path


def _event(time: float, row: Step) -> bytes:
    """Event {double wall_time = 1; int64 step = 2; Summary summary = 5 {repeated Value value = 1
    {string tag = 1; float simple_value = 2}}}"""
    with np.errstate(over="ignore"):  # what is too large for 32 bits is infinite there
        numbers = np.array([*row.metrics.values()], "<f4").tobytes()
    values = b"".join(_head(key) + numbers[4 * at: 4 * at + 4] for at, key in enumerate(row.metrics))
    return (_field(1, _FIXED64, struct.pack("<d", time)) + _field(2, _VARINT, _varint(row.step))
            + _field(5, _BYTES, values))


@cache
def _head(key: str) -> bytes:
    """A Value up to its number, which takes four bytes: most of it is the same at every step."""
    return _field(1, _BYTES, _field(1, _BYTES, key.encode()) + _field(2, _FIXED32, bytes(4)))[:-4]


def _field(number: int, kind: int, content: bytes) -> bytes:
    head = _varint(number << 3 | kind)
    return head + (_varint(len(content)) if kind == _BYTES else b"") + content


def _varint(number: int) -> bytes:
    """Seven bits a byte, the low ones first; the highest bit says that more follow."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _record(content: bytes) -> bytes:
    head = struct.pack("<Q", len(content))
    return head + masked_crc32c(head) + content + masked_crc32c(content)


def masked_crc32c(text: bytes) -> bytes:
    """TFRecord's checksum in 4 bytes: CRC-32C, rotated by 15 bits, plus a constant."""
    crc = google_crc32c.value(text)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
