"""Which knobs of a run are worth a word; `tests/workers/test_training_controls.py` has the controls."""

import pytest

from labcore.runs.spec.run_spec import make
from labcore.runs.steering import unusual


@pytest.mark.parametrize("knobs, told", [
    ({"alpha": 0.1, "pace": 0.0}, ["α 0.1"]), ({"pace": 5.0}, ["Pace 5"]), ({}, [])])
def test_what_is_unusual_leaves_out_the_pace_of_a_run_that_nobody_looks_at(knobs, told):
    assert unusual(make(kind="maze", algorithm_key="q_learning", task_key="cliff", knobs=knobs)) == told
