"""Jobs in real processes: asked of the launcher, done by forked or cold workers, killed in every way."""

import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from labcore.runs import jobs
from labcore.runs.store.store import Store
from labcore.workers.job_queue import AT_ONCE
from labcore.workers.launcher import Launcher
from tests.workers.tools import until

ROOT = Path(__file__).resolve().parents[2]
FAKE = "from tests.workers import fake_jobs as fake; fake.install(); "
FORKING = (sys.executable, "-c",
           FAKE + "from labcore.workers import supervisor; supervisor.main(preload=(), fork=True)")
COLD = FAKE + "import sys; from labcore.workers import job_worker; job_worker.work(sys.argv[1], sys.stdin.fileno())"
SPAWNING = (sys.executable, "-c", FAKE + "import sys; from labcore.workers import children, supervisor; "
            f"children.Spawning.JOB_COMMAND = (sys.executable, '-c', {COLD!r}); supervisor.main(fork=False)")
BOTH = pytest.mark.parametrize("command", [FORKING, SPAWNING], ids=["fork", "spawn"])


@pytest.fixture
def open_lab(monkeypatch, tmp_path, launchers):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("FAKE_COUNT", str(tmp_path / "count"))
    return lambda command=FORKING: launchers(Store(), command)


def asked(lab: Launcher, spec: dict) -> jobs.Outcome:
    """Ask as the page does: again and again until the outcome is there."""
    return until(lambda: jobs.outcome(lab.compute(spec)))


def sleeper(lab: Launcher, who: str = "a") -> tuple[str, psutil.Process]:
    """A job that goes, and its process."""
    job = lab.compute({"job": "sleep", "who": who})
    path = jobs.root() / f"pid-{who}"
    pid = int(until(lambda: path.exists() and path.read_text()))
    return job, psutil.Process(pid)


@BOTH
def test_a_job_is_done_once_and_faults_are_told(open_lab, tmp_path, command):
    lab = open_lab(command)
    spec = {"job": "total", "numbers": [20, 22]}
    assert asked(lab, spec).result == {"sum": 42} and asked(lab, spec).result == {"sum": 42}
    assert (tmp_path / "count").read_text() == "x"
    assert "13 is not wanted" in asked(lab, {"job": "refuse"}).error
    assert "ZeroDivisionError" in asked(lab, {"job": "broken", "by": 0}).error


@BOTH
def test_a_killed_worker_is_noticed_and_a_cancelled_job_says_so(open_lab, command):
    lab = open_lab(command)
    job, process = sleeper(lab)
    process.kill()
    assert "killed by signal 9" in until(lambda: jobs.outcome(job)).error
    jobs.forget(job)
    job, process = sleeper(lab, "b")
    lab.cancel(job)
    assert "was stopped before it was done" in until(lambda: jobs.outcome(job)).error
    process.wait(5)


@pytest.mark.parametrize("command, victim", [(FORKING, "supervisor"), (SPAWNING, "supervisor"), (FORKING, "lab")],
                         ids=["fork, supervisor", "spawn, supervisor", "fork, lab"])
def test_nothing_is_left_when_the_lab_ends(open_lab, command, victim):
    lab = open_lab(command)
    _, process = sleeper(lab)
    if victim == "lab":
        begun = time.monotonic()
        lab.close()
        assert time.monotonic() - begun < 5  # a job is not waited for
    else:
        os.kill(lab._process.pid, signal.SIGKILL)
    process.wait(5)


def test_a_job_whose_supervisor_died_is_begun_anew(open_lab):
    lab = open_lab()
    job, process = sleeper(lab)
    old = lab._process
    old.kill()
    process.wait(5)
    until(lambda: lab._process is not old)
    (jobs.root() / "pid-a").unlink()
    again, _ = sleeper(lab)
    assert again == job


def test_only_a_few_go_at_once_and_the_last_question_is_answered_first(open_lab):
    lab = open_lab()
    family = [sleeper(lab, str(number))[1] for number in range(AT_ONCE)]
    first, last = (lab.compute({"job": "total", "numbers": [number]}) for number in (1, 2))
    time.sleep(0.3)
    assert jobs.outcome(first) is None and jobs.outcome(last) is None
    family[0].kill()
    until(lambda: jobs.outcome(first) and jobs.outcome(last))
    made = [(jobs.folder(job) / "result.json").stat().st_mtime_ns for job in (last, first)]
    assert made == sorted(made)


def test_a_warm_worker_answers_at_once(open_lab):
    lab = open_lab()
    asked(lab, {"job": "total", "numbers": [0]})
    begun = time.monotonic()
    asked(lab, {"job": "total", "numbers": [1]})
    assert time.monotonic() - begun < 1.0  # 0.03 s where nothing else runs
