"""Where runs go: the settings, the seam as the supervisor uses it, and the side of Ray that needs no Ray."""

import importlib.util
import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from labcore.errors import LabError
from labcore.llm.sizes import sizes as sizes_job
from labcore.llm.sizing import memory
from labcore.runs import jobs
from labcore.runs.files.artifacts import object_store
from labcore.runs.files.atomic import write_text
from labcore.runs.files.paths import made, run_folder
from labcore.runs.spec.run_spec import make
from labcore.runs.store.store import Store
from labcore.workers.executors import choice, node, ray
from labcore.workers.executors.carrier import Carrier
from labcore.workers.executors.executor import Ended
from labcore.workers.executors.resources import CODE_BYTES, needed
from labcore.workers.launcher import Launcher
from labcore.workers.supervisor import Supervisor
from tests.runs import fake
from tests.words import saying, says
from tests.workers.tools import until

ROOT = Path(__file__).resolve().parents[3]

# ---------------------------------------------------------------- the settings


@pytest.mark.parametrize("name, word", [
    ("RL_LAB_EXECUTOR", "cloud"), ("RL_LAB_RAY", "here"), ("RL_LAB_RAY", "ray://head"), ("RL_LAB_RAY", "ray://head:x"),
    ("RL_LAB_RAY", "head:10001")])
def test_a_wrong_word_is_refused_as_the_lab_opens(store, monkeypatch, name, word):
    monkeypatch.setenv("RL_LAB_EXECUTOR", "ray")
    monkeypatch.setenv(name, word)
    with pytest.raises(LabError, match=f"^{name} is '{word}': set it to "):
        Launcher(store)


def test_ray_that_is_not_installed_is_refused_as_the_lab_opens(store, monkeypatch):
    monkeypatch.setenv("RL_LAB_EXECUTOR", "ray")
    monkeypatch.setattr(ray, "find_spec", lambda name: None)
    with pytest.raises(LabError, match=r"not installed: run pip install -r requirements-cluster\.txt, or leave"):
        Launcher(store)


def test_without_a_word_runs_go_to_this_machine(monkeypatch):
    assert choice.executor() == "local"
    monkeypatch.setenv("RL_LAB_RAY", "nonsense")  # nobody asked for Ray
    choice.check()


IMPORTED = """
import importlib, json, sys
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
from labcore.workers.executors import choice
choice.chosen(None, None)
print("ray" in sys.modules, importlib.import_module("ray").__file__)
"""


def test_nothing_imports_ray_unless_it_is_asked_for(tmp_path):
    """There is one to be found, whether or not the real one is installed."""
    (tmp_path / "ray.py").touch()
    names = ["labcore.cli.commands", "labcore.workers.executors.driver"]  # of pages `tests/test_walls.py` says it
    done = subprocess.run([sys.executable, "-c", IMPORTED, json.dumps(names)], capture_output=True, text=True,
                          timeout=60, env=os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))})
    assert done.stdout.split() == ["False", str(tmp_path / "ray.py")], done.stderr


# ---------------------------------------------------------------- the seam


class Elsewhere:
    """An executor whose runs wait, begin and end as the test says; its children do nothing."""

    limit = 2

    def __init__(self):
        self.started, self.ends, self.news = [], [], {}

    def start(self, run_id):
        self.started.append(run_id)

    def ended(self):
        while self.ends:
            yield self.ends.pop(0)

    def waiting(self):
        return self.news

    def start_job(self, job):
        raise AssertionError("no job was asked for")


def test_the_supervisor_says_why_runs_wait_and_what_became_of_those_elsewhere(store):
    there = Elsewhere()
    supervisor = Supervisor(store, there, there)
    lost, never, beyond = (store.create(fake.grpo(10)) for _ in range(3))
    there.news = {lost: "waiting for a machine"}
    supervisor.fill()
    supervisor.fill()
    assert there.started == [lost, never] and store.run(lost).message == "waiting for a machine"
    assert "waiting for a free place (RL_LAB_MAX_RUNS=2)" in store.run(beyond).message

    assert store.claim(lost, 77, "far")
    there.ends = [Ended(lost, (77, "near"), "another machine's process"), Ended(never, None, "", "It has no lab.")]
    supervisor.reap()
    assert [store.run(each).state for each in (lost, never)] == ["starting", "failed"]
    assert store.run(never).message == "It has no lab."
    supervisor.started[lost] = None
    there.ends = [Ended(lost, (77, "far"), "its machine is gone")]
    supervisor.reap()
    assert says(store.run(lost).message, "step 0", "machine is gone", "resume it")
    assert supervisor.started == {}


@pytest.mark.parametrize("refused", ["lost", "give_up"])
def test_where_the_store_cannot_be_written_an_end_is_not_forgotten(store, monkeypatch, refused):
    there = Elsewhere()
    supervisor = Supervisor(store, there, there)
    taken, waiting = (store.create(fake.grpo(10)) for _ in range(2))
    supervisor.fill()
    assert store.claim(taken, 77, "far")
    there.ends = [Ended(taken, (77, "far"), "its machine is gone"), Ended(waiting, None, "", "It has no lab.")]
    with monkeypatch.context() as patch, pytest.raises(LabError):
        patch.setattr(store, refused, lambda *_: (_ for _ in ()).throw(LabError("The disk is full.")))
        supervisor.reap()
    supervisor.reap()
    assert [store.run(each).state for each in (taken, waiting)] == ["interrupted", "failed"]
    assert supervisor.started == {}


# ---------------------------------------------------------------- what a run asks for


def test_a_run_asks_for_what_its_spec_says(tmp_path):
    spec = fake.grpo(3)
    assert needed(spec).cores == 1 and needed(spec).gpu == "may" and needed(spec).memory == CODE_BYTES
    save_file({"a": np.zeros((20, 10), np.float16), "b": np.zeros(50, np.float32)}, tmp_path / "model.safetensors")
    large = needed(replace(spec, threads=8, device="cuda", model=str(tmp_path)))
    # Policy and reference of 250 numbers, 4 bytes each whatever the file has; of the policy gradients and moments.
    assert (large.cores, large.gpu, large.memory) == (8, "must", CODE_BYTES + 2 * 1000 + 1000 + 2000)
    lora = replace(spec, model=str(tmp_path), knobs={**spec.knobs, "lora_rank": 4})
    assert needed(lora).memory == CODE_BYTES + 1000
    judge = make(algorithm_key="reward_model", task_key="sort", model=str(tmp_path))
    assert needed(judge).memory == CODE_BYTES + 2 * 1000 + 1000 + 2000  # the policy only lends its weights
    assert large.fit({"CPU": 8, "GPU": 1, "memory": 1e9}) and not large.fit({"CPU": 8, "memory": 1e9})
    assert not large.fit({"CPU": 7, "GPU": 1, "memory": 1e9}) and not large.fit({"CPU": 8, "GPU": 1, "memory": 1e6})
    assert needed(replace(spec, device="cpu")).gpu == "no"
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    assert needed(replace(spec, model=str(tmp_path))).memory == CODE_BYTES
    maze = make(kind="maze", algorithm_key="q_learning", task_key="cliff")
    assert needed(maze).memory == CODE_BYTES and needed(maze).gpu == "no"


@pytest.mark.parametrize("algorithm", ["grpo", "dpo", "sft"])
def test_ray_is_asked_for_what_the_memory_table_says_where_sizes_were_counted(lab_home, algorithm):
    spec = make(algorithm_key=algorithm, task_key="sort", steps=3)
    assert needed(spec).memory == CODE_BYTES
    asked = memory.asked([spec])
    jobs.put(asked)
    write_text(jobs.folder(jobs.job_id(asked)) / "result.json", json.dumps(sizes_job(asked)))
    [found] = sizes_job(asked)["sizes"]
    table = memory.estimate(spec, found)
    assert needed(spec).memory == CODE_BYTES + table.peak and table.peak > 10**6
    assert needed(replace(spec, seed=7)).memory == needed(spec).memory


def test_sizes_that_cannot_be_counted_are_no_fault_of_the_run(lab_home):
    spec = make(algorithm_key="grpo", task_key="sort", steps=3)
    asked = memory.asked([spec])
    jobs.put(asked)
    write_text(jobs.folder(jobs.job_id(asked)) / "result.json", json.dumps({"sizes": ["It has no such sizes."]}))
    assert needed(spec).memory == CODE_BYTES


# ---------------------------------------------------------------- the machine that a run was sent to


def test_a_machine_that_lacks_something_says_so_in_a_sentence(store, monkeypatch, tmp_path):
    run_id, here = store.create(fake.grpo(3)), platform.node()
    with pytest.raises(LabError, match=r"does not see the lab's folder .*: set RL_LAB_HOME to a folder that all"):
        node.wanted(run_id, here)
    made(run_folder(run_id))
    closed = []
    with monkeypatch.context() as patch:
        patch.setattr(Store, "dispose", lambda self: closed.append(self))
        assert node.wanted(run_id, here) and len(closed) == 1  # no connection as long as the run goes
    with pytest.raises(LabError, match=r"cannot use the store of far, an SQLite file: set RL_LAB_STORE to a Postgre"):
        node.wanted(run_id, "far")
    store.claim(run_id)
    assert not node.wanted(run_id, here)
    made(run_folder("deleted"))
    assert not node.wanted("deleted", here)
    monkeypatch.setenv("RL_LAB_STORE", f"sqlite:///{tmp_path}/no/such/lab.db")
    with pytest.raises(LabError, match=r"^The machine .* of the Ray cluster cannot use the lab's store: The store "):
        node.wanted(run_id, here)
    monkeypatch.setattr(node, "find_spec", lambda name: None if name == "torch" else importlib.util.find_spec(name))
    with pytest.raises(LabError, match=r"has no torch: install .* requirements\.txt"):
        node.wanted(run_id, here)


def test_a_machine_needs_no_shared_folder_where_there_is_an_object_store(store, monkeypatch, tmp_path):
    run_id = store.create(fake.grpo(3))
    monkeypatch.setenv("RL_LAB_ARTIFACTS", f"file://{tmp_path}")
    assert node.wanted(run_id, platform.node()) and run_folder(run_id).is_dir()


@pytest.mark.parametrize(("url", "package"), [("s3://bucket/lab", "s3fs"), ("gs://bucket/lab", "gcsfs")])
def test_a_machine_without_the_client_of_the_object_store_names_its_package(store, monkeypatch, url, package):
    """Before its worker is started, which could only end with a code."""
    run_id = store.create(fake.grpo(3))
    monkeypatch.setenv("RL_LAB_ARTIFACTS", url)
    monkeypatch.setattr(object_store, "find_spec",
                        lambda name: None if name == package else importlib.util.find_spec(name))
    with pytest.raises(LabError, match=saying("machine", f"no {package}", "RL_LAB_ARTIFACTS", url,
                                              "requirements-cluster.txt", "resume the run")):
        node.wanted(run_id, platform.node())


# ---------------------------------------------------------------- the driver


def on_ray(monkeypatch, store, program: str) -> ray.OnRay:
    """With that program in place of the driver: `hear()` gives an order, `say(…)` tells what came of it."""
    helpers = ("import json, sys, time; hear = lambda: json.loads(sys.stdin.readline()); "
               "say = lambda **said: print(json.dumps(said), flush=True)\n")
    monkeypatch.setattr(ray, "DRIVER", (sys.executable, "-c", helpers + program))
    return ray.OnRay(store)


def ends(executor, count: int = 1) -> list[Ended]:
    """The next ends."""
    found = []
    until(lambda: (found.extend(executor.ended()), len(found) >= count)[1])
    return found


def test_what_the_driver_says_reaches_the_supervisor(store, monkeypatch):
    executor = on_ray(monkeypatch, store, """
say(connected=True); order = hear(); run = order.pop("run"); say(run=run, waiting=json.dumps(order))
say(run=run, began=[77, "far"]); say(run=run, ended={"code": -9}); say(run=hear()["run"], ended={"fault": "No."})
sys.stdin.read()""")
    first, second = store.create(fake.grpo(3)), store.create(fake.grpo(3))
    executor.start(first)
    [end] = ends(executor)
    assert end.run_id == first and end.owner == (77, "far") and "killed by signal 9" in end.why and end.fault
    assert executor.waiting() == {first: "starting on far"} and executor.waiting() == {}
    executor.start(second)
    assert ends(executor) == [Ended(second, None, "", "No.")] and len(executor.watched()) == 1
    executor.cut()
    until(lambda: list(executor.ended()) == executor.watched())


def test_a_dead_driver_is_replaced_and_no_run_is_tried_for_ever(store, monkeypatch):
    executor = on_ray(monkeypatch, store, 'say(connected=True); run = hear()["run"]; hear(); '
                                          'say(run=run, began=[77, "far"])')
    began, waited = store.create(fake.grpo(3)), store.create(fake.grpo(3))
    executor.start(began)
    executor.start(waited)
    lost = ends(executor, 2)
    assert [(end.run_id, end.owner) for end in lost] == [(began, (77, "far")), (waited, None)]
    assert "connection to the Ray cluster was lost" in lost[0].why
    assert "ended with code 0" in lost[1].fault and executor.watched() == []  # it died too soon to try again

    monkeypatch.setattr(ray, "QUICK_SECONDS", 0)
    executor.start(began)
    executor.start(waited)
    assert [(end.run_id, end.fault) for end in ends(executor, 2)] == [(began, ""), (waited, "")]


def test_a_driver_that_cannot_reach_the_cluster_says_so_of_every_run(store, monkeypatch):
    executor = on_ray(monkeypatch, store, 'say(waiting="The cluster is down."); hear(); hear()\n'
                                          'say(waiting="Still."); time.sleep(60)')
    runs = [store.create(fake.grpo(3)) for _ in range(2)]
    for run_id in runs:
        executor.start(run_id)
    news: dict[str, str] = {}
    until(lambda: (list(executor.ended()), news.update(executor.waiting()), "Still." in news.values())[2])
    assert set(news) == set(runs)
    executor.cut()  # nothing of a run has begun: there is nobody to wait for
    assert {end.run_id for end in ends(executor, 2)} == set(runs)


# ---------------------------------------------------------------- the carrier

CARRIED = """
import importlib.util, json, sys
path, root, run_id = sys.argv[1:]
spec = importlib.util.spec_from_file_location("carrier", path)
carrier = importlib.util.module_from_spec(spec)
spec.loader.exec_module(carrier)
print(json.dumps(carrier.Carrier(run_id, [], root, {}, "far").start()))
"""


@pytest.mark.parametrize("root, says", [("/nowhere", "has no lab that works (No module named 'labcore'): install its"),
                                        (str(ROOT), "has no lab that works (No module named 'sqlalchemy'): install")])
def test_a_machine_without_the_lab_or_its_packages_says_so(root, says):
    """The carrier comes to a machine before anybody knows what is there: here a Python without packages."""
    path = ROOT / "labcore" / "workers" / "executors" / "carrier.py"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", CARRIED, str(path), root, "a"], capture_output=True,
                          text=True, timeout=60)
    assert says in json.loads(done.stdout)["ended"]["fault"], done.stderr


@pytest.mark.parametrize(("artifacts", "home"), [("file:///mnt/lab", "of the machine"), ("", "of the lab")])
def test_a_machine_keeps_a_home_of_its_own_where_files_go_through_an_object_store(monkeypatch, artifacts, home):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(os, "environ", {"RL_LAB_HOME": "of the machine"})
    of_the_lab = {"RL_LAB_HOME": "of the lab", "RL_LAB_ARTIFACTS": artifacts}
    Carrier("a-run", (), "the code", of_the_lab, "the lab")
    assert os.environ["RL_LAB_HOME"] == home
