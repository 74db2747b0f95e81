"""TensorBoard's event files: scalars (as `simple_value` or as tensors), and the text samples of OpenRLHF.

A file is a sequence of TFRecords, each with checksums of its length and its content; `labcore.runs.files.event_file`
writes the same. tensorboard/compat/proto/event.proto, summary.proto, tensor.proto
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import numpy as np

from labcore.runs.files.event_file import masked_crc32c
from labcore.watch.following.calls import Call, Completions, Row
from labcore.watch.following.protobuf import Malformed, double, fields, signed, single, texts
from labcore.watch.following.reader import Damaged, Growing

_HEAD, _TAIL = 12, 4  # bytes around the content of a record
_MOST = 64 * 2**20  # bytes of a record: histograms and images are long
# TensorProto: type -> (NumPy type, field of its numbers if they are not in tensor_content).
_TYPES = {1: ("<f4", 5), 2: ("<f8", 6), 3: ("<i4", 7), 9: ("<i8", 10)}
_VARINTS = (7, 10)
_STRING = 7
_SAMPLE = re.compile(r"Sample:(?:\n|\\n)(.*?)(?:\n|\\n){2}Reward: (\S+)", re.DOTALL)  # OpenRLHF's logging_utils


class EventFile(Growing):
    """Reads complete records; an incomplete record waits."""

    def take(self, data: bytes, at: int) -> tuple[int, list[Call]]:
        used, found = 0, list[Call]()
        while len(data) - used >= _HEAD:
            head = data[used:used + 8]
            size = struct.unpack("<Q", head)[0]
            if masked_crc32c(head) != data[used + 8:used + _HEAD] or size > _MOST:
                if found:
                    break  # return the earlier records first
                raise Damaged(f"is damaged at byte {at:,}: the rest is read once the file is repaired")
            end = used + _HEAD + size + _TAIL
            if end > len(data):
                break
            content = data[used + _HEAD:end - _TAIL]
            if masked_crc32c(content) != data[end - _TAIL:end]:
                if end == len(data):  # the last record may be incomplete
                    break
                self.say(f"has a damaged record at byte {at + used:,}, which is skipped")
            else:
                found += self._event(content)
            used = end
        return used, found

    def _event(self, content: bytes) -> list[Call]:
        try:
            return [*_calls(content)]
        except Malformed as error:
            self.say(f"has a record that is not an event ({error}), which is skipped")
            return []


def _calls(event: bytes) -> Iterator[Call]:
    found = dict(fields(event))
    clock, step = found.get(1), found.get(2, 0)
    place = signed(step) if isinstance(step, int) else 0
    scalars: dict[str, float] = {}
    for value in (each for number, summary in fields(event) if number == 5 and isinstance(summary, bytes)
                  for _, each in fields(summary) if isinstance(each, bytes)):
        tag, scalar, text = _value(value)
        if scalar is not None:
            scalars[tag] = scalar
        elif text and (sample := _SAMPLE.fullmatch(text)):
            yield Completions(place, [""], [sample[1]], {"reward": [_number(sample[2])]}, group=1)
    if scalars:
        yield Row({"step": place, **scalars}, double(clock) if isinstance(clock, bytes) else None)


def _value(value: bytes) -> tuple[str, float | None, str]:
    """Return (tag, scalar, text) of a Summary.Value; the scalar is None if there is none."""
    parts = texts(value)
    tag = parts.get(1, b"").decode("utf-8", "replace")
    if 2 in parts and len(parts[2]) == 4:
        return tag, single(parts[2]), ""
    return (tag, *_tensor(parts[8])) if 8 in parts else (tag, None, "")


def _tensor(tensor: bytes) -> tuple[float | None, str]:
    kind, shape, content, held = 0, b"", b"", dict[int, list[int | bytes]]()
    for number, value in fields(tensor):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2 and isinstance(value, bytes):
            shape = value
        elif number == 4 and isinstance(value, bytes):
            content = value
        else:
            held.setdefault(number, []).append(value)
    if kind == _STRING:
        return None, b"".join(each for each in held.get(8, []) if isinstance(each, bytes)).decode("utf-8", "replace")
    if kind not in _TYPES or 2 in dict(fields(shape)):  # not a scalar: a histogram, a curve
        return None, ""
    dtype, place = _TYPES[kind]
    numbers = _unpacked(content or b"".join(each for each in held.get(place, []) if isinstance(each, bytes)), dtype,
                        place, bool(content))
    numbers += [float(signed(each)) for each in held.get(place, []) if isinstance(each, int)]
    return (numbers[0], "") if len(numbers) == 1 else (None, "")


def _unpacked(content: bytes, dtype: str, place: int, raw: bool) -> list[float]:
    if place in _VARINTS and not raw:  # packed varints, without field keys
        return [float(signed(value)) for _, value in fields(b"".join(_keyed(content))) if isinstance(value, int)]
    if len(content) % np.dtype(dtype).itemsize:
        raise Malformed("a tensor of half a number")
    return [float(each) for each in np.frombuffer(content, dtype)]


def _keyed(content: bytes) -> Iterator[bytes]:
    """Yield packed varints, each after the key of field 1."""
    number = bytearray()
    for byte in content:
        number.append(byte)
        if byte < 0x80:
            yield b"\x08" + bytes(number)
            number.clear()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
