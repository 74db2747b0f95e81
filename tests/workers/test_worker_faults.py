"""Every way in which a run can end before its time: it says what became of it, and loses no step."""

import errno
import os
import platform
import shutil
import signal
import subprocess

import pytest

from labcore.errors import Diverged, LabError
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import log_file, run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.workers.worker import drive
from tests.runs import fake
from tests.words import says
from tests.workers.tools import run


@pytest.mark.parametrize(("error", "state", "words"), [
    (LabError("The file x is empty: choose another."), "failed", "The file x is empty"),
    (Diverged(7, "policy loss"), "diverged", "not a finite number at step 7"),
    (MemoryError(), "failed", "ran out of memory after step 6"),
    (type("OutOfMemoryError", (RuntimeError,), {})("CUDA"), "failed", "ran out of memory after step 6"),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "failed", "ran out of memory"),
    (OSError(errno.ENOSPC, "No space left on device"), "failed", "is full"),
    (KeyboardInterrupt(), "interrupted", "interrupted at step 6"),
    (ZeroDivisionError("by zero"), "failed", "Something in the lab broke: ZeroDivisionError: by zero."),
])
def test_whatever_is_raised_the_run_says_what_became_of_it(store, breaking, error, state, words):
    run_id = store.create(fake.grpo(10))
    breaking(7, error)
    assert run(store, run_id) == state
    row = store.run(run_id)
    assert row.state == state and words in row.message and "\n" not in row.message
    assert [s.step for s in store.steps_after(run_id)] == [1, 2, 3, 4, 5, 6]
    last = store.events_after(run_id)[-1]
    assert (last.kind, last.payload["text"]) == (state, row.message)
    if isinstance(error, ZeroDivisionError):
        assert "Traceback" in log_file(run_id).read_text()
        assert row.message.endswith(f" The details are in its log, {log_file(run_id)} on {platform.node()}")


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"),
                                   RuntimeError("I/O error: No space left on device (os error 28)")])
def test_a_disk_that_fills_up_in_a_checkpoint_leaves_the_metrics_and_no_half_checkpoint(store, monkeypatch, error):
    run_id = store.create(fake.grpo(80))
    monkeypatch.setattr(fake.FakeSession, "save_error", error)
    assert run(store, run_id) == "failed"
    assert "is full" in store.run(run_id).message
    assert len(store.steps_after(run_id)) == 50
    assert [path.name for path in (run_folder(run_id) / "checkpoints").iterdir()] == ["step-000000"]
    monkeypatch.setattr(fake.FakeSession, "save_error", None)
    store.requeue(run_id)
    assert run(store, run_id) == "finished" and len(store.steps_after(run_id)) == 80


def test_a_full_database_disk_is_told_when_there_is_room_for_a_row(store, monkeypatch):
    run_id = store.create(fake.grpo(10))
    real = Store.append

    def append(self, who, record, seconds):
        if record.step == 5:
            raise LabError("The disk that holds lab.db is full: free some space, then resume the run.")
        return real(self, who, record, seconds)

    monkeypatch.setattr(Store, "append", append)
    assert run(store, run_id) == "failed"
    assert "is full" in store.run(run_id).message and store.run(run_id).step == 4


@pytest.fixture
def small_disk(tmp_path, monkeypatch):
    """A lab on a disk of 900 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    monkeypatch.setenv("RL_LAB_HOME", str(folder))
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="no mount here")
def test_a_disk_that_is_full_to_the_last_page_still_gets_the_sentence(small_disk, store):
    run_id = store.create(fake.grpo(100_000))
    assert run(store, run_id) == "failed"
    row = store.run(run_id)
    assert (row.state, row.step) == ("failed", len(store.steps_after(run_id))) and "is full" in row.message
    store.dispose()


def test_a_signal_makes_the_worker_checkpoint_and_leave(store):
    run_id = store.create(fake.grpo(100))
    assert run(store, run_id, {9: lambda: os.kill(os.getpid(), signal.SIGTERM)}) == "interrupted"
    assert says(store.run(run_id).message, "stopped with the lab", "step 9", "resume it")
    assert checkpoint.newest(run_folder(run_id))[0] == 9
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_the_end_of_the_lifeline_makes_the_worker_checkpoint_and_leave(store):
    reader, writer = os.pipe()
    run_id = store.create(fake.grpo(100_000))
    state = drive(store, run_id, lifeline_fd=reader, start=fake.start,
                  on_record=lambda _who, record, _: record.step == 9 and os.close(writer))
    os.close(reader)
    assert state == "interrupted"
    assert checkpoint.newest(run_folder(run_id))[0] == store.run(run_id).step >= 9


def test_a_data_file_that_is_gone_is_told(store, tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "1+1=", "answer": "2"}\n')
    run_id = store.create(make(algorithm_key="grpo", task_key="prompts", steps=3, data=str(path)))
    path.unlink()
    assert run(store, run_id) == "failed"
    assert "There is no file" in store.run(run_id).message
