"""The timeline of a run's knobs; `tests/workers/test_controls.py` has the controls of a run that goes."""

from __future__ import annotations

from labcore.runs.rows import Event
from labcore.runs.steering import Change, timeline


def test_a_change_made_after_a_resume_cancels_the_later_ones_of_that_knob():
    def event(number, knob, value, update):
        return Event(number, update, "knob", {"knob": knob, "to": value, "update": update, "between": 1}, 0.0)

    history = [event(1, "beta", 0.1, 3), event(2, "beta", 0.2, 60), event(3, "gamma", 0.9, 60),
               event(4, "beta", 0.5, 55)]
    assert timeline(history, 50) == [Change("beta", 0.5, (55, 1)), Change("gamma", 0.9, (60, 1))]
    assert timeline(history, 0)[0] == Change("beta", 0.1, (3, 1))
