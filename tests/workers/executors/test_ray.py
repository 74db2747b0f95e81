"""Runs on a real Ray cluster within this machine: a head that takes none, a machine, and one that is lost."""

import os
import signal
import socket
import sys
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from labcore.errors import LabError
from labcore.runs import sweep
from labcore.runs.files import checkpoints as checkpoint
from labcore.runs.files.paths import log_file, run_folder
from labcore.runs.halving import Halving, Rungs, lacks_optuna
from labcore.runs.spec.run_spec import make
from labcore.workers.executors import choice, driver
from labcore.workers.executors.resources import Resources, needed
from labcore.workers.launcher import Launcher
from labcore.workers.worker import drive
from tests.runs import fake
from tests.words import says
from tests.workers import tools
from tests.workers.tools import LIGHT, knob_events, learnt

pytest.importorskip("ray", reason="Ray is not installed: pip install -r requirements-cluster.txt")

until = partial(tools.until, every=0.05)  # Ray needs the cores that looking would take
ROOT = Path(__file__).resolve().parents[3]
GRACE = 1.0  # seconds that a worker has where its lifeline is cut
WORKER = ("import os; os.environ['FAKE_SLEEP'] = '0.01'; from dataclasses import replace; from labcore.catalog.kinds "
          "import KINDS; KINDS['llm'] = replace(KINDS['llm'], session='tests.runs.fake:FakeSession'); "
          "from labcore.workers import worker; worker.main()")
DRIVER = f"from labcore.workers.executors import driver; driver.COMMAND = ('-c', {WORKER!r}); driver.main()"
QUICK = f"from labcore.workers import lifeline; lifeline.GRACE_SECONDS = {GRACE}; "
FAKE = (sys.executable, "-c", "import sys; from labcore.workers import supervisor; from labcore.workers.executors "
        f"import ray; ray.DRIVER = (sys.executable, '-c', {QUICK + DRIVER!r}); "
        "supervisor.main(preload=(), fork=True)")


@pytest.fixture(scope="module")
def cluster():
    """A cluster whose head has no core for a run, and one machine with two."""
    from ray.cluster_utils import Cluster

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        cluster = Cluster(initialize_head=True, head_node_args={
            "num_cpus": 0, "include_dashboard": False, "ray_client_server_port": port,
            "_system_config": {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300,
                               "health_check_failure_threshold": 2}})
        cluster.add_node(num_cpus=2)
        cluster.client = f"ray://127.0.0.1:{port}"
        yield cluster
        cluster.shutdown()


@pytest.fixture
def open_lab(store, cluster, monkeypatch, launchers):
    """A lab on the cluster; `command` is its supervisor."""
    monkeypatch.setenv("RL_LAB_EXECUTOR", "ray")
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)

    def opener(command=FAKE) -> Launcher:
        if command != LIGHT:
            monkeypatch.setattr(choice, "check", lambda: None)  # one test is enough: it takes seconds
        return launchers(store, command)
    return opener


@pytest.mark.parametrize("through", ["auto", "client"])
def test_a_run_on_ray_learns_bit_for_bit_what_a_local_one_does(store, open_lab, cluster, monkeypatch, through):
    if through == "client":
        monkeypatch.setenv("RL_LAB_RAY", cluster.client)
        monkeypatch.delenv("RAY_ADDRESS")
    given = {"kind": "maze", "algorithm_key": "sarsa_lambda", "task_key": "slippery", "steps": 40, "seed": 4}
    spec = make(**given, knobs={"pace": 0})
    here = store.create(spec, mine=True)
    assert drive(store, here) == "finished"
    there = open_lab(LIGHT).start(spec)
    until(lambda: store.run(there).state == "finished")
    assert learnt(store, there) == learnt(store, here) and len(learnt(store, there)) == 40
    assert checkpoint.newest(run_folder(there))[0] == 40
    assert not log_file(there).read_text()


def going(store, lab, steps: int = 100_000) -> str:
    """A run that has made a few steps."""
    run_id = lab.start(fake.grpo(steps))
    until(lambda: store.run(run_id).step >= 3)
    return run_id


def test_controls_act_and_a_killed_worker_is_noticed_and_resumed(store, open_lab):
    lab = open_lab()
    run_id = going(store, lab)
    assert psutil.Process(lab._process.pid).num_threads() == 1  # it forks the jobs
    assert psutil.Process(store.run(run_id).pid).environ()["CUDA_VISIBLE_DEVICES"] == ""  # none was given
    store.ask(run_id, "pause")
    until(lambda: store.run(run_id).state == "paused")
    store.ask(run_id, "set", {"knob": "beta", "value": 0.2})
    at = store.run(run_id).step
    store.ask(run_id, "step")
    until(lambda: store.run(run_id).step == at + 1)
    assert knob_events(store, run_id)[0][0] == at + 1
    store.ask(run_id, "resume")
    until(lambda: store.run(run_id).step >= at + 3)

    os.kill(store.run(run_id).pid, signal.SIGKILL)
    until(lambda: store.run(run_id).state == "interrupted")
    assert "killed by signal 9" in store.run(run_id).message
    lab.resume(run_id)
    step = store.run(run_id).step
    until(lambda: store.run(run_id).step >= step + 3)
    store.ask(run_id, "stop")
    until(lambda: store.run(run_id).state == "stopped")

    at = store.run(run_id).step
    fork = lab.start(replace(store.run(run_id).spec, parent=(run_id, at), steps=at + 2))
    until(lambda: store.run(fork).state == "finished")
    assert [step.step for step in store.steps_after(fork)] == [at + 1, at + 2]


def test_a_lost_machine_interrupts_its_run_which_ends_bit_for_bit_on_another(store, open_lab, cluster):
    lab, whole = open_lab(), store.create(fake.grpo(80), mine=True)
    assert drive(store, whole, start=fake.start) == "finished"
    machine = cluster.add_node(num_cpus=3, num_gpus=1)  # only what Ray calls a GPU
    run_id = lab.start(replace(fake.grpo(80), threads=3))
    until(lambda: store.run(run_id).step >= 55)  # beyond the checkpoint of step 50
    worker = psutil.Process(store.run(run_id).pid)
    assert worker.environ()["CUDA_VISIBLE_DEVICES"] == "0"
    carrier = worker.parent().parent()
    carrier.suspend()  # all of the machine is lost at once: nobody there can tell
    worker.kill()
    cluster.remove_node(machine, allow_graceful=False)
    carrier.kill()
    until(lambda: store.run(run_id).state == "interrupted")
    assert says(store.run(run_id).message, "gone from the Ray cluster", "resume it")
    lab.resume(run_id)
    until(lambda: "no machine of the Ray cluster has that much" in store.run(run_id).message)
    another = cluster.add_node(num_cpus=3)
    until(lambda: store.run(run_id).state == "finished")
    assert fake.trained(store, run_id) == fake.trained(store, whole)
    cluster.remove_node(another)


class NoMachineLasts:
    """Ray as the driver sees it, where every machine is lost while a run is to begin there."""

    def __init__(self, error):
        import ray

        self.exceptions, self.error, self.asked, self.killed = ray.exceptions, error, [], 0

    def remote(self, _):
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._actor))

    def _actor(self, run_id, *_):
        self.asked.append(run_id)
        failed = Future()
        failed.set_exception(self.error)
        return SimpleNamespace(start=SimpleNamespace(remote=lambda: SimpleNamespace(future=lambda: failed)))

    def kill(self, _):
        self.killed += 1

    def nodes(self):
        return []

    def cluster_resources(self):
        return {}


@pytest.mark.parametrize(("init_failed", "times"), [(False, 1 + driver.MOST_LOST), (True, 1)])
def test_a_machine_that_is_lost_before_the_run_began_is_no_fault_of_the_run(init_failed, times, monkeypatch):
    from ray.exceptions import ActorDiedError

    error, said = ActorDiedError(), []
    error._actor_init_failed = init_failed
    there = NoMachineLasts(error)
    one = driver.Driver(there, lambda **each: said.append(each))
    one._start("a-run", Resources(1, "no", 0))
    for _ in range(times):
        one._calls.get(timeout=5)()
    assert there.asked == ["a-run"] * times and there.killed == times and not one._runs
    assert "could not start the run" in said[-1]["ended"]["fault"]


def test_ray_queues_runs_by_what_they_need(store, open_lab):
    lab = open_lab()
    large = lab.start(replace(fake.grpo(3), threads=64))
    first, second = (lab.start(replace(fake.grpo(100_000), threads=2)) for _ in range(2))
    until(lambda: store.run(large).message.startswith("waiting for a machine with 64 cores"))
    until(lambda: {store.run(first).state, store.run(second).state} == {"queued", "running"})
    waits = next(run for run in (first, second) if store.run(run).state == "queued")
    until(lambda: store.run(waits).message == "waiting for "
          f"{needed(store.run(waits).spec).words} of the Ray cluster")
    store.ask(first if waits == second else second, "stop")
    until(lambda: store.run(waits).state == "running")
    lab.close()
    assert [store.run(run).state for run in (waits, large)] == ["interrupted", "queued"]


@pytest.mark.skipif(lacks_optuna(), reason="Optuna is not installed: pip install -r requirements-sweeps.txt")
def test_a_sweep_on_ray_is_stopped_early_and_what_its_runs_learnt_stays_the_same(store, open_lab):
    """The judge is a process beside the supervisor; what it asks for reaches the workers through the store."""
    steps, how = 300, Halving("reward", 20, 2)
    seeds = (8, 4, 2, 3)  # the last two, which begin when the others have ended, are behind them at step 20
    sweep_id = sweep.queue(store, sweep.grid(fake.grpo(steps), {}, seeds), early=how)
    open_lab().wake()
    until(lambda: not sweep.sweep(store, sweep_id).active)
    runs = sweep.sweep(store, sweep_id).runs
    assert {run.state for run in runs[2:]} == {"stopped"} and sweep.unjudged(store, sweep_id) == ""
    assert all(run.message.startswith("Stopped early at step ") for run in runs if run.state == "stopped")
    decisions = store.decisions(sweep_id)[1]
    assert {each.run_id for each in decisions if not each.payload["kept"]} >= {run.id for run in runs if run.early}
    again = Rungs(how)
    assert [again.came(each.run_id, each.step, each.payload["value"])[0] for each in decisions] == [
        each.payload["kept"] for each in decisions]
    for run in runs:
        alone = store.create(run.spec, mine=True)
        assert drive(store, alone, start=fake.start) == "finished"
        assert fake.trained(store, run.id) == fake.trained(store, alone)[:run.step] and run.step >= how.min_steps


@pytest.mark.parametrize("victim", ["lab", "supervisor", "driver", "all"])
def test_a_lab_that_ends_leaves_no_orphan_and_its_runs_checkpoint(store, open_lab, victim):
    lab = open_lab()
    run_id = going(store, lab)
    worker = psutil.Process(store.run(run_id).pid)
    supervisor = psutil.Process(lab._process.pid)
    [driver] = supervisor.children()
    if victim == "lab":
        lab.close()
    for process in {"supervisor": [supervisor], "driver": [driver], "all": [supervisor, driver]}.get(victim, []):
        process.kill()
    worker.wait(20)
    until(lambda: store.run(run_id).state == "interrupted")
    if victim != "driver":  # then its supervisor says first that the run is lost
        assert checkpoint.newest(run_folder(run_id))[0] == store.run(run_id).step
    if victim != "lab":
        lab.resume(run_id)
        until(lambda: store.run(run_id).state == "running")


def test_a_run_that_came_to_a_machine_without_the_store_says_so(store, open_lab):
    """The lab takes itself for another machine than the one that Ray has found."""
    far = FAKE[2].replace(QUICK, 'import platform; platform.node = lambda: "far"; ')
    lab = open_lab((sys.executable, "-c", far))
    run_id = lab.start(fake.grpo(3))
    until(lambda: store.run(run_id).state == "failed")
    assert says(store.run(run_id).message, "far", "SQLite", "set RL_LAB_STORE")


def test_a_cluster_that_is_not_there_is_refused_as_the_lab_opens(store, monkeypatch):
    monkeypatch.setenv("RL_LAB_EXECUTOR", "ray")
    monkeypatch.setenv("RL_LAB_RAY", "ray://127.0.0.1:9")
    with pytest.raises(LabError) as refused:
        Launcher(store)
    assert says(str(refused.value), "ray://127.0.0.1:9", "Connection refused", "RL_LAB_RAY", "start the lab again")
