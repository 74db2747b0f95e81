"""The progress line of a run in the foreground: rewritten on a terminal, now and then a line in a log file."""

import sys

import pytest

from labcore.cli import terminal
from labcore.cli.terminal import ERASE, Progress
from labcore.runs.spec.session import Record
from labcore.runs.store.store import Store
from tests.runs import fake


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(terminal, "time", found := Clock())
    return found


def test_a_terminal_shows_what_a_long_step_does_in_one_line(capsys, monkeypatch, clock):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    store = Store()
    run_id = store.create(fake.grpo(10))
    line = Progress(store)
    line.within(run_id, 0, "loading the model")
    line.within(run_id, 1, "step 1: sampling 3 of 8 tokens")
    line.show(run_id, Record(1, 8, {"reward": 0.5}), 30.0)
    line.within(run_id, 2, "step 2: sampling 5 of 8 tokens, about 12 s left in this step")
    line.close()
    shown = capsys.readouterr().err.split(ERASE)
    assert [each.split("  ", 1)[1].rstrip("\n") for each in shown[1:]] == [
        "loading the model", "step 1: sampling 3 of 8 tokens", "1/10  reward 0.500  30.0 s/step  4 min 30 s left",
        "step 2: sampling 5 of 8 tokens, about 12 s left in this step  4 min 30 s left"]
    assert shown[-1].endswith("\n")
    line.show(run_id, Record(10, 80, {"reward": 0.5}), 300.0)
    assert capsys.readouterr().err.endswith("10/10  reward 0.500  30.0 s/step"), "the last step leaves no time"


def test_a_log_file_has_a_line_now_and_then_and_none_of_quick_steps(capsys, clock, store):
    run_id = store.create(fake.grpo(100))
    line = Progress(store)
    for second in range(40):  # a step a second, which tells once within it
        clock.now = 100.0 + second
        line.within(run_id, second + 1, f"step {second + 1}: sampling")
        line.show(run_id, Record(second + 1, 8, {"reward": 0.5}), float(second + 1))
    told = capsys.readouterr().err.splitlines()
    assert 5 <= len(told) <= 9 and not any("sampling" in each for each in told)
    for second in range(40, 100, 2):  # one that takes a minute
        clock.now = 100.0 + second
        line.within(run_id, 41, f"step 41: sampling {second} of 100 tokens")
    assert 4 <= len(capsys.readouterr().err.splitlines()) <= 6


def test_a_quiet_one_says_nothing(capsys, store):
    Progress(store, quiet=True).within(store.create(fake.grpo()), 1, "step 1: sampling")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("terminal_there", [True, False])
def test_what_the_engine_notes_on_a_step_has_a_line_of_its_own(terminal_there, capsys, monkeypatch, clock):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal_there)
    store = Store()
    line = Progress(store)
    run_id = store.create(fake.grpo(10))
    line.show(run_id, Record(1, 8, {"reward": 0.5}), 1.0)
    line.show(run_id, Record(2, 8, {"reward": 0.5}, notes=("The environment ended no episode.",)), 1.1)
    told = capsys.readouterr().err.replace(ERASE, "\n").splitlines()
    assert [each.split("  ", 1)[1] for each in told if "ended no episode" in each] == [
        "step 2: The environment ended no episode."]
