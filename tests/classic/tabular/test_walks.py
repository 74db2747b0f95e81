"""The loop of tabular learners: what it asks, in which order, and what it yields."""

from itertools import islice

import numpy as np
import pytest

from labcore.classic.envs.maze_env import MazeEnv
from labcore.classic.tabular.walks import Episode, Step, episodes, sample, walk


class Script:
    """Takes the actions it is given and remembers what it saw."""

    def __init__(self, actions):
        self.actions, self.seen = iter(actions), []

    def begin(self):
        self.seen.append("begin")

    def choose(self, state, knobs, rng):
        return next(self.actions)

    def learn(self, step, knobs, rng):
        self.seen.append(step)


def test_steps_and_episodes():
    learner = Script([1, 1, 2, 0, 1, 2])  # right, right, down: the goal; up, right, down: the trap
    steps = list(islice(walk(MazeEnv(), learner, {}, np.random.default_rng(0)), 6))
    assert steps == [Step(0, 0, 1, 0.0, 1, False, False), Step(1, 1, 1, 0.0, 2, False, False),
                     Step(2, 2, 2, 10.0, 5, True, False), Step(0, 0, 0, 0.0, 0, False, False),
                     Step(1, 0, 1, 0.0, 1, False, False), Step(2, 1, 2, -10.0, 4, True, False)]
    assert learner.seen == ["begin", *steps[:3], "begin", *steps[3:]]
    assert [(episode.total, episode.path) for episode in episodes(steps)] == [
        (10.0, [0, 1, 2, 5]), (-10.0, [0, 0, 1, 4])]
    assert Episode().path == [] and list(episodes(steps[:2])) == []


def test_a_time_limit_begins_a_new_episode():
    steps = list(islice(walk(MazeEnv(max_steps=2), Script([0] * 4), {}, np.random.default_rng(0)), 4))
    assert [(step.time, step.terminated, step.truncated) for step in steps] == [
        (0, False, False), (1, False, True)] * 2


def test_samples_have_their_chances():
    rng = np.random.default_rng(0)
    counts = np.bincount([sample([0.1, 0.0, 0.6, 0.3, 0.0], rng) for _ in range(20_000)], minlength=5)
    assert counts / 20_000 == pytest.approx([0.1, 0, 0.6, 0.3, 0], abs=0.015)
    assert counts[1] == counts[4] == 0


def test_what_rounding_leaves_is_no_impossible_action():
    class Last:
        def random(self):
            return 1 - 1e-16
    assert sample([0.5, 0.5 - 1e-12, 0.0], Last()) == 1
