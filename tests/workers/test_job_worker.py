"""Jobs in real processes: asked of the launcher, done by forked or cold workers, killed in every way."""

import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from labcore.runs import jobs
from labcore.runs.files.paths import home
from labcore.runs.store.store import Store
from labcore.workers.job_queue import AT_ONCE
from labcore.workers.launcher import Launcher
from tests.workers.tools import until

ROOT = Path(__file__).resolve().parents[2]
# The first lines of each process. Garbage collection would only scan the modules that it loads.
FAKE = "import gc; gc.disable(); from tests.workers import fake_jobs as fake; fake.install(); "
FORKING = (sys.executable, "-c",
           FAKE + "from labcore.workers import supervisor; supervisor.main(preload=(), fork=True)")
COLD = FAKE + "import sys; from labcore.workers import job_worker; job_worker.work(sys.argv[1], sys.stdin.fileno())"
SPAWNING = (sys.executable, "-c", FAKE + "import sys; from labcore.workers import children, supervisor; "
            f"children.Spawning.JOB_COMMAND = (sys.executable, '-c', {COLD!r}); supervisor.main(fork=False)")


@pytest.fixture(scope="module", params=[FORKING, SPAWNING], ids=["fork", "spawn"])
def home_and_lab(request, labs):
    """Shared by all tests that leave the lab open, because a supervisor takes half a second to load."""
    home = next(labs)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("RL_LAB_HOME", home), ("PYTHONPATH", ROOT), ("FAKE_COUNT", home / "count")):
            patch.setenv(name, str(value))
        with closing(Launcher(Store(), request.param)) as launcher:
            yield home, launcher


@pytest.fixture
def lab(home_and_lab, monkeypatch):
    home, launcher = home_and_lab
    monkeypatch.setenv("RL_LAB_HOME", str(home))
    return launcher


# A spawned worker imports everything again for each job, so `make test` has only one test of it.
FORKED = pytest.mark.parametrize("home_and_lab", [
    pytest.param(FORKING, id="fork"), pytest.param(SPAWNING, id="spawn", marks=pytest.mark.long)], indirect=True)


def asked(lab: Launcher, spec: dict) -> jobs.Outcome:
    """Ask as the page does: again and again until the outcome is there."""
    return until(lambda: jobs.outcome(lab.compute(spec)))


def sleeper(lab: Launcher, who: str = "a") -> tuple[str, psutil.Process]:
    """A job that goes, and its process."""
    job = lab.compute({"job": "sleep", "who": who})
    path = jobs.root() / f"pid-{who}"
    pid = int(until(lambda: path.exists() and path.read_text()))
    return job, psutil.Process(pid)


def test_a_job_is_done_once_and_faults_are_told(lab):
    spec = {"job": "total", "numbers": [20, 22]}
    assert asked(lab, spec).result == {"sum": 42} and asked(lab, spec).result == {"sum": 42}
    assert (home() / "count").read_text() == "x"
    assert "13 is not wanted" in asked(lab, {"job": "refuse"}).error
    assert "ZeroDivisionError" in asked(lab, {"job": "broken", "by": 0}).error


@FORKED
def test_a_killed_worker_is_noticed_and_a_cancelled_job_says_so(lab):
    job, process = sleeper(lab)
    process.kill()
    assert "killed by signal 9" in until(lambda: jobs.outcome(job)).error
    jobs.forget(job)
    job, process = sleeper(lab, "b")
    lab.cancel(job)
    assert "was stopped before it was done" in until(lambda: jobs.outcome(job)).error
    process.wait(5)


@FORKED
def test_a_job_whose_supervisor_died_ends_and_is_begun_anew(lab):
    job, process = sleeper(lab, "c")
    old = lab._process
    old.kill()
    process.wait(5)
    until(lambda: lab._process is not old)
    (jobs.root() / "pid-c").unlink()
    again, process = sleeper(lab, "c")
    assert again == job
    lab.cancel(job)
    process.wait(5)


@pytest.mark.parametrize("home_and_lab", [FORKING], ids=["fork"], indirect=True)
def test_a_warm_worker_answers_at_once(lab):
    asked(lab, {"job": "total", "numbers": [0]})
    begun = time.monotonic()
    asked(lab, {"job": "total", "numbers": [1]})
    assert time.monotonic() - begun < 1.0  # 0.03 s where nothing else runs


def test_only_a_few_jobs_run_at_once_the_last_one_is_done_first_and_no_process_is_left(
        launchers, monkeypatch, lab_home):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("FAKE_COUNT", str(lab_home / "count"))
    lab = launchers(Store(), FORKING)
    family = [sleeper(lab, str(number))[1] for number in range(AT_ONCE)]
    first, last = (lab.compute({"job": "total", "numbers": [number]}) for number in (1, 2))
    time.sleep(0.3)
    assert jobs.outcome(first) is None and jobs.outcome(last) is None
    family[0].kill()
    until(lambda: jobs.outcome(first) and jobs.outcome(last))
    made = [(jobs.folder(job) / "result.json").stat().st_mtime_ns for job in (last, first)]
    assert made == sorted(made)
    begun = time.monotonic()
    lab.close()
    assert time.monotonic() - begun < 5  # it does not wait for jobs
    assert not psutil.wait_procs(family, timeout=5)[1]
