"""The soak's own judgement: which answers are faults, that a seed makes the same inputs again, and the report."""

import os
import random
from multiprocessing import current_process
from pathlib import Path

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg

from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from labcore.workers import worker
from tests.runs import fake
from tests.soak import full_disk, raw_sockets
from tests.soak.inputs import fault
from tests.soak.made_up import KINDS_OF_INPUT, Good
from tests.soak.report import Report
from tests.workers.tools import run


@pytest.mark.parametrize("code, said", [
    (1, "Traceback (most recent call last):\nValueError: x"), (0, "run a\nTraceback (most recent call last):\n"),
    (1, ""), (1, "labcore: a\nb"), (1, "a warning\nlabcore: a"), (-9, "labcore: a"), (2, f"labcore: {'x' * 2000}")])
def test_what_is_a_fault(code, said):
    assert fault(code, said)


@pytest.mark.parametrize("code, said", [
    (1, "labcore: There is no file a: check the path.\n"), (0, "run a\nfinished"), (None, "run a\n"),
    (1, "run a\nlabcore: The loss was not a finite number.\n"), (2, "labcore: argument; see --help.\n")])
def test_what_is_none(code, said):
    assert fault(code, said) == ""


@pytest.fixture
def good(tmp_path: Path) -> Good:
    """Good files, except for the capsule."""
    for name, text in (("a.csv", "step,reward\n1,0.5\n"), ("a.jsonl", '{"prompt": "a"}\n'), ("a.json", '{"rows": []}')):
        (tmp_path / name).write_text(text)
    return Good(tmp_path / "no.zip", tmp_path / "a.csv", tmp_path / "a.jsonl", tmp_path / "a.json")


@pytest.mark.parametrize("kind", sorted(KINDS_OF_INPUT.keys() - {"capsule"}))
def test_a_seed_makes_the_same_input_again(kind, good, tmp_path):
    def made(seed: int) -> tuple[list[str], bytes]:
        given = KINDS_OF_INPUT[kind](random.Random(seed), good, tmp_path / "bad")
        return given.words, given.file.read_bytes() if given.file else b""

    assert all(made(seed) == made(seed) for seed in range(5)) and len({str(made(seed)) for seed in range(9)}) > 3


def test_the_report_counts_and_says_how_to_repeat():
    report = Report(7)
    report.count("Kills", "worker of Lab", 2)
    said = report.markdown(65)
    assert "No failure in 1 min 5 s with seed 7" in said and "| worker of Lab | 2 |" in said
    report.fail("inputs:3", "a traceback", "python -m tests.soak --seed 7 --again inputs:3")
    assert "**1 failures**" in report.markdown(1) and "    python -m tests.soak --seed 7" in report.markdown(1)


def test_a_disk_that_fills_under_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(full_disk, "SIZE", 2 * 2**20)
    with full_disk.small_disk(tmp_path / "disk") as home:
        if not os.path.ismount(home):
            pytest.skip("only root mounts a disk")
        monkeypatch.setenv("RL_LAB_HOME", str(home))
        store = Store()
        run_id, filling = store.create(fake.grpo(40)), []

        def on_record(_: str, record: Record, seconds: float) -> None:
            if record.step == 5:
                filling.append(full_disk.fill(home, current_process(), 0))

        assert worker.drive(store, run_id, start=fake.start, on_record=on_record) == "failed"
        rows = store.steps_after(run_id)
        assert "is full" in store.run(run_id).message and 5 <= len(rows) < 40
        filling[0].unlink()
        store.requeue(run_id)
        assert run(store, run_id) == "finished" and store.steps_after(run_id)[:len(rows)] == rows
        store.dispose()


def test_a_seed_sends_the_same_messages_again_and_each_kind_of_them():
    class Socket:
        def __init__(self):
            self.sent: list[bytes] = []
            self.send = self.sent.append

    def sent(seed: int) -> list[bytes]:
        raw_sockets.KINDS["protocol"](socket := Socket(), random.Random(seed))
        return socket.sent

    assert all(sent(seed) == sent(seed) for seed in range(9))
    kinds = {BackMsg.FromString(each).WhichOneof("type") for seed in range(300) for each in sent(seed)}
    assert kinds >= {field.name for field in BackMsg.DESCRIPTOR.oneofs_by_name["type"].fields}
