"""Episodes: the contract of an environment, its limits, and one sentence for each way in which it can be wrong."""

import copy
import math

import numpy as np
import pytest

from labcore.errors import LabError
from labcore.tasks.environment import Episode, Move, Step
from labcore.tasks.task import Problem, Score
from tests.environments import Plays


class Answers:
    """Answers every turn alike."""

    def __init__(self, *step, first="?"):
        self.answer, self.first = step, first

    def reset(self, row):
        return self.first

    def step(self, text):
        return self.answer


def play(*step, first="?", **changes):
    task = Plays(lambda: Answers(*step, first=first), **changes)
    return task.begin(Problem("?", "", columns={}))


def test_an_episode_is_a_text_with_its_turns():
    episode = Episode([Move("8", "higher", 0.25), Move("12", "correct", 0.75)], True)
    assert episode == "8 [higher] 12 [correct]" and episode.rewards == [0.25, 0.75]
    assert episode.score == Score(1.0, True)
    again = copy.deepcopy(episode)
    assert again == episode and again.moves == episode.moves and again.done
    assert not Episode(episode.moves, False).score.exact


def test_rounding_does_not_unsolve_an_episode():
    assert Episode([Move("a", "b", 0.1)] * 10, True).score.exact
    assert not Episode([Move("a", "b", 0.099)] * 10, True).score.exact


@pytest.mark.parametrize("step, words", [
    (Step("go on", math.nan, False), "The environment parrot returned nan as the reward of turn 1: return a finite"),
    (Step("go on", math.inf, False), "returned inf as the reward of turn 1"),
    (Step("go on", "1?", False), "returned '1\\?' as the reward of turn 1"),
    (Step(None, 0.0, False), "returned None as the observation from step in turn 1: return a text"),
    (Step("", 0.0, False), "returned an empty observation from step in turn 1, but the episode is not over"),
    (Step("go on", 0.0, "false"), "returned 'false' as done in turn 1: return True or False"),
    (Step("go on", 0.0, None), "returned None as done in turn 1: return True or False"),
])
def test_an_answer_that_is_none_is_named(step, words):
    with pytest.raises(LabError, match=words):
        play(*step).step("a")


def test_a_first_observation_is_a_text():
    with pytest.raises(LabError, match="returned 7 as the observation from reset: return a text"):
        play(first=7)
    with pytest.raises(LabError, match="parrot returned an empty observation from reset: return text for the model"):
        play(first="")


def test_an_empty_observation_may_end_an_episode():
    begun = play("", 1.0, True)
    begun.step("a")
    assert begun.episode.score.exact


def test_observations_have_a_longest_length():
    begun = play("x" * 50, 0.0, False, first="y" * 50, observation_length=20)
    assert begun.first == "y" * 20 and begun.step("a").observation == "x" * 20 and begun.cut == 2


def test_a_player_stops_at_the_turn_limit():
    task = Plays(lambda: Answers("go on", 0.0, False), max_turns=5)
    episode = task.played(Problem("?", "", columns={}), lambda observation: "a")
    assert len(episode.moves) == 5 and not episode.done


def test_a_text_is_scored_as_the_only_turn():
    task = Plays()
    [problem] = task.problems(1, np.random.default_rng(0))
    assert task.score(problem, "a").reward == pytest.approx(1 / 8 + 0.5 * (problem.prompt == "a"))
