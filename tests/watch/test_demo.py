"""The small program that is watched: a real policy gradient, sent as a program of the user's would."""

import math
import random

import pytest

from labcore.runs.files import step_files
from labcore.runs.store.store import Store
from labcore.watch import demo
from labcore.workers.watcher import Watcher


def test_the_gradient_is_that_of_the_objective():
    """Against finite differences of Σ A log π, by the logits."""
    logits = {"a": 0.3, "b": -0.2, "c": 0.0}
    sampled = [("a", 0.5), ("b", -0.25), ("a", 0.5), ("c", -0.75)]

    def objective(of):
        chances = demo.softmax(of)
        return sum(advantage * math.log(chances[answer]) for answer, advantage in sampled) / len(sampled)

    slope = {key: (objective(logits | {key: value + 1e-6}) - objective(logits | {key: value - 1e-6})) / 2e-6
             for key, value in logits.items()}
    moved = dict(logits)
    norm = demo.climb(moved, sampled, 0.1)
    assert {key: (moved[key] - logits[key]) / 0.1 for key in logits} == pytest.approx(slope, abs=1e-6)
    assert norm == pytest.approx(math.sqrt(sum(each * each for each in slope.values())), abs=1e-6)


def test_it_learns_the_best_answers():
    rng = random.Random(3)
    policy = {prompt: dict.fromkeys(answers, 0.0) for prompt, answers in demo.BANDITS.items()}
    for _ in range(400):
        demo.learn(policy, {prompt: demo.softmax(of) for prompt, of in policy.items()}, demo.RATE, rng)
    for prompt, wins in demo.BANDITS.items():
        chances = demo.softmax(policy[prompt])
        assert sum(chances[answer] * wins[answer] for answer in wins) > 0.85 * max(wins.values())


def test_the_lab_shows_its_answers_and_the_change_of_its_learning_rate(lab_home):
    demo.main(steps=demo.LATE + 2, pause=0)
    store = Store()
    Watcher(store).look()
    run, = store.runs(kind="watch")
    assert (run.state, run.step, run.spec.tool, run.spec.algorithm) == (
        "finished", demo.LATE + 2, demo.TOOL, "reinforce")
    rows = store.steps_after(run.id)
    assert rows[0].metrics.keys() >= {"reward", "entropy", "grad_norm", "own/share of the best answer"}
    assert rows[-1].metrics["own/share of the best answer"] > rows[0].metrics["own/share of the best answer"]
    knobs = [event for event in store.events_after(run.id) if event.kind == "knob"]
    assert [(event.step, event.payload["text"]) for event in knobs] == [(demo.LATE, "η 0.6 → 0.2")]
    assert step_files.steps_of(run.id, "samples")
