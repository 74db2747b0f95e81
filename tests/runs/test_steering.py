"""The timeline of a run's knobs, and which are worth a word; `tests/workers/test_controls.py` has the controls."""

from __future__ import annotations

import pytest

from labcore.runs.steering import Change, timeline, unusual
from labcore.spec.run_spec import make
from labcore.store.rows import Event


def test_a_change_made_after_a_resume_cancels_the_later_ones_of_that_knob():
    def event(number, knob, value, update):
        return Event(number, update, "knob", {"knob": knob, "to": value, "update": update, "between": 1}, 0.0)

    history = [event(1, "beta", 0.1, 3), event(2, "beta", 0.2, 60), event(3, "gamma", 0.9, 60),
               event(4, "beta", 0.5, 55)]
    assert timeline(history, 50) == [Change("beta", 0.5, (55, 1)), Change("gamma", 0.9, (60, 1))]
    assert timeline(history, 0)[0] == Change("beta", 0.1, (3, 1))


@pytest.mark.parametrize("knobs, told", [
    ({"alpha": 0.1, "pace": 0.0}, ["α 0.1"]), ({"pace": 5.0}, ["Pace 5"]), ({}, [])])
def test_what_is_unusual_leaves_out_the_pace_of_a_run_that_nobody_looks_at(knobs, told):
    assert unusual(make(kind="maze", algorithm_key="q_learning", task_key="cliff", knobs=knobs)) == told
