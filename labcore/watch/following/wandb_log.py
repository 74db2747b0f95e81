"""W&B's offline runs, `run-ID.wandb`: LevelDB's log with protobuf records in it.

The file consists of blocks of 32 KB. A record is one chunk, or several where it crosses blocks; each chunk has the
CRC-32 of its kind and its content. wandb/sdk/internal/datastore.py up to wandb 0.20, wandb/proto/wandb_internal.proto
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from labcore.runs.files.untrusted import NotJSON, json_of
from labcore.watch.following.calls import Call, End, Named, Row, Settings
from labcore.watch.following.protobuf import Malformed, fields, signed, texts
from labcore.watch.following.reader import Damaged, Growing

_BLOCK, _HEAD = 2**15, 7
_MAGIC = b":W&B\xe1\xbe"
_DAMAGED, _FULL, _FIRST, _LAST = 0, 1, 2, 4  # 3 is a chunk between the first and the last
_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18  # fields of Record


@dataclass
class _Chunk:
    """A chunk of a record: its kind, its content, and the byte after it."""

    kind: int
    content: bytes
    end: int


class WandbLog(Growing):
    """Reads complete records; a record with a missing chunk waits."""

    def take(self, data: bytes, at: int) -> tuple[int, list[Call]]:
        found, used, parts = list[Call](), 0, list[bytes]()
        if at == 0:
            if len(data) < _HEAD:
                return 0, []
            if not data.startswith(_MAGIC):
                raise Damaged("does not begin like a log of W&B")
            used = _HEAD
        place = used
        while (chunk := self._chunk(data, place, at)) is not None:
            place = chunk.end
            if chunk.kind in (_FULL, _FIRST):
                parts = [chunk.content]
            elif chunk.kind == _DAMAGED:
                used, parts = place, []
            elif parts:
                parts.append(chunk.content)
            if chunk.kind in (_FULL, _LAST):
                found += self._record(b"".join(parts)) if parts else []
                used, parts = place, []
        return used, found

    def _chunk(self, data: bytes, place: int, at: int) -> _Chunk | None:
        """Return the chunk at a position in the data; None if it is incomplete."""
        left = _BLOCK - (at + place) % _BLOCK
        if left < _HEAD:  # the rest of a block is too short for a chunk
            place, left = place + left, _BLOCK
        if place + _HEAD > len(data):
            return None
        checksum, size, kind = struct.unpack("<IHB", data[place:place + _HEAD])
        content = data[place + _HEAD:place + _HEAD + size]
        if _HEAD + size <= left:
            if len(content) < size:
                return None
            if zlib.crc32(content, zlib.crc32(bytes([kind]))) == checksum:
                return _Chunk(kind, content, place + _HEAD + size)
        if place + left >= len(data):  # the last block may be incomplete
            return None
        self.say(f"is damaged at byte {at + place:,}: the rest of this block is skipped")
        return _Chunk(_DAMAGED, b"", place + left)

    def _record(self, record: bytes) -> list[Call]:
        try:
            return [*_calls(record)]
        except (Malformed, NotJSON) as error:
            self.say(f"has a record that cannot be read ({error}), which is skipped")
            return []


def _calls(record: bytes) -> Iterator[Call]:
    for number, value in fields(record):
        if not isinstance(value, bytes):
            continue
        if number == _HISTORY:
            yield _history(value)
        elif number == _CONFIG:
            yield Settings(_config(value))
        elif number == _RUN:
            parts = texts(value)
            if name := parts.get(8) or parts.get(1):
                yield Named(name.decode("utf-8", "replace"))
            if 4 in parts:
                yield Settings(_config(parts[4]))
        elif number == _EXIT:
            code = next((each for number, each in fields(value) if number == 1 and isinstance(each, int)), 0)
            yield End("failed", f"W&B wrote the exit code {signed(code)}") if code else End("finished")


def _history(history: bytes) -> Row:
    """HistoryRecord {repeated HistoryItem item = 1; HistoryStep step = 2 {int64 num = 1}}"""
    values: dict[str, Any] = {}
    for number, value in fields(history):
        if number == 1 and isinstance(value, bytes):
            key, item = _item(value)
            values[key] = item
        elif number == 2 and isinstance(value, bytes):
            step = next((each for place, each in fields(value) if place == 1 and isinstance(each, int)), 0)
            values.setdefault("_step", signed(step))
    clock = values.get("_timestamp")
    return Row(values, float(clock) if isinstance(clock, int | float) else None)


def _config(config: bytes) -> dict[str, Any]:
    """ConfigRecord {repeated ConfigItem update = 1}, without W&B's own `_wandb`."""
    items = [_item(value) for number, value in fields(config) if number == 1 and isinstance(value, bytes)]
    return {key: value for key, value in items if not key.startswith("_wandb")}


def _item(item: bytes) -> tuple[str, Any]:
    """HistoryItem and ConfigItem {string key = 1; repeated string nested_key = 2; string value_json = 16}"""
    key, nested, text = b"", list[bytes](), b"null"
    for number, value in fields(item):
        if isinstance(value, bytes):
            if number == 1:
                key = value
            elif number == 2:
                nested.append(value)
            elif number == 16:
                text = value
    name = (b".".join(nested) or key).decode("utf-8", "replace")
    return name, json_of(text, constants=True)
