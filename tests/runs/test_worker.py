"""The worker: controls, checkpoints, resuming and every way in which a run can end."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest
from filelock import FileLock

from labcore.errors import Diverged, LabError
from labcore.runs import checkpoint
from labcore.runs.paths import home, log_file, run_folder
from labcore.runs.rows import Event
from labcore.runs.spec import base_spec, make
from labcore.runs.steering import Change, Steering, timeline
from labcore.runs.store import Store
from labcore.workers import training
from labcore.workers.worker import drive
from tests.runs import fake


@pytest.fixture
def store():
    return Store()


@pytest.fixture(autouse=True)
def checkpoints_by_steps(monkeypatch):
    """However slow the disk is while other tests run."""
    monkeypatch.setattr(training, "CHECKPOINT_SHARE", 0)


@pytest.fixture
def breaking(monkeypatch):
    """Have the session raise at a step."""
    def at(step: int, error: BaseException) -> None:
        monkeypatch.setattr(fake.FakeSession, "break_at", {step: error})
    return at


def run(store, run_id, at=None) -> str:
    """Drive a run in this process; `at` maps steps to what is done when that step is committed."""
    at = dict(at or {})

    def on_record(who, record, _seconds):
        if who == run_id and record.step in at:
            at.pop(record.step)()

    return drive(store, run_id, on_record=on_record, start=fake.start)


def asker(store, run_id, *commands):
    """A function that asks for `commands`: names, or (knob, value) pairs."""
    def ask():
        for command in commands:
            if isinstance(command, tuple):
                store.ask(run_id, "set", {"knob": command[0], "value": command[1]})
            else:
                store.ask(run_id, command)
    return ask


def kinds(store, run_id) -> list[str]:
    return [event.kind for event in store.events_after(run_id) if event.kind != "checkpoint"]


def knob_events(store, run_id) -> list[tuple[int, str]]:
    return [(e.step, e.payload["text"]) for e in store.events_after(run_id) if e.kind == "knob"]


# ---------------------------------------------------------------- a plain run


def test_a_run_goes_to_its_end_and_leaves_everything(store):
    run_id = store.create(fake.grpo(120))
    assert run(store, run_id) == "finished"
    row, folder = store.run(run_id), run_folder(run_id)
    assert (row.state, row.message, row.step, row.pid) == ("finished", "all 120 steps done", 120, None)
    assert [s.step for s in store.steps_after(run_id)] == list(range(1, 121))
    assert kinds(store, run_id) == ["queued", "started", "finished"]
    assert [e.step for e in store.events_after(run_id) if e.kind == "checkpoint"] == [0, 50, 100, 120]
    assert [step for step, _ in checkpoint.steps(folder)] == [0, 50, 100, 120]
    assert json.loads((folder / "samples" / "step-000005.json").read_text())["step"] == 5
    assert json.loads((folder / "lines" / "step-000020.json").read_text()) == {"step": 20}
    assert json.loads((folder / "spec.json").read_text())["algorithm"] == "grpo"
    last = store.steps_after(run_id, 119)[0]
    assert last.metrics["memory"] > 1 and last.metrics["tokens_per_second"] > 0


def test_equal_specs_learn_equal_things(store):
    ids = [store.create(fake.grpo(20)) for _ in range(2)]
    for run_id in ids:
        run(store, run_id)
    assert fake.trained(store, ids[0]) == fake.trained(store, ids[1])


def test_a_run_is_driven_by_one_process_only(store):
    run_id = store.create(fake.grpo(3))
    store.claim(run_id, pid=1)
    with pytest.raises(LabError, match="only a queued run can be started"):
        run(store, run_id)


# ---------------------------------------------------------------- knobs


def test_a_live_knob_takes_effect_at_the_next_update_and_leaves_a_marker(store):
    run_id = store.create(fake.grpo(10, updates_per_batch=2))
    assert run(store, run_id, {4: asker(store, run_id, ("beta", 0.2))}) == "finished"
    assert knob_events(store, run_id) == [(5, "β 0.04 → 0.2")]
    control = store.controls(run_id)[0]
    assert (control.state, control.step) == ("applied", 5)


def test_knobs_that_only_go_together_are_taken_together_and_repeated_so(store):
    run_id = store.create(fake.grpo(6, prompts_per_step=8, mini_batches=4))
    both = asker(store, run_id, ("prompts_per_step", 9), ("mini_batches", 3))
    assert run(store, run_id, {2: both, 4: asker(store, run_id, ("mini_batches", 2))}) == "finished"
    assert [control.state for control in store.controls(run_id)] == ["applied", "applied", "refused"]
    assert knob_events(store, run_id) == [(3, "P 8 → 9"), (3, "Mini-batches 4 → 3")]
    session = fake.FakeSession(store.run(run_id).spec, None)
    steering = Steering(store, run_id, session.spec, session)
    session.updates = 2  # as after a resume: where the changes were made
    steering.between_steps(2)
    assert (session.knobs["prompts_per_step"], session.knobs["mini_batches"]) == (9, 3)


def test_live_knobs_apply_within_a_batch_and_the_others_wait_for_the_next(store, monkeypatch):
    run_id = store.create(fake.grpo(4, updates_per_batch=3))
    real, calls = training.Steering.between_updates, []

    def between_updates(self, step):
        if not calls:
            asker(store, run_id, ("beta", 0.1), ("group_size", 4))()
        calls.append(step)
        real(self, step)

    monkeypatch.setattr(training.Steering, "between_updates", between_updates)
    run(store, run_id)
    payloads = [e.payload for e in store.events_after(run_id) if e.kind == "knob"]
    assert [(p["knob"], p["update"], p["between"]) for p in payloads] == [("beta", 1, 0), ("group_size", 3, 1)]


def test_the_last_of_several_values_wins_and_a_bad_one_does_not_count(store):
    run_id = store.create(fake.grpo(5))
    run(store, run_id, {2: asker(store, run_id, ("beta", 0.1), ("beta", 0.3), ("beta", -4), ("beta", 0.3))})
    assert [(c.payload["value"], c.state) for c in store.controls(run_id)] == [
        (0.1, "superseded"), (0.3, "superseded"), (-4, "refused"), (0.3, "applied")]
    assert knob_events(store, run_id) == [(3, "β 0.04 → 0.3")]


def test_what_cannot_be_done_is_refused_with_the_reason(store):
    run_id = store.create(fake.grpo(5))
    run(store, run_id, {2: asker(store, run_id, ("sft_target", 0.9), ("bta", 1), ("mini_batches", 7), ("beta", "x"))})
    reasons = [c.refused for c in store.controls(run_id)]
    for reason, words in zip(reasons, ("start a new run", "did you mean 'beta'", "does not divide", "must be a number"),
                             strict=True):
        assert words in reason
    assert kinds(store, run_id).count("refused") == 4 and knob_events(store, run_id) == []


def test_a_knob_set_while_queued_holds_from_the_first_step(store):
    early, plain = store.create(fake.grpo(8)), store.create(fake.grpo(8, beta=0.5))
    asker(store, early, ("beta", 0.5))()
    run(store, early)
    run(store, plain)
    assert fake.trained(store, early) == fake.trained(store, plain)


def test_setting_the_same_value_again_makes_no_marker(store):
    run_id = store.create(fake.grpo(5))
    run(store, run_id, {2: asker(store, run_id, ("beta", 0.04))})
    assert [c.state for c in store.controls(run_id)] == ["applied"] and knob_events(store, run_id) == []


def test_a_change_made_after_a_resume_cancels_the_later_ones_of_that_knob():
    def event(number, knob, value, update):
        return Event(number, update, "knob", {"knob": knob, "to": value, "update": update, "between": 1}, 0.0)

    history = [event(1, "beta", 0.1, 3), event(2, "beta", 0.2, 60), event(3, "gamma", 0.9, 60),
               event(4, "beta", 0.5, 55)]
    assert timeline(history, 50) == [Change("beta", 0.5, (55, 1)), Change("gamma", 0.9, (60, 1))]
    assert timeline(history, 0)[0] == Change("beta", 0.1, (3, 1))


# ---------------------------------------------------------------- pause, step, stop


class Background(threading.Thread):
    """Drives a run beside the test."""

    def __init__(self, store, run_id):
        super().__init__(daemon=True)
        self.store, self.run_id, self.state = store, run_id, None
        self.start()

    def run(self):
        self.state = drive(self.store, self.run_id, start=fake.start)


def until(condition, seconds: float = 8.0):
    """Wait for a condition; its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)
    return value


def test_pause_single_step_resume_and_stop(store, monkeypatch):
    monkeypatch.setenv("FAKE_SLEEP", "0.01")
    run_id = store.create(fake.grpo(100_000))
    worker = Background(store, run_id)
    until(lambda: store.run(run_id).step >= 3)
    store.ask(run_id, "pause")
    until(lambda: store.run(run_id).state == "paused")
    at = store.run(run_id).step
    until(lambda: checkpoint.newest(run_folder(run_id))[0] == at)
    time.sleep(0.2)
    paused_seconds = store.run(run_id).seconds
    for n in (1, 2):
        store.ask(run_id, "step")
        until(lambda n=n: checkpoint.newest(run_folder(run_id))[0] == at + n)
        time.sleep(0.1)
        assert (store.run(run_id).step, store.run(run_id).state) == (at + n, "paused")
    assert store.run(run_id).seconds - paused_seconds < 0.15  # the waiting is not counted
    store.ask(run_id, "set", {"knob": "beta", "value": 0.2})
    until(lambda: knob_events(store, run_id) == [(at + 3, "β 0.04 → 0.2")])  # while paused, for the next step
    store.ask(run_id, "resume")
    until(lambda: store.run(run_id).state == "running" and store.run(run_id).step > at + 4)
    store.ask(run_id, "stop")
    worker.join(5)
    row = store.run(run_id)
    assert (worker.state, row.state, row.message) == ("stopped", "stopped", f"The run was stopped at step {row.step}.")
    assert checkpoint.newest(run_folder(run_id))[0] == row.step
    assert kinds(store, run_id) == ["queued", "started", "paused", "stepped", "stepped", "knob", "resumed", "stopped"]


def test_a_single_step_of_a_running_run_pauses_it(store, monkeypatch):
    monkeypatch.setenv("FAKE_SLEEP", "0.01")
    run_id = store.create(fake.grpo(100_000))
    asker(store, run_id, "step")()
    worker = Background(store, run_id)
    until(lambda: "stepped" in kinds(store, run_id))
    assert (store.run(run_id).state, store.run(run_id).step) == ("paused", 1)
    asker(store, run_id, "stop")()
    worker.join(5)
    assert worker.state == "stopped"


# ---------------------------------------------------------------- resume


def test_a_stopped_run_goes_on_bit_for_bit(store):
    whole, parts = store.create(fake.grpo(30)), store.create(fake.grpo(30))
    run(store, whole, {12: asker(store, whole, ("beta", 0.2))})
    assert run(store, parts, {12: asker(store, parts, ("beta", 0.2)), 17: asker(store, parts, "stop")}) == "stopped"
    store.requeue(parts)
    assert run(store, parts) == "finished"
    assert fake.trained(store, parts) == fake.trained(store, whole)
    seconds = [s.seconds for s in store.steps_after(parts)]
    assert seconds == sorted(seconds)
    assert [e.payload for e in store.events_after(parts) if e.kind == "resumed"] == [{"from": 17}]


def test_resuming_with_another_knob_applies_it_at_the_checkpoint(store, breaking):
    run_id = store.create(fake.grpo(10))
    breaking(7, Diverged(7, "policy loss"))
    assert run(store, run_id) == "diverged"
    assert "at step 7" in store.run(run_id).message and store.run(run_id).step == 6
    assert checkpoint.newest(run_folder(run_id))[0] == 0
    breaking(99, RuntimeError())
    store.requeue(run_id, {"learning_rate": 1e-5})
    assert run(store, run_id) == "finished"
    assert knob_events(store, run_id) == [(1, "η 0.001 → 1e-05")]
    assert [s.step for s in store.steps_after(run_id)] == list(range(1, 11))


def test_a_fork_starts_from_its_parents_checkpoint_with_knobs_of_its_own(store):
    parent = store.create(fake.grpo(20))
    run(store, parent)
    knobs = {"sft_steps": 0, "beta": 0.7}
    child = store.create(make(algorithm_key="grpo", task_key="sort", steps=25, knobs=knobs, parent=(parent, 20)))
    assert run(store, child) == "finished"
    assert [s.step for s in store.steps_after(child)] == [21, 22, 23, 24, 25]
    orphan = store.create(make(algorithm_key="grpo", task_key="sort", steps=25, knobs=knobs, parent=(parent, 3)))
    assert run(store, orphan) == "failed" and "no checkpoint of step 3" in store.run(orphan).message


# ---------------------------------------------------------------- the base model


def with_sft(**knobs):
    return make(algorithm_key="grpo", task_key="sort", steps=6, knobs={"sft_steps": 30, **knobs})


def test_the_base_is_taught_once_and_used_by_all(store):
    first, second = store.create(with_sft()), store.create(with_sft(beta=0.5))
    assert run(store, first) == run(store, second) == "finished"
    sft = store.run(first).base
    assert store.run(second).base == sft and store.run(sft).state == "finished"
    assert [row.spec.algorithm for row in store.runs()].count("sft") == 1
    assert [e.payload for e in store.events_after(second) if e.kind == "sft"] == [{"base": sft, "cached": True}]


def test_stopping_a_run_stops_the_sft_it_waits_for_and_resuming_goes_on_with_it(store):
    run_id = store.create(with_sft())
    drive(store, run_id, start=fake.start,
          on_record=lambda who, record, _: who != run_id and record.step == 9 and store.ask(run_id, "stop"))
    sft = store.run(run_id).base
    assert (store.run(run_id).state, store.run(sft).state, store.run(sft).step) == ("stopped", "stopped", 9)
    store.requeue(run_id)
    assert run(store, run_id) == "finished"
    assert store.run(run_id).base == sft and len(store.steps_after(sft)) == 30


def test_a_run_waits_while_another_process_makes_the_base(store):
    spec = with_sft()
    run_id = store.create(spec)
    folder = home() / "base" / base_spec(spec).hash()
    folder.parent.mkdir(parents=True)
    with FileLock(f"{folder}.lock"):
        worker = Background(store, run_id)
        until(lambda: store.run(run_id).message == "waiting for the base model")
    worker.join(10)
    assert worker.state == "finished"


# ---------------------------------------------------------------- faults


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
        assert "Traceback" in log_file(run_id).read_text() and str(log_file(run_id)) in row.message


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
def test_a_disk_that_is_full_to_the_last_page_still_gets_the_sentence(small_disk):
    store = Store()
    run_id = store.create(fake.grpo(100_000))
    assert run(store, run_id) == "failed"
    row = store.run(run_id)
    assert (row.state, row.step) == ("failed", len(store.steps_after(run_id))) and "is full" in row.message
    store.dispose()


def test_a_signal_makes_the_worker_checkpoint_and_leave(store):
    run_id = store.create(fake.grpo(100))
    assert run(store, run_id, {9: lambda: os.kill(os.getpid(), signal.SIGTERM)}) == "interrupted"
    assert store.run(run_id).message == "The run was stopped with the lab at step 9: resume it."
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
