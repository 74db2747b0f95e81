"""A worker gives way to the pages: within its session and, on Linux, among the sessions."""

import ctypes
import os
import signal
import threading
import time

import pytest

from labcore.workers import children
from labcore.workers.children import AUTOGROUP, CAN_FORK, NICENESS, TASKS, give_way, give_way_soon

NICEST = 19  # there is no lower priority

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="workers are not forked here")


def in_child(do) -> str:
    """What `do` says in a process with a session of its own."""
    reader, writer = os.pipe()
    if not (pid := os.fork()):
        os.setsid()
        try:
            os.write(writer, str(do()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader) as said:
        return said.read()


def test_the_process_is_nice():
    def given() -> int:
        give_way()
        return os.nice(0)

    assert int(in_child(given)) == min(os.nice(0) + NICENESS, NICEST)


@pytest.mark.skipif(not TASKS.exists(), reason="only Linux gives each thread a priority of its own")
def test_threads_that_were_begun_before_are_nice_as_well():
    def given() -> list[int]:
        over = threading.Event()
        threading.Thread(target=over.wait).start()
        give_way()
        found = [os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in TASKS.iterdir()]
        over.set()
        return found

    assert in_child(given) == str([min(os.nice(0) + NICENESS, NICEST)] * 2)


def test_the_first_of_its_processor_time_is_not_given_away(monkeypatch):
    monkeypatch.setattr(children, "FIRST_SECONDS", 0.05)

    def given() -> list[float]:
        give_way_soon()
        before = os.nice(0)
        begun = time.process_time()
        while os.nice(0) == before and time.process_time() - begun < 2.0:
            pass
        return [before, os.nice(0), time.process_time() - begun > 0.04]

    usual = os.nice(0)
    assert in_child(given) == str([usual, min(usual + NICENESS, NICEST), True])


def test_a_library_that_waits_for_the_system_is_not_interrupted():
    """Python's own calls try again; a call of the C library would fail. Older kernels signal the thread that waits."""
    def given() -> int:
        reader, writer = os.pipe()
        give_way_soon()

        def other() -> None:
            for step in (lambda: os.kill(os.getpid(), signal.SIGPROF), lambda: os.write(writer, b"x")):
                time.sleep(0.1)
                step()
        threading.Thread(target=other).start()
        return ctypes.CDLL(None).read(reader, ctypes.create_string_buffer(1), 1)

    assert in_child(given) == "1"


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this system does not share its cores between sessions")
def test_its_session_is_nice():
    def given() -> str:
        give_way()
        return AUTOGROUP.read_text()

    assert in_child(given).split()[-1] == str(NICENESS)


class Refusing:
    """A file of the kernel that takes no change, for as often as it is said."""

    def __init__(self, times: int, error: type[OSError]):
        self.left, self.error, self.written = times, error, ""

    def write_text(self, text: str) -> None:
        if self.left:
            self.left -= 1
            raise self.error
        self.written = text


@pytest.mark.parametrize(("refused", "written"), [(0, str(NICENESS)), (3, str(NICENESS)), (10**6, "")])
def test_a_change_that_is_refused_for_now_is_tried_again_for_a_while(monkeypatch, refused, written):
    file = Refusing(refused, BlockingIOError)
    monkeypatch.setattr(children, "AUTOGROUP", file)
    monkeypatch.setattr(children, "PAUSE", 0.0)
    monkeypatch.setattr(children.os, "nice", lambda _: os.getpriority(os.PRIO_PROCESS, 0))
    give_way()
    assert file.written == written


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_where_it_cannot_be_done_nothing_fails(monkeypatch, error):
    file = Refusing(1, error)
    monkeypatch.setattr(children, "AUTOGROUP", file)
    monkeypatch.setattr(children.os, "nice", lambda _: os.getpriority(os.PRIO_PROCESS, 0))
    give_way()
    assert (file.left, file.written) == (0, "")
