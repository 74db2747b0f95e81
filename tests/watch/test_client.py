"""The client: it never waits, never raises, and needs nothing of the lab; what it sends survives what it can survive.
"""

import ast
import errno
import json
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from labcore.runs.files.paths import home
from labcore.watch import Watch
from labcore.watch import client as module
from tests.imports import ROOT, graph, imported
from tests.watch.tools import notes, read, rows


@pytest.fixture
def said():
    """What the trainer's log has of it."""
    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    found: list[str] = []
    handler = Kept()
    logging.getLogger("labcore.watch").addHandler(handler)
    yield found
    logging.getLogger("labcore.watch").removeHandler(handler)


def lines(run: Watch) -> list[dict]:
    """What is on the disk of a run."""
    return [json.loads(line) for path in sorted((home() / "watched" / run.id / "spool").iterdir())
            for line in path.read_text().splitlines()]


PROGRAM = """
import os, sys, time
sys.path.insert(0, {folder!r})
from watch import Watch
run = Watch("child", home={home!r}, tool="loop", run_id="child")
for step in range(1, 10**6):
    run.log(step, {{"loss": 1.0 / step}})
    if step == 200:
        run._queue.join if False else time.sleep(0.3)
        print("ready", flush=True)
    {each}
"""


def program(tmp_path, each: str = "time.sleep(0.001)", **env: str) -> subprocess.Popen[str]:
    """A trainer in an environment that has one file of the lab only."""
    (tmp_path / "watch.py").write_text((ROOT / "labcore" / "watch" / "client.py").read_text())
    code = PROGRAM.format(folder=str(tmp_path), home=str(home()), each=each)
    return subprocess.Popen([sys.executable, "-I", "-c", code], stdout=subprocess.PIPE, text=True,
                            env={"PATH": os.environ["PATH"], **env})


def test_one_file_of_the_standard_library():
    tree = ast.parse((ROOT / "labcore" / "watch" / "client.py").read_text())
    names = {each.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    names |= {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert names <= sys.stdlib_module_names and "json" in names
    assert ast.parse((ROOT / "labcore" / "watch" / "client.py").read_text(), feature_version=(3, 9))


def test_what_runs_inside_a_trainer_imports_nothing_else_of_the_lab():
    """Its environment may lack whatever the lab needs."""
    needed = graph("labcore/watch")
    inside = {name for name in needed if name == "labcore.watch" or name.startswith(
        ("labcore.watch.client", "labcore.watch.demo", "labcore.watch.sb3", "labcore.watch.trl"))}
    assert len(inside) == 8 and {other for name in inside for other in needed[name]} <= inside
    files = [next(path for path in (ROOT / f"{place}.py", ROOT / place / "__init__.py") if path.is_file())
             for place in (name.replace(".", "/") for name in inside)]
    assert not [name for file in files for name in imported(file.read_text("utf-8"), "labcore.watch")
                if name.startswith(("labcore", "app")) and not name.startswith("labcore.watch")]


def test_everything_that_a_trainer_sends_is_in_the_store(store):
    with Watch("mine", tool="my loop", config={"beta": 0.1, "nested": {"a": [1]}, "object": object()}) as run:
        run.log(1, {"loss": np.float32(0.5), "reward": math.nan}, tokens=10, seconds=3.0)
        run.rollouts(1, prompts=["p", "q"], completions=["a", "b", "c", "d"], rewards={"right": np.array([1, 0, 1, 0])},
                     advantages=[0.5, -0.5, math.inf, 0.0], tokens=[["a"]] * 4, logprobs=[[-0.123456789]] * 4,
                     sampler_logprobs=[[math.nan]] * 4)
        run.config({"beta": 0.2})
        run.event(1, "a sentence")
        run.log(2, {"loss": 0.25})
    line = next(line for line in lines(run) if line["kind"] == "rollouts")
    row, = read(store)
    assert (row.state, row.spec.tool, row.spec.knobs["beta"]) == ("finished", "my loop", 0.1)
    assert rows(store, row.id) == {1: {"loss": 0.5}, 2: {"loss": 0.25}} and "a sentence" in notes(store, row.id)
    assert store.steps_after(row.id)[0].tokens == 10
    assert [group["prompt"] for group in line["groups"]] == ["p", "q"] and line["of"] == 4
    assert line["groups"][1]["completions"][0] == {"text": "c", "advantages": "Infinity", "tokens": ["a"],
                                                   "logprobs": [-0.12346], "sampler_logprobs": ["NaN"],
                                                   "rewards": {"right": 1}}


@pytest.mark.parametrize("prompts, group, groups", [
    (["p"] * 2 + ["q"] * 2, None, [2, 2]), (["p", "q"], None, [2, 2]), (["p"], None, [4]), ([], 2, [2, 2]),
    ([], None, [1] * 4), (["p"] * 4, 2, [2, 2])])
def test_completions_are_grouped_by_their_prompts(store, prompts, group, groups):
    with Watch("mine") as run:
        run.rollouts(1, prompts=prompts, completions=["a", "b", "c", "d"], group=group)
    line, = [line for line in lines(run) if line["kind"] == "rollouts"]
    assert [len(each["completions"]) for each in line["groups"]] == groups


BAD_CALLS = {
    "no mapping": lambda run: run.log(1, 3),
    "no completions": lambda run: run.rollouts(1),
    "another length": lambda run: run.rollouts(1, completions=["a", "b"], advantages=[1.0]),
    "a group of none": lambda run: run.rollouts(1, completions=["a", "b"], group=-1),
    "columns of numbers": lambda run: run.rollouts(1, completions=["a"], advantages=3),
    "rewards of one number": lambda run: run.rollouts(1, completions=["a"], rewards=1.0),
    "a line too long": lambda run: run.event(1, "x" * (module.LINE_BYTES + 1)),
    "rewards of another type": lambda run: run.rollouts(1, completions=3),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_an_invalid_call_never_raises_and_is_reported_once(store, said, case):
    run = Watch("mine")
    for _ in range(2):
        BAD_CALLS[case](run)
    run.log(7, {"loss": 1.0})
    run.finish()
    row, = read(store)
    assert len(said) == 1 and sum(said[0][-40:] in note for note in notes(store, row.id)) == 1, said
    assert 7 in rows(store, row.id)


def test_calls_after_the_end_are_reported(store, said):
    run = Watch("mine")
    run.finish("exploded")
    run.log(1, {"loss": 1.0})
    run.finish("failed")
    row, = read(store)
    assert row.state == "stopped" and len(said) == 2 and "has ended" in said[1]


def test_a_home_that_cannot_be_written_costs_the_trainer_nothing(tmp_path, said):
    (tmp_path / "file").write_text("")
    run = Watch("mine", home=str(tmp_path / "file"))
    run.log(1, {"loss": 1.0})
    run.finish()
    assert not run.active and "not sent to the lab" in said[0]


@pytest.mark.parametrize("bad", ["../x", "/etc", "a/b", "", ".", "a" * 101, "ü"])
def test_no_name_becomes_a_path(tmp_path, bad):
    run = Watch("../../x", home=str(tmp_path), run_id=bad)
    run.finish()
    found = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_dir()]
    assert run.active == (bad == "") and all("x" in name for name in found if name.count("/") == 1)
    assert not (tmp_path.parent / "x").exists()


def test_a_queue_that_is_full_drops_completions_first_and_says_how_many(store, monkeypatch):
    monkeypatch.setattr(module, "QUEUED", 50)
    real, slow = module._Files.write, [True]
    monkeypatch.setattr(module._Files, "write", lambda self, text, kind: (
        time.sleep(0.3 if slow.pop() else 0) if slow else None, real(self, text, kind)))
    run = Watch("mine")
    slow.append(True)
    begun = time.perf_counter()
    for step in range(1, 101):
        run.log(step, {"loss": 1.0})
        if step <= 20:
            run.rollouts(step, completions=["a"])
    assert time.perf_counter() - begun < 0.25, "a call does not wait"
    run.finish()
    dropped = next(line for line in lines(run) if line["kind"] == "dropped")["counts"]
    kept = [line["kind"] for line in lines(run)]
    assert kept.count("numbers") + dropped["numbers"] == 100 and kept.count("rollouts") + dropped["rollouts"] == 20
    assert kept.count("rollouts") <= module.PICTURES + 1
    row, = read(store)
    assert any("dropped" in note for note in notes(store, row.id))


def test_a_process_that_waits_loses_nothing_and_can_continue_its_run(store, monkeypatch):
    monkeypatch.setattr(module, "QUEUED", 5)
    for start in (1, 151):
        run = Watch("mine", run_id="mine")
        for step in range(start, start + 150):
            run.log(step, {"loss": 1.0})
            assert step % 4 or run.flush()
        run.close()
        assert not run.flush()
    assert sum(line["kind"] == "numbers" for line in lines(run)) == 300
    row, = read(store)
    assert row.state == "running" and [*rows(store, row.id)] == [*range(1, 301)]


def test_files_that_nobody_reads_are_bounded_and_numbers_are_kept_longest(store, monkeypatch):
    monkeypatch.setattr(module, "SPOOL_BYTES", 20_000)
    monkeypatch.setattr(module, "SEGMENT_BYTES", 2_000)
    monkeypatch.setattr(module._Files, "_share", lambda self: sum(
        path.stat().st_size for path in self.spool.iterdir()) / module.SPOOL_BYTES)
    with Watch("mine") as run:
        for step in range(1, 400):
            run.rollouts(step, completions=["x" * 50])
            run.log(step, {"loss": 1.0})
            assert run.flush()
    spool = home() / "watched" / run.id / "spool"
    assert sum(path.stat().st_size for path in spool.iterdir()) < 25_000 and len([*spool.iterdir()]) > 5
    last = {kind: max(line["step"] for line in lines(run) if line["kind"] == kind) for kind in ("numbers", "rollouts")}
    assert last["numbers"] > last["rollouts"]
    row, = read(store)
    assert row.state == "finished" and any("size limit" in note for note in notes(store, row.id))
    assert len([*spool.iterdir()]) == 1, "files that were read are deleted"


def test_a_heartbeat_that_fails_stops_nothing(store, monkeypatch):
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)
    run, failed = Watch("mine"), threading.Event()

    def failing(files):
        monkeypatch.undo()
        failed.set()
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(module._Files, "beat", failing)
    assert failed.wait(5)
    run.log(1, {"loss": 1.0})
    assert run.flush(5)
    run.finish()


@pytest.mark.skipif(os.name != "posix", reason="no limit of a file's size here")
def test_on_a_full_disk_every_line_is_whole_or_counted(store):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    run = Watch("mine")
    run.log(1, {"loss": 1.0})
    assert run.flush()
    path, = (home() / "watched" / run.id / "spool").iterdir()
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 200, before[1]))
    try:
        for step in range(2, 21):
            run.log(step, {"loss": 1.0})
        assert run.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    run.log(21, {"loss": 1.0})
    run.finish()
    found = lines(run)
    steps = [line["step"] for line in found if line["kind"] == "numbers"]
    dropped, = (line for line in found if line["kind"] == "dropped" and "numbers" in line["counts"])
    assert 1 < len(steps) < 20 and steps[-1] == 21 and len(steps) + dropped["counts"]["numbers"] == 21
    row, = read(store)
    assert row.state == "finished" and any("could not be written" in note for note in notes(store, row.id))


def test_a_run_whose_folder_was_deleted_continues_in_a_new_folder(store, monkeypatch):
    monkeypatch.setattr(module, "LOOK_SECONDS", -1.0)
    run = Watch("mine", tool="loop")
    run.log(1, {"loss": 1.0})
    assert run.flush()
    shutil.rmtree(home() / "watched")
    run.log(2, {"loss": 1.0})
    run.finish()
    row, = read(store)
    assert row.state == "finished" and row.spec.tool == "loop" and [*rows(store, row.id)] == [2]


def test_settings_that_nest_without_an_end_are_cut(store, said):
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    loop: dict[str, object] = {"learning_rate": 0.5}
    loop["itself"] = loop
    Watch("mine", config={"learning_rate": 0.5, "deep": deep}).finish()
    Watch("mine", config=loop).finish()
    assert [run.spec.knobs["learning_rate"] for run in read(store)] == [0.5, 0.5] and said == []


@pytest.mark.parametrize("rank, sends", [("0", True), ("1", False)])
def test_of_a_distributed_run_one_process_sends(monkeypatch, rank, sends):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("LOCAL_RANK", "0")
    with Watch("mine") as run:
        run.log(1, {"loss": 1.0})
    assert (home() / "watched" / run.id).exists() == sends


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_sends_nothing_and_cannot_end_the_run(store):
    run = Watch("mine")
    run.log(1, {"loss": 1.0})
    pid = os.fork()
    if pid == 0:
        run.log(2, {"loss": 2.0})
        run.finish("failed")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    run.log(3, {"loss": 3.0})
    run.finish()
    row, = read(store)
    assert row.state == "finished" and [*rows(store, row.id)] == [1, 3]


def test_an_exception_in_the_trainer_ends_the_run(store):
    with pytest.raises(ValueError, match="no"), Watch("mine") as run:
        run.log(1, {"loss": 1.0})
        raise ValueError("no")
    row, = read(store)
    assert (row.state, row.message) == ("failed", "ValueError: no")


def test_a_process_that_exits_without_finish_has_written_everything(tmp_path, store):
    child = program(tmp_path, "if step == 500: sys.exit(0)")
    assert child.wait(20) == 0
    row, = read(store)
    assert len(rows(store, row.id)) == 500


def test_a_killed_process_loses_only_its_queue_and_the_run_shows_it(tmp_path, store, monkeypatch):
    from labcore.workers import watcher

    child = program(tmp_path)
    assert child.stdout and child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    reader = watcher.Watcher(store)
    reader.look()
    monkeypatch.setattr(watcher, "GONE_SECONDS", -1.0)
    reader.look()
    row, = store.runs(kind="watch")
    assert [*rows(store, row.id)][:200] == [*range(1, 201)] and row.state == "interrupted"
    assert "process exited" in row.message and "are lost" in row.message
    child = program(tmp_path, "if step == 2: break", )  # begins anew with the same id
    child.wait(20)
    reader.look()
    assert [each.spec.parent for each in store.runs(kind="watch")] in ([None], [(row.id, 0), None])
