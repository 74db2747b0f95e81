"""Twenty questions: truthful answers, one guess, and a cost of turns that does not unsolve an episode."""

import numpy as np
import pytest

from labcore.tasks.twenty_questions import ANIMALS, PROPERTIES, Questions, TwentyQuestions

KNOBS = {"max_turns": 5, "turn_tokens": 9, "observation_length": 64, "question_cost": 0.1}


def test_questions_tell_every_animal_apart():
    told = set()
    for animal in ANIMALS:
        world = Questions()
        world.reset({"animal": animal, "cost": 0.1})
        told.add(tuple(world.step(f"{word}?").observation for word in PROPERTIES))
        assert world.step(f"{animal}!") == ("right", 1, True)
    assert len(told) == len(ANIMALS)


@pytest.mark.parametrize("text, step", [("fur?", ("yes", -0.1, False)), ("wet?", ("no", -0.1, False)),
                                        ("big?", ("?", -0.1, False)), ("", ("?", -0.1, False)),
                                        ("cow!", ("?", -0.1, False)), ("owl!", ("wrong", 0, True))])
def test_each_turn(text, step):
    world = Questions()
    world.reset({"animal": "fox", "cost": 0.1})
    assert world.step(text) == step


def test_a_solved_episode_stays_solved_whatever_its_questions_cost():
    task, rng = TwentyQuestions(KNOBS), np.random.default_rng(0)
    answers = [problem.answer for problem in task.problems(30, rng)]
    assert all(answer.score.exact for answer in answers) and min(answer.score.reward for answer in answers) < 0.8
