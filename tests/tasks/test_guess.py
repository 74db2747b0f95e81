"""Guess a number: hints, what is no number, and a player whose episodes SFT learns."""

import numpy as np
import pytest

from labcore.tasks.guess import Guess, NumberGame

KNOBS = {"largest": 7, "max_turns": 3, "turn_tokens": 3, "observation_length": 64}


def test_hints():
    game = NumberGame()
    assert game.reset({"secret": 5, "highest": 7}) == "1-7?"
    assert [game.step(text) for text in ("3", "6", "5")] == [("higher", 0, False), ("lower", 0, False),
                                                             ("correct", 1, True)]


@pytest.mark.parametrize("text", ["", "8", "0", "-1", "5 ", "five", "٥", "²", "9" * 5000])
def test_what_is_no_number_from_the_range_gets_no_hint(text):
    game = NumberGame()
    game.reset({"secret": 5, "highest": 7})
    assert game.step(text) == ("no number", 0, False)


def test_halving_finds_every_number():
    for secret in range(1, 8):
        game, low, high = NumberGame(), 1, 7
        game.reset({"secret": secret, "highest": 7})
        for _ in range(3):
            middle = (low + high) // 2
            answer = game.step(str(middle))
            if answer.done:
                break
            low, high = (middle + 1, high) if answer.observation == "higher" else (low, middle - 1)
        assert answer == ("correct", 1, True)


def test_the_simple_player_knows_the_rules_and_leaves_something_to_learn():
    task, rng = Guess(KNOBS), np.random.default_rng(0)
    problems = task.problems(200, rng)
    assert all(problem.answer.score.exact for problem in problems)
    episodes = [task.played(problem, task.player(rng)) for problem in problems]
    assert all(move.observation != "no number" for episode in episodes for move in episode.moves)
    assert 3 / 7 < np.mean([episode.score.exact for episode in episodes]) < 0.75
    assert {problem.columns["secret"] for problem in problems} == set(range(1, 8))
