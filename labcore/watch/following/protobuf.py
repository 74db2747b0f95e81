"""Read the fields of a protobuf message in the wire format, without its schema.

TensorBoard's events and W&B's records need a dozen fields of a few messages; the packages `tensorboard` and `wandb`
would add hundreds of megabytes. https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
_MOST_VARINT = 10  # bytes
Value = int | bytes


class Malformed(ValueError):
    """The bytes are not a protobuf message."""


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield (number, value) of each field in order: an integer for a varint, bytes for all other types. Raises
    Malformed if the message ends within a field, or a wire type is unknown."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = _varint(message, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise Malformed(f"a field of the unknown wire type {kind}")
        if at + size > len(message):
            raise Malformed("a field that is longer than its message")
        yield number, message[at:at + size]
        at += size


def texts(message: bytes) -> dict[int, bytes]:
    """Return the last value of each field of bytes."""
    return {number: value for number, value in fields(message) if isinstance(value, bytes)}


def _varint(message: bytes, at: int) -> tuple[int, int]:
    found = 0
    for place in range(_MOST_VARINT):
        if at + place >= len(message):
            raise Malformed("it ends within a number")
        byte = message[at + place]
        found |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return found, at + place + 1
    raise Malformed("a number that is too long")


def signed(number: int) -> int:
    """Return the int64 of a varint."""
    number &= 0xFFFF_FFFF_FFFF_FFFF
    return number - (1 << 64) if number >= 1 << 63 else number


def double(value: bytes) -> float:
    """Return the float64 in 8 bytes. Raises Malformed if there are not 8."""
    if len(value) != 8:
        raise Malformed(f"a double of {len(value)} bytes")
    return float(struct.unpack("<d", value)[0])


def single(value: bytes) -> float:
    """Return the float32 in 4 bytes."""
    return float(struct.unpack("<f", value)[0])
