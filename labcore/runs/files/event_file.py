"""Event files as TensorBoard reads them: every metric of every step. Needs no TensorBoard, no torch.

The file is a row of TFRecords (length, its checksum, content, its checksum); each content is a protobuf message Event,
of which only scalars are needed: a dozen lines. tensorboardX writes the same but imports torch wherever it is
installed (2.6.5, `tensorboardX/writer.py`), so the page, which exports in its own process, would load it too.
https://github.com/tensorflow/tensorboard: tensorboard/compat/proto/event.proto, summary.proto
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache

import google_crc32c
import numpy as np

_VERSION = b"brain.Event:2"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # how a field is written


def head(begun: float) -> bytes:
    """The first record of a file: the version of the format, and when it was begun, unix time."""
    return _record(_field(1, _FIXED64, struct.pack("<d", begun)) + _field(3, _BYTES, _VERSION))


def event(time: float, step: int, metrics: Mapping[str, float]) -> bytes:
    """The metrics of a step as a record; `time` is unix time.

    Event {double wall_time = 1; int64 step = 2; Summary summary = 5 {repeated Value value = 1
    {string tag = 1; float simple_value = 2}}}
    """
    with np.errstate(over="ignore"):  # a number too large for 32 bits becomes infinite
        numbers = np.array([*metrics.values()], "<f4").tobytes()
    values = b"".join(_head(key) + numbers[4 * at: 4 * at + 4] for at, key in enumerate(metrics))
    return _record(_field(1, _FIXED64, struct.pack("<d", time)) + _field(2, _VARINT, _varint(step))
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
