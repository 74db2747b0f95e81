"""Small problems: their rewards by hand, and labels that are as sure as the rewards differ."""

import math

import numpy as np
import pytest

from labcore.tasks.enumerable import FreeLength, OneWinner, Sorted, TwoModes, count
from labcore.tasks.task import Problem

KNOBS = {"vocabulary": 3, "prompt_count": 3, "max_new_tokens": 3}


@pytest.mark.parametrize("made, prompt, rewards", [
    (Sorted, "b", {"bbb": 1, "bbc": 1, "ab": 1 / 3, "ba": 1 / 3, "": 0, "abc": 2 / 3}),
    (OneWinner, "b", {"cab": 1, "ca": 0, "bca": 0}),
    (FreeLength, "c", {"c": 1, "cc": 0, "": 0, "a": 0}),
    (TwoModes, "c", {"ccc": 1, "aaa": 0.9, "cc": 0, "bbb": 0})])
def test_rewards_by_hand(made, prompt, rewards):
    task = made(KNOBS)
    assert {text: task.score(Problem(prompt, ""), text).reward for text in rewards} == pytest.approx(rewards)
    right = task.problem(prompt)
    assert task.score(right, right.answer).exact and right.prompt == prompt


def test_pairs_are_random_completions_with_labels_of_bradley_and_terry():
    task = OneWinner(KNOBS | {"vocabulary": 2, "max_new_tokens": 1, "prompt_count": 1})
    pairs = task.pairs(6000, np.random.default_rng(0))
    ended = [pair for pair in pairs if not pair.chosen_truncated]
    assert all(pair.chosen == "" for pair in ended) and {pair.chosen for pair in pairs} == {"", "a", "b"}
    assert abs(sum(pair.chosen == "" for pair in pairs) / 6000 - 1 / 3) < 0.06
    decided = [pair.chosen for pair in pairs if {pair.chosen, pair.rejected} == {"a", "b"}]
    share = sum(text == "b" for text in decided) / len(decided)
    assert abs(share - 1 / (1 + math.exp(-1))) < 4 * math.sqrt(0.2 / len(decided))


def test_the_count_is_that_of_words():
    assert count(6, 5) == 9331 and count(1, 4) == 5
