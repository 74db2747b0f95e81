"""How fast this machine makes steps."""

from __future__ import annotations

import platform
from dataclasses import replace

from labcore.jobs import pace
from labcore.spec.run_spec import make

MAZE = make(kind="maze", algorithm_key="q_learning", task_key="corridors", knobs={"pace": 0.0})


def test_a_setting_is_measured_in_the_time_that_it_may_take():
    job = pace.asked([MAZE, replace(MAZE, seed=3, steps=7)])
    assert len(job["specs"]) == 1 and job["seconds"] <= 3 and job["host"] == platform.node()
    assert job["made"]["code"], "other code is measured anew"
    (found,) = pace.pace({**job, "seconds": 0.2})["paces"]
    assert 0 < found["step"] < 1 and found["once"] >= 0
    assert pace.pace({**job, "seconds": 0.0})["paces"] == [None], "no time is left"


def test_coefficients_of_a_loss_cost_nothing_and_larger_batches_do():
    def setting(**knobs):
        return pace.setting(make(algorithm_key="grpo", task_key="sort", knobs=knobs))

    assert setting() == setting(beta=0.3, learning_rate=1e-4)
    assert setting() != setting(group_size=16) and setting() != setting(updates_per_batch=1)
    assert setting() != setting(top_entropy_share=0.2), "which tokens these are takes a pass of its own"
