"""The status line while a step takes long."""

import re
from dataclasses import replace

import pytest

from app.training.feed import Feed
from app.training.status_line import line, progress, to_come
from labcore.runs.spec.run_spec import make
from labcore.runs.store.rows import Control, Step
from tests.app.seeding import seed


def told(*parts, **more) -> str:
    return re.sub(r"<[^>]+>", "", line(*parts, **more))


def running(lab, message, steps=0, **changed):
    run = replace(lab.store.run(seed(lab.store, "running")), message=message, **changed)
    feed = Feed(run.spec)
    feed.take([Step(step, 8 * step, 0, 15.0 * step, {"reward": 0.5, "updates": step}) for step in range(1, steps + 1)],
              [])
    return run, feed


def test_what_a_step_is_doing_stands_beside_the_steps_that_are_done(lab):
    run, feed = running(lab, "step 3: sampling 37 of 256 tokens, about 9 s left in this step", steps=2)
    said = told(run, feed)
    assert f"step 2 of {run.spec.steps} · step 3: sampling 37 of 256 tokens, about 9 s left in this step" in said
    assert "rl-one-row" in line(run, feed), "what is below stays where it is"


def test_the_first_step_and_what_comes_before_it(lab):
    run, feed = running(lab, "step 1: sampling 37 of 256 tokens")
    assert told(run, feed).startswith("Running step 1: sampling 37 of 256 tokens")
    assert told(replace(run, state="starting", message="loading the model"), feed).startswith(
        "Starting loading the model")


@pytest.mark.parametrize("state, message", [
    ("stopped", "The run was stopped during step 5, so that step was discarded: resume the run from step 4."),
    ("interrupted", "The run was stopped with the lab at step 4: resume it.")])
def test_a_run_that_can_be_resumed_says_so_once(lab, state, message):
    run, feed = running(lab, message, steps=2, state=state)
    assert told(run, feed).lower().count("resume") == 1
    assert "Resume continues" in told(replace(run, message=""), feed)


def test_a_pause_that_acts_within_the_step_is_not_said_to_come_after_it(lab):
    run, feed = running(lab, "step 3: sampling 37 of 256 tokens", steps=2, asked="pause")
    assert "after this step" not in told(run, feed) and told(run, feed).startswith("Pausing ")
    assert "after this step" in told(replace(run, message=""), feed)


def test_one_step_is_enough_to_say_how_long_the_run_takes(lab):
    run, feed = running(lab, "", steps=1)
    left = 15 * (run.spec.steps - 1)
    assert progress(run, feed)[-1].startswith("at most ") and str(left // 60) in progress(run, feed)[-1]


def test_knobs_that_were_moved_say_when_they_take_effect(lab):
    run = replace(lab.store.run(seed(lab.store, "running")), spec=make(algorithm_key="grpo", task_key="sort"))
    asked = [Control(1, "set", {"knob": "learning_rate", "value": 0.001}), Control(2, "pause", {}),
             Control(3, "set", {"knob": "group_size", "value": 4})]
    first, second = to_come(run, asked)
    assert first.endswith("0.001 takes effect at the next update") and second == "G 4 takes effect with the next batch"
