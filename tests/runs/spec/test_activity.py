"""What a computation reports, who hears it, and that it costs next to nothing."""

import threading
import time

import pytest

from labcore.runs.spec import activity
from labcore.runs.spec.activity import listening, part_of, report


@pytest.fixture
def heard():
    """A list of all that is reported within the test, as people read it."""
    found: list[str] = []
    with listening(lambda *said: found.append(str(activity.now(*said)))):
        yield found


def test_a_report_is_part_of_what_it_is_within(heard):
    report("loading the model")
    with part_of("update 1 of 2"):
        report("{} of {} prompts", 3, 1024)
        with part_of("surrogate line"):
            report("point {} of {}", 2, 12)
    report("sampling {} of {} tokens", 37, 256)
    assert heard == ["loading the model", "update 1 of 2, 3 of 1,024 prompts",
                     "update 1 of 2, surrogate line, point 2 of 12", "sampling 37 of 256 tokens"]


def test_what_raises_leaves_nothing_behind(heard):
    with pytest.raises(ZeroDivisionError), part_of("update 1 of 2"):
        raise ZeroDivisionError
    report("after it")
    assert heard == ["after it"]


def test_a_listener_hears_its_own_thread_and_only_while_it_listens(heard):
    thread = threading.Thread(target=report, args=("of another thread",))
    thread.start()
    thread.join()
    with listening(None):
        report("to nobody")
    report("to the first again")
    assert heard == ["to the first again"]


def test_reports_are_passed_on_seldom(monkeypatch):
    heard = []
    seldom = activity.Throttled(lambda _words, done, _total: heard.append(done), 0.0)
    with listening(seldom):
        for done in range(1000):
            report("{} of {}", done, 1000)
        monkeypatch.setattr(seldom, "_next", 0.0)
        report("{} of {}", 1000, 1000)
    assert heard == [0, 1000]
    with listening(activity.Throttled(lambda *_: heard.append(-1), 60.0)):
        report("{} of {}", 1, 2)
    assert -1 not in heard


def test_a_report_costs_microseconds():
    """A step of the smallest model takes tens of milliseconds and makes some hundred reports."""
    many = 10_000
    with listening(activity.Throttled(lambda *_: None, 60.0)):
        begun = time.thread_time()
        for done in range(many):
            report("{} of {}", done, many)
    assert (time.thread_time() - begun) / many < 10e-6
