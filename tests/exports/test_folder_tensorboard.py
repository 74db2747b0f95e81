"""TensorBoard's event file, read back by a reader of its own: bit by bit checksums and Google's protobuf."""

import struct

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from labcore.exports import folder
from labcore.exports.folder import export_run
from labcore.runs.files import event_file
from labcore.runs.store.rows import Event, Step
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.runs import fake

FIELDS = {  # the part of event.proto and summary.proto that a run needs: name -> (number, type)
    "Value": {"tag": (1, "STRING"), "simple_value": (2, "FLOAT")}, "Summary": {"value": (1, "Value")},
    "Event": {"wall_time": (1, "DOUBLE"), "step": (2, "INT64"), "file_version": (3, "STRING"),
              "summary": (5, "Summary")}}


def message():
    """The class Event, made from its declaration."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="test_event.proto", package="test", syntax="proto3")
    for name, fields in FIELDS.items():
        each = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            own = {"type": kinds.TYPE_MESSAGE, "type_name": f".test.{kind}"} if kind in FIELDS else {
                "type": getattr(kinds, f"TYPE_{kind}")}
            label = kinds.LABEL_REPEATED if field == "value" else kinds.LABEL_OPTIONAL
            each.field.add(name=field, number=number, label=label, **own)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.Event"))


def checksum(text: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in text:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events_in(path) -> list:
    content, found, kind = path.read_bytes(), [], message()
    while content:
        head, text = content[:8], content[12:12 + struct.unpack("<Q", content[:8])[0]]
        ends = struct.unpack("<I", content[8:12])[0], struct.unpack("<I", content[12 + len(text):16 + len(text)])[0]
        assert ends == (checksum(head), checksum(text))
        found.append(kind.FromString(text))
        content = content[16 + len(text):]
    return found


def test_every_number_of_every_step_is_in_the_file(tmp_path, store):
    run_id = store.create(fake.grpo(12))
    drive(store, run_id, start=fake.start)
    export_run(store, run_id, tmp_path / "plain")
    assert not list((tmp_path / "plain").glob("*tfevents*"))
    export_run(store, run_id, tmp_path / "out", tensorboard=True)
    [path] = (tmp_path / "out").glob("events.out.tfevents.*")
    assert path.name.endswith(f".{run_id}")
    first, *events = events_in(path)
    begun = next(event.time for event in store.events_after(run_id) if event.kind == "started")
    assert (first.file_version, first.wall_time) == ("brain.Event:2", begun)
    rows = store.steps_after(run_id)
    assert [event.step for event in events] == [row.step for row in rows] == list(range(1, 13))
    assert [event.wall_time for event in events] == [begun + row.seconds for row in rows]
    for event, row in zip(events, rows, strict=True):
        assert {value.tag: value.simple_value for value in event.summary.value} == {
            key: float(np.float32(value)) for key, value in row.metrics.items()}


def test_large_steps_odd_numbers_and_no_steps(tmp_path, store):
    run = store.run(store.create(fake.grpo(5)))
    rows = [Step(9_999_999, 0, 0, 1.5, {"reward": -1e300, "kl": 1e-300, "loss": -0.0, "updates": 2**40})]
    begun = [Event(1, 0, "started", {}, 1e9)]
    _, event = events_in(folder.write(tmp_path, run, rows, begun))
    assert event.step == 9_999_999 and event.wall_time == 1e9 + 1.5
    assert {v.tag: v.simple_value for v in event.summary.value} == {
        "reward": -np.inf, "kl": 0.0, "loss": 0.0, "updates": 2.0**40}
    assert len(events_in(folder.write(tmp_path, run, [], []))) == 1


@pytest.mark.parametrize("text", [b"", b"a", b"123456789", bytes(range(256)) * 3])
def test_a_checksum_is_the_one_made_bit_by_bit(text):
    assert event_file.masked_crc32c(text) == struct.pack("<I", checksum(text))


def test_tensorboard_itself_reads_it(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    store = Store()
    run_id = store.create(fake.grpo(12))
    drive(store, run_id, start=fake.start)
    export_run(store, run_id, tmp_path, tensorboard=True)
    read = accumulator.EventAccumulator(str(tmp_path))
    read.Reload()
    assert [(scalar.step, scalar.value) for scalar in read.Scalars("reward")] == [
        (row.step, float(np.float32(row.metrics["reward"]))) for row in store.steps_after(run_id)]
