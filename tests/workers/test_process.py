"""The supervisor's process: begun ahead, it is taken once, by the lab on the same store."""

import sys

import pytest

from labcore.runs.store.dialects import store_url
from labcore.workers import process

IDLE = (sys.executable, "-c", "import sys; sys.stdin.read()")


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    monkeypatch.setattr(process, "SUPERVISOR", IDLE)


@pytest.fixture
def ended():
    """ended(supervisor): close its orders, and wait for its end."""
    def end(supervisor) -> int:
        supervisor.stdin.close()
        return supervisor.wait(20)
    return end


def test_one_that_was_begun_ahead_is_taken_once(ended):
    process.begin()
    [ahead] = process._ahead
    first, second = (process.taken(IDLE, store_url()) for _ in range(2))
    assert first is ahead and second is not ahead
    assert [ended(each) for each in (first, second)] == [0, 0]


@pytest.mark.parametrize("command, url", [(IDLE, "sqlite:////elsewhere/lab.db"), ((*IDLE, "other"), None)])
def test_that_of_another_lab_ends(ended, command, url):
    process.begin()
    [ahead] = process._ahead
    taken = process.taken(command, url or store_url())
    assert taken is not ahead and ahead.wait(20) == 0
    ended(taken)


def test_one_that_died_is_replaced(ended):
    process.begin()
    [ahead] = process._ahead
    ahead.kill()
    ahead.wait(20)
    taken = process.taken(IDLE, store_url())
    assert taken is not ahead and taken.poll() is None
    ended(taken)


PRINTS = (sys.executable, "-c", "import os; print(os.environ['GLIBC_TUNABLES'], file=__import__('sys').stderr)")


@pytest.mark.parametrize("own, expected", [(None, "glibc.malloc.hugetlb=1"), ("glibc.malloc.check=1",) * 2],
                         ids=["nothing set", "the user's own"])
def test_the_heap_has_huge_pages_unless_the_user_has_set_up_glibc(own, expected, monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if own:
        monkeypatch.setenv("GLIBC_TUNABLES", own)
    before = process.log().read_text("utf-8") if process.log().exists() else ""
    assert process.started(PRINTS, None).wait(20) == 0
    assert process.log().read_text("utf-8").removeprefix(before).strip() == expected
