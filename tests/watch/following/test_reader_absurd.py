"""Files as no trainer writes them: what can be read is, the rest is said, and the command goes on."""

import json
import random
import struct
import zlib
from contextlib import suppress

import pytest

from labcore.errors import LabError
from labcore.runs.files.event_file import masked_crc32c
from labcore.watch.following import follower as module
from labcore.watch.following.event_files import EventFile
from labcore.watch.following.follower import Follower
from labcore.watch.following.lines import Csv, JsonLines
from labcore.watch.following.reader import Damaged
from labcore.watch.following.trainer_state import TrainerState
from labcore.watch.following.wandb_log import WandbLog
from tests.watch.following.tools import Followed, content, rows
from tests.watch.following.tools import sent as watched

_BYTES = {"tensorboard/old/*": EventFile, "tensorboard/new/*": EventFile, "openrlhf/*/*": EventFile,
          "wandb/wandb/*/*.gz": WandbLog, "verl/gsm8k/*.jsonl": JsonLines, "sb3/progress.csv": Csv,
          "trl/trainer_state.json": TrainerState}


def record(event: bytes) -> bytes:
    head = struct.pack("<Q", len(event))
    return head + masked_crc32c(head) + event + masked_crc32c(event)


def records(data: bytes) -> list[bytes]:
    """The contents of TensorBoard's records."""
    found = []
    while data:
        size = struct.unpack("<Q", data[:8])[0]
        found.append(data[12:12 + size])
        data = data[16 + size:]
    return found


def changed(data: bytes, luck: random.Random) -> bytes:
    """A few bytes are others, left out, or there twice."""
    found = bytearray(data)
    for _ in range(luck.randrange(1, 5)):
        at, end = sorted(luck.randrange(len(found)) for _ in range(2))
        kind = luck.randrange(3)
        if kind == 0:
            found[at] = luck.randrange(256)
        elif kind == 1:
            del found[at:min(end, at + 9)]
        else:
            found[at:at] = found[at:min(end, at + 9)]
    return bytes(found)


@pytest.mark.parametrize("pattern", _BYTES)
def test_a_file_with_other_bytes_is_read_or_said_to_be_damaged(pattern, tmp_path):
    data, reader, luck, whole = content(pattern), _BYTES[pattern], random.Random(pattern), 0
    for turn in range(60):
        if reader is EventFile:  # whose checksums are right
            again = b"".join(record(changed(each, luck) if len(each) > 9 and luck.random() < 0.3 else each)
                             for each in records(data))
        elif reader is WandbLog:
            again = changed_log(data, luck)
        else:
            again = changed(data, luck)
        file = Followed(tmp_path / f"{turn}", reader)
        file.path.write_bytes(again)
        with suppress(Damaged, LabError):
            whole += bool(file.look(True))
    assert whole


def changed_log(data: bytes, luck: random.Random) -> bytes:
    """W&B's log with other bytes in a chunk, whose checksum is right."""
    found, place = bytearray(data), 7
    while place + 7 < min(len(found), 2**15 - 7):
        _, size, kind = struct.unpack("<IHB", found[place:place + 7])
        if size and luck.random() < 0.3:
            found[place + 7 + luck.randrange(size)] = luck.randrange(256)
            inner = bytes(found[place + 7:place + 7 + size])
            found[place:place + 4] = struct.pack("<I", zlib.crc32(inner, zlib.crc32(bytes([kind]))))
        place += 7 + size
    return bytes(found)


def test_an_event_with_an_invalid_time_is_skipped_and_reported(tmp_path):
    scalar = b"\x2a\x0d\x0a\x0b\x0a\x04loss\x15" + struct.pack("<f", 1.0)  # field 5, summary
    whole = b"\x09" + struct.pack("<d", 5.0) + b"\x10\x01" + scalar
    file = Followed(tmp_path / "events", EventFile)
    found = file.append(record(b"\x0dabcd" + b"\x10\x01" + scalar) + record(whole))
    assert rows(found) == [{"step": 1, "loss": 1.0}] and "not an event (a double of 4 bytes)" in file.said[0]


@pytest.mark.parametrize("steps", ["x", None, [1], {}])
def test_a_state_whose_steps_are_no_numbers_has_a_log_all_the_same(steps, tmp_path):
    state = {"max_steps": steps, "global_step": 5, "log_history": [{"step": 1, "loss": 1.0}, 5]}
    for key in ("max_steps", "global_step"):
        file = Followed(tmp_path / key, TrainerState)
        file.path.write_text(json.dumps({**state, "max_steps": 5, key: steps}))
        assert rows(file.look(True)) == [{"step": 1, "loss": 1.0}]


def test_a_column_that_names_each_row_does_not_make_a_run_of_each(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_RUNS", 3)
    (tmp_path / "log.jsonl").write_text("".join(
        json.dumps({"step": step, "run": f"r{step}", "loss": 1.0}) + "\n" for step in range(9)))
    said = list[str]()
    follower = Follower(tmp_path, said.append, {})
    follower.look(last=True)
    follower.finish()
    assert len(watched()) == 3 and "more than 3 runs" in " ".join(said)
