"""What the doctor says as a run goes: when a finding begins, how long it lasts, what its event holds."""

import random

import pytest

from labcore.analysis.doctor.doctor import CLOSES, EVERY, Doctor, course, holding, payload, said
from labcore.analysis.doctor.finding import Finding, few_seeds
from labcore.analysis.doctor.run_view import BLOCK, RECENT, Series
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import EVENTS, Event
from tests.analysis.doctor.tools import ONE, STUCK, Row, drops, found, spec_of, steps, well


def test_a_verdict_does_not_flicker_and_ends_when_it_has_clearly_passed():
    def row(at: int) -> Row:
        near = 0.55 if at % 20 < 10 else 0.45  # to and fro across the limit of 0.5
        return well(at) | {"frac_reward_zero_std": near if at <= 100 else 0.1}

    said_of = [(change.step, change.finding is not None) for change in course(spec_of(), steps(row, 160))[1]
               if change.rule == "zero_variance"]
    assert [begins for _, begins in said_of] == [True, False]
    assert said_of[1][0] >= 100 + CLOSES * EVERY


@pytest.mark.parametrize(("changed", "until", "passes"), [
    ({}, 100, False), ({"group_size": 16}, 100, False), ({"learning_rate": 0.004}, 100, False), ({}, 180, True),
    ({"learning_rate": 0.001}, 100, True), ({"updates_per_batch": 2}, 100, True)])
def test_too_big_steps_hold_for_long_unless_they_are_made_smaller(changed, until, passes):
    knobs = {"learning_rate": 0.003, "updates_per_batch": 4, "beta": 0.0}
    doctor = Doctor(spec_of(**knobs))
    for at in range(1, until + 1):  # one leap, and a policy that then stays where it was thrown
        after = {"frac_reward_zero_std": 0.8, "entropy": 0.01} if at >= 60 else {"entropy": 1.0}
        doctor.take(at, well(at) | STUCK | {"kl": 0.5 if at < 52 else 2.0, **after},
                    spec_of(**knobs | (changed if at > 80 else {})).knobs)
    rules = [each.rule for each in doctor.findings]
    assert rules[not passes:] == ["kl_runaway", "entropy_collapse", "zero_variance"]
    assert passes or rules[0] == "step_too_big"


def test_too_big_steps_come_before_the_signal_that_they_cost():
    def row(at: int) -> Row:
        return well(at) | STUCK | ({"kl": 0.1} if at < 52 else {"kl": 2.0, "reward": 0.0, "exact_match": 0.0,
                                                                "reward_std": 0.0, "frac_reward_zero_std": 1.0})

    rules = [each.rule for each in course(spec_of(), steps(row, 100))[0].findings]
    assert rules[:2] == ["reward_fell", "step_too_big"] and "no_signal" in rules


def test_a_reward_that_falls_is_seen_at_the_next_look_with_the_knob_that_was_turned():
    def fallen(turned: dict[int, dict]) -> Finding:
        doctor, knobs, changes = Doctor(spec_of()), dict(spec_of().knobs), []
        for at in range(1, 56):
            knobs |= turned.get(at, {})  # in place, as a session does
            changes += doctor.take(at, well(at) | {"reward": 0.9 if at < 53 else 0.1}, knobs)
        [change] = [change for change in changes if change.rule == "reward_fell"]
        assert change.step == 55
        return change.finding

    found = fallen({20: {"beta": 0.1}, 50: {"group_size": 16}, 51: {"learning_rate": 0.007}})
    assert found.evidence == "0.9 → 0.1, from step 53 on, after η 0.0007 → 0.007 at step 51"
    assert (found.knob, found.value, found.began) == ("learning_rate", 0.0007, 51)
    assert Finding.of(found.payload) == found and Finding.of({"began": 0} | found.payload) == found
    turned_back = fallen({51: {"learning_rate": 0.007}, 54: {"learning_rate": 0.001}})
    assert turned_back.began == 51 and turned_back.value == 0.0007
    assert fallen({54: {"beta": 0.1}}).began == 54, "a noisy row may have come before"
    by_itself = fallen({20: {"learning_rate": 0.001}})  # long before
    assert "after" not in by_itself.evidence
    assert (by_itself.knob, by_itself.value, by_itself.began) == ("learning_rate", 0.00033, 53)


def test_a_finding_of_an_older_store_has_no_step_at_which_it_began():
    finding = found(spec_of(), drops("kl", 0.02, 1.2, 55))["step_too_big"]
    old = {key: value for key, value in finding.payload.items() if key != "began"}
    assert Finding.of(old) == finding and finding.began == 0


def test_the_jitter_of_a_series_is_its_noise_without_its_jumps_and_its_trend():
    numbers, series = random.Random(0), Series()
    for at in range(40):
        series.add(at, numbers.gauss(0.01 * at - (5 if at > 30 else 0), 0.1))
    assert 0.05 < series.jitter < 0.2 and Series().jitter == 0.0
    assert series.below_since(-2) == 31 and series.below_since(9) == 0


def test_a_slow_fall_names_the_step_of_the_best_and_blames_no_knob():
    doctor, knobs = Doctor(spec_of()), dict(spec_of().knobs)
    for at in range(1, 311):
        knobs |= {"beta": 0.1} if at == 258 else {}
        doctor.take(at, well(at) | {"reward": 0.8 - 0.001 * max(0, at - 100)}, knobs)
    [finding] = [each for each in doctor.findings if each.rule == "reward_fell"]
    assert finding.evidence.endswith("from about step 200 on") and finding.began == 200


def test_too_big_steps_pass_where_the_run_came_through():
    def row(at: int) -> Row:
        return well(at) | {"kl": 0.5 if at < 52 else 2.0} | ({"reward": 1.0, "exact_match": 1.0} if at > 70 else STUCK)

    assert "step_too_big" in [each.rule for each in course(spec_of(), steps(row, 70))[0].findings]
    assert "step_too_big" not in [each.rule for each in course(spec_of(), steps(row, 150))[0].findings]


def test_too_big_steps_of_another_tool_pass_by_what_they_show():
    assert "step_too_big" not in found(None, drops("kl", 0.02, 1.2, 20), 100)


def test_one_update_per_batch_is_no_finding_where_it_is_the_default():
    """Of pretrained weights it is: the lab itself chose it, and no clip was asked for."""
    found = []
    for knobs in ({}, {"clip_low": 0.1}):
        doctor = Doctor(make(algorithm_key="grpo", task_key="sort", model="org/model", knobs=knobs))
        for at in range(1, 31):
            doctor.take(at, well(at), doctor._knobs)
        found.append("clip_cannot_act" in {each.rule for each in doctor.findings})
    assert found == [False, True], "who moves the clip is told that it has no effect"


def test_the_knobs_are_those_in_use():
    doctor = Doctor(spec_of(**ONE))
    for at in range(1, 31):
        doctor.take(at, well(at), spec_of(**ONE).knobs)
    assert {each.rule for each in doctor.findings} == {"precision_mismatch", "clip_cannot_act"}
    for at in range(31, 61):
        doctor.take(at, well(at), spec_of(updates_per_batch=2).knobs)
    assert doctor.findings == [] and doctor.step == 60
    assert doctor.take(60, well(60)) == []  # a step is taken once


def test_events_hold_what_was_said_and_give_it_back():
    def row(at: int) -> Row:
        return well(at) | {"kl": 2.0 if at < 40 else 0.01}

    changes = course(spec_of(), steps(row, 100))[1]
    events = [Event(place, change.step, "doctor", payload(change), 0.0) for place, change in enumerate(changes)]
    assert all(set(event.payload) <= set(EVENTS["doctor"]) for event in events)
    assert said(events) == changes and len(changes) == 2 and changes[1].finding is None
    [(since, finding)] = holding(events, 39)
    assert since == changes[0].step and finding == changes[0].finding
    assert holding(events, since - 1) == holding(events) == []
    assert events[1].payload["text"] == "passed: kl runaway"


def test_few_seeds():
    one = few_seeds({"GRPO": 3, "PPO": 1}, 3)
    assert (one.verdict, one.evidence, one.rule) == ("One seed is not enough to compare", "PPO has 1 seed", "one_seed")
    assert few_seeds({"GRPO": 2}, 3).verdict == "Too few seeds to compare"
    assert few_seeds({"GRPO": 3, "PPO": 4}, 3) is None


def test_a_series_keeps_what_is_recent_and_means_of_the_rest():
    series = Series()
    for at in range(1, 101):
        series.add(at, float(at))
    assert (series.count, len(series.recent), len(series.blocks)) == (100, RECENT, 100 // BLOCK)
    assert series.start == 5.5 and series.mean() == 95.5 and series.mean(5, before=10) == 88.0
    assert series.median(3) == 99 and series.steps(5) == (96, 100)
    assert series.peak() == (100, 95.5) and series.at(25) == 15.5 and series.at(3) == 5.5
    assert Series().mean() == Series().median() == Series().start == 0.0
