"""The entropy bonus follows a target: up below it, down and unpaid above it."""

from dataclasses import replace

import pytest

from labcore.llm.entropy_control import follow_entropy
from tests.llm.tools import records, session

UP = {"entropy_target": 20.0, "entropy_step": 0.25}  # no entropy reaches it


def test_below_the_target_it_rises_from_the_knob_step_by_step():
    run = records(session("grpo", steps=3, entropy_coef=0.1, **UP))
    assert [record.metrics["entropy_coefficient"] for record in run] == pytest.approx([0.1, 0.35, 0.6])


def test_above_the_target_nothing_is_paid_and_the_coefficient_falls():
    started = session("grpo", entropy_coef=0.3, entropy_target=0.5, entropy_step=0.1)
    assert follow_entropy(started, {"entropy": 0.9}) == {"entropy_coefficient": 0.3}
    assert started.in_force["entropy_coef"] == 0.0 and started.entropy_bonus == pytest.approx(0.2)
    assert follow_entropy(started, {"entropy": 0.1}) == {"entropy_coefficient": 0.0}
    assert started.in_force["entropy_coef"] == pytest.approx(0.3)
    assert follow_entropy(started, {}) == {"entropy_coefficient": pytest.approx(0.3)}  # nothing was measured
    assert started.in_force["entropy_coef"] == pytest.approx(0.3)


@pytest.mark.long
def test_it_keeps_the_entropy_higher():
    entropy = {}
    for target in (0.0, 20.0):
        started = session("grpo", steps=6, learning_rate=0.02, entropy_target=target, entropy_step=0.5, letters=True)
        entropy[target] = records(started)[-1].metrics["entropy"]
    assert entropy[20.0] > entropy[0.0] + 0.05


def test_without_a_target_the_knob_stays_and_another_value_begins_at_itself():
    plain = session("grpo", entropy_coef=0.2)
    assert "entropy_coefficient" not in records(plain)[0].metrics and plain.in_force["entropy_coef"] == 0.2
    started = session("grpo", entropy_coef=0.1, **UP)
    follow_entropy(started, {"entropy": 0.1})
    assert started.in_force["entropy_coef"] == pytest.approx(0.35)
    started.knobs["entropy_coef"] = 0.5
    assert started.in_force["entropy_coef"] == 0.5
    forked = started.fork(replace(started.spec, knobs=started.spec.knobs | {"entropy_coef": 0.1}))
    assert forked.in_force["entropy_coef"] == pytest.approx(0.35)
