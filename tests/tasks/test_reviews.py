"""Film reviews: a grammar that keeps itself, a gold score by hand, and labels that are as noisy as they say."""

import math

import numpy as np
import pytest

from labcore.tasks.reviews import BLAME, PRAISE, Reviews, fluency, gold, preference, review, sentiment
from labcore.tasks.task import PairTask, Problem


def task(temperature=0.1):
    return Reviews({"label_temperature": temperature})


def test_what_the_grammar_makes_is_fluent_and_short():
    rng = np.random.default_rng(0)
    made = [review(rng) for _ in range(500)]
    assert all(fluency(each) == 1 for each in made) and max(map(len, made)) < 40
    assert len(set(made)) > 200
    good = sum(sentiment(each) > 0.5 for each in made)
    assert 180 < good < 320, "neither praise nor blame has the upper hand"


@pytest.mark.parametrize("text, praise, allowed, steps", [
    ("good", 1, 2, 2), ("very good and warm", 2, 5, 5), ("good but cold", 0, 4, 4), ("dull", -1, 2, 2),
    ("good good", 2, 2, 3), ("very very fun", 1, 3, 4), ("good and", 1, 2, 3), ("grarm", 0, 0, 2), ("", 0, 0, 2),
    ("good  fun", 2, 2, 4), (" good", 1, 1, 3), ("good fun warm great", 4, 2, 5)])
def test_the_gold_score_by_hand(text, praise, allowed, steps):
    assert sentiment(text) == pytest.approx(1 / (1 + math.exp(-praise)))
    assert fluency(text) == pytest.approx(allowed / steps)
    assert gold(text) == pytest.approx(sentiment(text) * (allowed / steps) ** 2)
    score = task().score(Problem("the film was ", "dull"), text)
    assert score.reward == gold(text) and score.exact == (allowed == steps)


def test_praise_in_a_row_is_what_a_proxy_may_love_and_gold_does_not():
    assert sentiment(" ".join(PRAISE)) > sentiment("good and warm") and gold(" ".join(PRAISE)) < gold("good and warm")
    assert gold(BLAME[0]) < gold(PRAISE[0])


def test_pairs_are_two_reviews_of_one_prompt():
    made = task()
    assert isinstance(made, PairTask)
    pairs = made.pairs(50, np.random.default_rng(1))
    assert pairs == made.pairs(50, np.random.default_rng(1)) != made.pairs(50, np.random.default_rng(2))
    for pair in pairs:
        assert pair.chosen != pair.rejected and fluency(pair.chosen) == fluency(pair.rejected) == 1
        assert set(pair.prompt + pair.chosen + pair.rejected) <= set(made.characters)


def test_without_noise_the_better_one_is_chosen():
    assert all(gold(pair.chosen) >= gold(pair.rejected) for pair in task(0).pairs(300, np.random.default_rng(0)))


@pytest.mark.parametrize("temperature", [0.1, pytest.param(0.5, marks=pytest.mark.long)])
def test_labels_are_wrong_as_often_as_bradley_and_terry_say(temperature):
    pairs = task(temperature).pairs(2000, np.random.default_rng(3))
    gaps = np.array([gold(pair.chosen) - gold(pair.rejected) for pair in pairs])
    wrong = 1 / (1 + np.exp(np.abs(gaps) / temperature))
    seen = (gaps < 0) + (gaps == 0) / 2
    assert abs(seen.mean() - wrong.mean()) < 4 * (wrong * (1 - wrong)).mean() ** 0.5 / 2000 ** 0.5


def test_the_probability_of_a_choice_by_hand():
    assert preference(0.1, 0.1) == pytest.approx(1 / (1 + math.exp(-1)))
    assert preference(0.3, 0.2) + preference(-0.3, 0.2) == pytest.approx(1)
    assert preference(1, 1e-9) == 1 and preference(-1, 1e-9) == 0, "no overflow"
