"""Real processes: the launcher, its supervisor and its workers, killed in every way that a lab can end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from labcore.errors import LabError
from labcore.runs.files.paths import log_file, max_runs
from labcore.workers import process
from labcore.workers.children import NICENESS
from labcore.workers.worker import drive
from tests.runs import fake
from tests.workers.tools import until

ROOT = Path(__file__).resolve().parents[2]
FAKE = ("from dataclasses import replace; from labcore.catalog.kinds import KINDS; from labcore.workers import "
        "children, supervisor, worker; KINDS['llm'] = replace(KINDS['llm'], session='tests.runs.fake:FakeSession'); ")
SPAWN = f"{FAKE} import sys; children.Spawning.COMMAND = (sys.executable, '-c', {FAKE + 'worker.main()'!r}); "
FORKING = (sys.executable, "-c", FAKE + "supervisor.main(preload=(), fork=True)")
SPAWNING = (sys.executable, "-c", SPAWN + "supervisor.main(fork=False)")
WORKER = (sys.executable, "-c", FAKE + "import sys; worker.drive(worker.Store(), sys.argv[1])")
# A lab like Streamlit's server: holds a launcher, starts a run, then waits to be killed. It hears Ctrl-C even where the
# tests were started in the background of a shell, which has such processes ignore it.
LAB = (sys.executable, "-c", "import signal, sys, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
       "from labcore.workers.launcher import Launcher\n"
       "from labcore.runs.store.store import Store\nfrom tests.runs import fake\n"
       f"Launcher(Store(), {FORKING!r}).start(fake.grpo(100000))\ntime.sleep(60)")


@pytest.fixture(autouse=True)
def slowly(monkeypatch):
    monkeypatch.setenv("FAKE_SLEEP", "0.01")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def open_lab(store, launchers):
    """Open a launcher with a fake session."""
    return lambda command=FORKING: launchers(store, command)


def reached(store, run_id, step: int) -> bool:
    return store.run(run_id).step >= step


def states(store, *run_ids) -> list[str]:
    return [store.run(run_id).state for run_id in run_ids]


# ---------------------------------------------------------------- kill -9


def test_a_killed_worker_loses_nothing_and_goes_on_bit_for_bit(store, monkeypatch):
    run_id, whole = store.create(fake.grpo(90)), store.create(fake.grpo(90))
    worker = subprocess.Popen([*WORKER, run_id], cwd=ROOT)
    until(lambda: reached(store, run_id, 55))  # beyond the checkpoint of step 50
    store.ask(run_id, "set", {"knob": "beta", "value": 0.2})
    change = until(lambda: [e for e in store.events_after(run_id) if e.kind == "knob"])[0]
    until(lambda: reached(store, run_id, change.step + 5))
    worker.kill()
    worker.wait()
    logged, steps = fake.trained(store, run_id), store.run(run_id).step
    assert [row[0] for row in logged] == list(range(1, steps + 1)) and 60 <= steps < 90
    assert store.reconcile() == [run_id] and states(store, run_id) == ["interrupted"]
    monkeypatch.setenv("FAKE_SLEEP", "0")
    store.requeue(run_id)
    assert drive(store, run_id, start=fake.start) == "finished"
    assert fake.trained(store, run_id)[:steps] == logged

    def same_change(who, record, _):
        if record.step == change.step - 1:
            store.ask(whole, "set", {"knob": "beta", "value": 0.2})

    drive(store, whole, on_record=same_change, start=fake.start)
    assert fake.trained(store, run_id) == fake.trained(store, whole)


# ---------------------------------------------------------------- the queue


@pytest.mark.parametrize("command", [FORKING, SPAWNING], ids=["fork", "spawn"])
def test_runs_go_up_to_the_limit_and_the_others_wait_and_say_so(store, open_lab, monkeypatch, command):
    monkeypatch.setenv("RL_LAB_MAX_RUNS", "1")
    lab = open_lab(command)
    first, second = lab.start(fake.grpo(100_000)), lab.start(fake.grpo(5))
    until(lambda: reached(store, first, 3) and store.run(second).message)
    assert states(store, first, second) == ["running", "queued"]
    assert "waiting for a free place (RL_LAB_MAX_RUNS=1)" in store.run(second).message
    store.ask(first, "stop")
    until(lambda: states(store, first, second) == ["stopped", "finished"])
    lab.resume(first, {"beta": 0.3})
    until(lambda: any(e.kind == "knob" for e in store.events_after(first)))
    lab.close()
    assert states(store, first) == ["interrupted"]


def test_a_worker_starts_at_once(store, open_lab):
    lab = open_lab()
    warm = lab.start(fake.grpo(1))
    until(lambda: states(store, warm) == ["finished"])
    row = store.run(lab.start(fake.grpo(1)))
    until(lambda: store.run(row.id).started is not None)
    assert store.run(row.id).started - row.created < 0.5  # 0.02 s where nothing else runs


def test_two_labs_on_one_store_start_each_run_once(store, open_lab):
    labs = [open_lab(), open_lab()]
    ids = [labs[n % 2].start(fake.grpo(3)) for n in range(6)]
    for lab in labs:
        lab.wake()
    until(lambda: set(states(store, *ids)) == {"finished"})
    for run_id in ids:
        assert [e.kind for e in store.events_after(run_id)].count("started") == 1


def test_a_killed_worker_is_noticed_at_once(store, open_lab):
    lab = open_lab()
    run_id = lab.start(fake.grpo(100_000))
    until(lambda: reached(store, run_id, 2))
    worker = psutil.Process(store.run(run_id).pid)
    until(lambda: worker.nice() == min(os.nice(0) + NICENESS, 19))  # after its first second
    worker.kill()
    until(lambda: states(store, run_id) == ["interrupted"])
    assert "killed by signal 9" in store.run(run_id).message
    lab.resume(run_id)
    until(lambda: states(store, run_id) == ["running"])


def test_a_worker_that_cannot_begin_is_not_tried_for_ever(store, open_lab):
    broken = FAKE + "children.drive = None; supervisor.Store.claim = None; supervisor.main(preload=(), fork=True)"
    lab = open_lab((sys.executable, "-c", broken))
    run_id = lab.start(fake.grpo(3))
    until(lambda: states(store, run_id) == ["failed"])
    assert str(log_file(run_id)) in store.run(run_id).message and "Traceback" in log_file(run_id).read_text()


# ---------------------------------------------------------------- the end of the lab


@pytest.mark.parametrize("end", [
    signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL])
def test_a_lab_that_ends_leaves_no_orphan(store, end):
    lab = subprocess.Popen(LAB, cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL)
    run_id = until(lambda: store.runs())[0].id
    until(lambda: reached(store, run_id, 3))
    family = psutil.Process(lab.pid).children(recursive=True)
    assert len(family) == 2  # supervisor and worker
    os.killpg(lab.pid, end)
    lab.wait(15)
    _, alive = psutil.wait_procs(family, timeout=5)
    assert alive == []
    assert states(store, run_id) == ["interrupted"] and "resume it" in store.run(run_id).message


@pytest.mark.parametrize("victim", ["lab", "supervisor"])
def test_a_worker_in_the_middle_of_a_long_step_is_ended_too(store, open_lab, monkeypatch, victim):
    monkeypatch.setenv("FAKE_SLEEP", "60")
    quick = "from labcore.workers import lifeline; lifeline.GRACE_SECONDS = 0.3; " + FAKE
    lab = open_lab((sys.executable, "-c", quick + "supervisor.main(preload=(), fork=True)"))
    run_id = lab.start(fake.grpo(5))
    until(lambda: store.events_after(run_id)[-1].kind == "checkpoint")
    time.sleep(0.5)  # now it is in its first step
    worker = psutil.Process(store.run(run_id).pid)
    if victim == "lab":
        lab.close()
    else:
        os.kill(lab._process.pid, signal.SIGKILL)
    worker.wait(5)
    until(lambda: states(store, run_id) == ["interrupted"])
    assert "in the middle of a step" in store.run(run_id).message


def test_a_dead_supervisor_is_replaced(store, open_lab):
    lab = open_lab()
    run_id = lab.start(fake.grpo(100_000))
    until(lambda: reached(store, run_id, 2))
    old, worker = lab._process, psutil.Process(store.run(run_id).pid)
    old.kill()
    until(lambda: lab._process is not old)
    worker.wait(5)
    assert states(store, run_id) == ["interrupted"]
    lab.resume(run_id)
    until(lambda: states(store, run_id) == ["running"])


def test_a_supervisor_that_never_comes_up_is_told(store, open_lab):
    lab = open_lab((sys.executable, "-c", "raise SystemExit('no torch here')"))

    def told() -> bool:
        try:
            lab.wake()
        except LabError as error:
            return "does not start" in str(error)
        return False

    until(told)
    assert "no torch here" in process.log().read_text()


def test_a_run_of_the_foreground_is_left_alone(store, open_lab):
    mine = store.create(fake.grpo(3), mine=True)
    lab = open_lab()
    other = lab.start(fake.grpo(2))
    until(lambda: states(store, other) == ["finished"])
    assert states(store, mine) == ["starting"]
    assert drive(store, mine, start=fake.start) == "finished"


def test_a_closed_lab_takes_no_run_and_a_bad_limit_is_told(store, open_lab, monkeypatch):
    lab = open_lab()
    lab.close()
    with pytest.raises(LabError, match="closed"):
        lab.wake()
    monkeypatch.setenv("RL_LAB_MAX_RUNS", "many")
    with pytest.raises(LabError, match="RL_LAB_MAX_RUNS is 'many'"):
        max_runs()


def test_an_idle_supervisor_costs_nothing(open_lab):
    lab = open_lab()
    process = psutil.Process(lab._process.pid)
    until(lambda: process.status() == psutil.STATUS_SLEEPING and process.num_threads() == 1)
    time.sleep(1.0)  # until it has finished starting
    before, begun = process.cpu_times(), process.num_ctx_switches().voluntary
    time.sleep(0.7)
    assert process.cpu_times() == before and process.num_ctx_switches().voluntary - begun <= 1


def test_the_command_is_the_module():
    assert process.SUPERVISOR[1:] == ("-m", "labcore.workers.supervisor")
