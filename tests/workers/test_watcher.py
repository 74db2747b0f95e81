"""The process that reads what programs send: started when something comes, killed, closed, taken up again."""

import os
import shutil
import signal
import sys
import time
from contextlib import suppress

import psutil

from labcore.errors import LabError
from labcore.runs.store.store import Store
from labcore.watch import Watch
from labcore.watch.converting import spool
from labcore.workers import watcher
from labcore.workers.watcher import Watcher, Watching
from tests.watch.tools import begin, notes, numbers, rows, write
from tests.workers.tools import until


def reader() -> psutil.Process | None:
    """The watcher that this process has started."""
    for each in psutil.Process().children():
        with suppress(psutil.ZombieProcess):
            if "labcore.workers.watcher" in each.cmdline():
                return each
    return None


def newest(store: Store) -> int:
    return max((run.step for run in store.runs(kind="watch")), default=0)


def test_a_lab_reads_all_lines_although_it_is_killed_and_closed(store, monkeypatch):
    """Every step is there once, in one run: through a watcher that is killed and a lab that closes and opens again."""
    monkeypatch.setattr(watcher, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(watcher, "LOOK_SECONDS", 0.2)
    watching = Watching(store)
    try:
        run = Watch("mine", run_id="mine")
        for step in range(1, 51):
            run.log(step, {"loss": float(step)})
        until(lambda: newest(store) >= 49)
        process = reader()
        assert process and store.runs(kind="watch")[0].state == "running"
        process.send_signal(signal.SIGKILL)
        for step in range(51, 101):
            run.log(step, {"loss": float(step)})
        until(lambda: newest(store) >= 99)
        assert reader().pid != process.pid
    finally:
        watching.close()
    row, = store.runs()
    assert row.state == "interrupted" and row.message == watcher.CLOSED and reader() is None
    for step in range(101, 151):
        run.log(step, {"loss": float(step)})
    watching = Watching(store)
    try:
        until(lambda: newest(store) >= 149)
        run.finish()
        until(lambda: store.run(row.id).state == "finished")
        until(lambda: reader() is None)  # nothing is left to watch
    finally:
        watching.close()
    assert rows(store, row.id) == {step: {"loss": float(step)} for step in range(1, 151)}
    assert [each.id for each in store.runs()] == [row.id] and notes(store, row.id) == []


def test_one_watcher_reads_a_home(store):
    spool.root().mkdir(parents=True)
    write("r", numbers(1, loss=1.0), {"kind": "end"})
    with watcher.lock():
        watcher.main()
    assert store.runs() == []


def test_a_run_without_heartbeats_is_interrupted_and_continues_later(store, monkeypatch):
    monkeypatch.setattr(watcher, "SETTLED_SECONDS", -1.0)
    monkeypatch.setattr(watcher, "SILENT_SECONDS", 0.05)
    path = write("r", begin(), numbers(1, loss=1.0))
    with path.open("ab") as file:
        file.write(b'{"kind": "numbers", "st')
    watched = Watcher(store)
    watched.look()
    row, = store.runs()
    assert row.state == "running"
    time.sleep(0.06)
    watched.look()
    row = store.run(row.id)
    assert row.state == "interrupted" and "sent nothing for" in row.message and "line was incomplete" in row.message
    monkeypatch.setattr(watcher, "SILENT_SECONDS", 60.0)
    write("r", b"", numbers(2, loss=1.0), end="\n")  # the end of the cut line makes it a bad line
    for _ in range(watcher.LOOKS):
        watched.look()
    assert store.run(row.id).state == "running" and [*rows(store, row.id)] == [1, 2]
    assert "not JSON" in notes(store, row.id)[0]


def test_a_store_that_fails_only_delays_reading(store, monkeypatch, capsys):
    monkeypatch.setattr(watcher, "SETTLED_SECONDS", -1.0)
    write("r", *(numbers(step, loss=1.0) for step in (1, 2)))
    watched, real, full = Watcher(store), store.taking, [True]

    def failing(name):
        if full:
            raise LabError("The disk is full.")
        return real(name)

    monkeypatch.setattr(store, "taking", failing)
    for _ in range(3):
        watched.look()
    assert capsys.readouterr().err.count("disk is full") == 1 and store.runs() == []  # it is said once
    assert watched.going  # the process stays
    full.clear()
    watched.look()
    assert newest(store) == 2


def test_a_run_whose_folder_was_deleted_ends(store, monkeypatch):
    monkeypatch.setattr(watcher, "SETTLED_SECONDS", -1.0)
    write("r", begin(), numbers(1, loss=1.0))
    watched = Watcher(store)
    watched.look()
    shutil.rmtree(spool.folder_of("r"))
    watched.look()  # notices
    monkeypatch.setattr(watcher, "SILENT_SECONDS", -1.0)
    watched.look()
    row, = store.runs()
    assert row.state == "interrupted" and not watched.going
    write("r", numbers(2, loss=1.0))
    for _ in range(watcher.LOOKS):
        watched.look()
    assert [*rows(store, row.id)] == [1, 2]


def test_stray_files_do_not_keep_runs_from_being_read(store, monkeypatch, capsys):
    monkeypatch.setattr(watcher, "SETTLED_SECONDS", -1.0)
    write("r", numbers(1, loss=1.0), numbers(2, loss=1.0))
    Watcher(store).look()
    shutil.move(spool.folder_of("r"), spool.folder_of("z"))
    spool.folder_of("r").write_text("a file where the folder of a known run was")
    spool.folder_of("a").write_text("a file")
    spool.folder_of("b").mkdir()
    (spool.folder_of("b") / spool.SPOOL).write_text("a file")
    Watcher(store).look()
    assert len(store.runs()) == 2 and capsys.readouterr().err == ""


def test_no_watcher_starts_in_a_home_that_another_lab_watches(store, monkeypatch):
    monkeypatch.setattr(watcher, "POLL_SECONDS", 0.02)
    started = []
    monkeypatch.setattr(watcher.subprocess, "Popen", lambda *_, **__: started.append(1))
    spool.root().mkdir(parents=True)
    with watcher.lock():
        watching = Watching(store)
        for step in range(5):
            write("r", numbers(step, loss=1.0))
            os.utime(spool.root())
            time.sleep(0.05)
        watching.close()
    assert started == []


def test_a_watcher_that_fails_at_once_is_not_restarted_for_every_line(store, monkeypatch):
    monkeypatch.setattr(watcher, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(watcher, "COMMAND", (sys.executable, "-c", "raise SystemExit(1)"))
    real, started = watcher.subprocess.Popen, []
    monkeypatch.setattr(watcher.subprocess, "Popen", lambda *given, **how: started.append(1) or real(*given, **how))
    watching = Watching(store)
    for step in range(10):
        write("r", numbers(step, loss=1.0))
        os.utime(spool.root())
        time.sleep(0.05)
    watching.close()
    assert len(started) == 1


def test_the_newest_step_waits_briefly_for_more_metrics(store):
    write("r", numbers(1, loss=1.0), numbers(2, loss=1.0))
    watched = Watcher(store)
    watched.look()
    assert newest(store) == 1 and watched.waits
    write("r", numbers(2, reward=3.0))
    folder = watched._folders["r"]
    watched.look()
    folder.noticed = -1e9
    folder.sign = watcher._sign(folder.path)
    watched.look()
    row, = store.runs()
    assert rows(store, row.id)[2] == {"loss": 1.0, "reward": 3.0} and not watched.waits
