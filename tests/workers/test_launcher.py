"""Real processes: the launcher, its supervisor and its workers, killed in every way that a lab can end."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from labcore.errors import LabError
from labcore.runs.files.paths import log_file, max_runs
from labcore.runs.store.store import Store
from labcore.workers import process
from labcore.workers.children import NICENESS
from labcore.workers.launcher import Launcher
from labcore.workers.worker import drive
from tests.runs import fake
from tests.workers.tools import until

ROOT = Path(__file__).resolve().parents[2]
# The first lines of each supervisor and worker. Garbage collection would only scan the modules that it loads.
FAKE = ("import gc; gc.disable(); from dataclasses import replace; from labcore.catalog.kinds import KINDS; "
        "from labcore.workers import children, supervisor, worker; children.FIRST_SECONDS = 0.1; "
        "KINDS['llm'] = replace(KINDS['llm'], session='tests.runs.fake:FakeSession'); ")
SPAWN = f"{FAKE} import sys; children.Spawning.COMMAND = (sys.executable, '-c', {FAKE + 'worker.main()'!r}); "
FORKING = (sys.executable, "-c", FAKE + "supervisor.main(preload=(), fork=True)")
SPAWNING = (sys.executable, "-c", SPAWN + "supervisor.main(fork=False)")
# A lab like Streamlit's server: holds a launcher, starts a run, then waits to be killed. It hears Ctrl-C even where the
# tests were started in the background of a shell, which has such processes ignore it.
LAB = (sys.executable, "-c", "import gc, signal, sys, time\ngc.disable()\n"
       "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
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


@pytest.fixture(scope="module")
def shared(labs):
    """The home and the launcher of all tests that leave it running: a supervisor takes half a second to load."""
    home = next(labs)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("RL_LAB_HOME", home), ("FAKE_SLEEP", 0.01), ("PYTHONPATH", ROOT)):
            patch.setenv(name, str(value))
        with closing(Launcher(Store(), FORKING)) as launcher:
            yield home, launcher


@pytest.fixture
def lab(shared, monkeypatch):
    """The shared launcher, with no running run before and after the test."""
    home, launcher = shared
    monkeypatch.setenv("RL_LAB_HOME", str(home))
    yield launcher
    for run in launcher.store.runs("running"):
        launcher.store.ask(run.id, "stop")
    until(lambda: not launcher.store.runs("running"))


def reached(store, run_id, step: int) -> bool:
    return store.run(run_id).step >= step


def states(store, *run_ids) -> list[str]:
    return [store.run(run_id).state for run_id in run_ids]


# ---------------------------------------------------------------- the queue


def test_an_idle_supervisor_costs_nothing(lab):
    """The first test with the shared supervisor, because it looks for lost runs after a minute."""
    process = psutil.Process(lab._process.pid)
    until(lambda: process.status() == psutil.STATUS_SLEEPING and process.num_threads() == 1)
    time.sleep(1.0)  # until it has finished starting
    before, begun = process.cpu_times(), process.num_ctx_switches().voluntary
    time.sleep(0.7)
    assert process.cpu_times() == before and process.num_ctx_switches().voluntary - begun <= 1


@pytest.mark.parametrize("command", [FORKING, pytest.param(SPAWNING, marks=pytest.mark.long)], ids=["fork", "spawn"])
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
    with pytest.raises(LabError, match="closed"):
        lab.wake()


def test_a_bad_limit_is_told(monkeypatch):
    monkeypatch.setenv("RL_LAB_MAX_RUNS", "many")
    with pytest.raises(LabError, match="RL_LAB_MAX_RUNS is 'many'"):
        max_runs()


def test_a_worker_starts_at_once(lab):
    store = lab.store
    warm = lab.start(fake.grpo(1))
    until(lambda: states(store, warm) == ["finished"])
    row = store.run(lab.start(fake.grpo(1)))
    until(lambda: store.run(row.id).started is not None)
    assert store.run(row.id).started - row.created < 0.5  # 0.02 s where nothing else runs


def test_two_labs_on_one_store_start_each_run_once(lab, launchers):
    store, labs = lab.store, [lab, launchers(lab.store, FORKING)]
    ids = [labs[n % 2].start(fake.grpo(3)) for n in range(6)]
    for lab in labs:
        lab.wake()
    until(lambda: set(states(store, *ids)) == {"finished"})
    for run_id in ids:
        assert [e.kind for e in store.events_after(run_id)].count("started") == 1


def test_a_killed_worker_is_noticed_at_once(lab):
    store = lab.store
    run_id = lab.start(fake.grpo(100_000))
    until(lambda: reached(store, run_id, 2))
    worker = psutil.Process(store.run(run_id).pid)
    until(lambda: worker.nice() == min(os.nice(0) + NICENESS, 19))  # after its first tenth of a second
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
    pytest.param(signal.SIGINT, marks=pytest.mark.long),  # browser tests, too, stop their server by SIGINT
    pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL])
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


def test_a_worker_in_the_middle_of_a_long_step_ends_with_its_supervisor_or_lab(store, open_lab, monkeypatch):
    """A dead supervisor is also replaced, and the run can be resumed under the next one."""
    monkeypatch.setenv("FAKE_SLEEP", "60")
    quick = FAKE + "from labcore.workers import lifeline; lifeline.GRACE_SECONDS = 0.3; "
    lab = open_lab((sys.executable, "-c", quick + "supervisor.main(preload=(), fork=True)"))
    run_id = lab.start(fake.grpo(5))

    def in_its_first_step(begun: int) -> psutil.Process:
        until(lambda: [event.kind for event in store.events_after(run_id)].count("started") == begun)
        time.sleep(0.5)
        return psutil.Process(store.run(run_id).pid)

    def ends(worker: psutil.Process) -> None:
        worker.wait(5)
        until(lambda: states(store, run_id) == ["interrupted"])
        assert "in the middle of a step" in store.run(run_id).message

    worker, supervisor = in_its_first_step(1), lab._process
    os.kill(supervisor.pid, signal.SIGKILL)
    ends(worker)
    until(lambda: lab._process is not supervisor)
    lab.resume(run_id)
    worker = in_its_first_step(2)
    lab.close()
    ends(worker)


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


def test_a_run_of_the_foreground_is_left_alone(lab):
    store = lab.store
    mine = store.create(fake.grpo(3), mine=True)
    other = lab.start(fake.grpo(2))
    until(lambda: states(store, other) == ["finished"])
    assert states(store, mine) == ["starting"]
    assert drive(store, mine, start=fake.start) == "finished"


def test_the_command_is_the_module():
    assert process.SUPERVISOR[1:] == ("-m", "labcore.workers.supervisor")
