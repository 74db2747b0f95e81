"""Statistics over seeds: numbers by hand, slow twins, and honesty about few seeds."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import bootstrap

from labcore.analysis.compare import statistics
from labcore.analysis.compare.statistics import Mean


def slow_wins(a, b):
    """P(A > B), pair by pair."""
    total = 0.0
    for x in a:
        for y in b:
            total += 1 if x > y else 0.5 if x == y else 0
    return total / (len(a) * len(b))


def exact_band(values):
    """The percentile interval over all S^S equally likely draws: what the bootstrap estimates."""
    means = sorted(float(np.mean(drawn)) for drawn in product(values, repeat=len(values)))
    return tuple(np.quantile(means, (0.025, 0.975), method="inverted_cdf"))


def test_one_seed_has_no_band():
    assert statistics.mean([0.4]) == Mean(0.4, None, None, 1)
    middle, low, high = statistics.band([[1, 2]])
    assert middle.tolist() == [1, 2] and low is None and high is None
    with pytest.raises(ValueError, match="at least one"):
        statistics.mean([])


def test_a_band_by_hand():
    # Seeds 0, 0 and 3: a draw's mean is 0 with 8/27 and 3 with 1/27, so that the middle 95 % reaches from 0 to 3.
    assert statistics.mean([0.0, 0.0, 3.0]) == Mean(1.0, 0.0, 3.0, 3)
    assert statistics.mean([0.0, 1.0]) == Mean(0.5, None, None, 2), "two seeds are no interval"
    assert statistics.mean([3.0, 3.0, 3.0]) == Mean(3.0, 3.0, 3.0, 3)


@pytest.mark.parametrize("values", [[1, 2, 4], [0.1, 0.5, 0.6, 0.9], [0, 0, 0, 0, 1]])
def test_a_band_near_the_exact_one(values):
    got = statistics.mean(values)
    low, high = exact_band(values)
    spread = max(values) - min(values)
    assert got.mean == pytest.approx(np.mean(values))
    assert got.low == pytest.approx(low, abs=0.06 * spread) and got.high == pytest.approx(high, abs=0.06 * spread)


def test_a_band_is_the_same_every_time_and_narrows_with_seeds():
    values = np.random.default_rng(0).normal(size=(40, 7))
    first, again = statistics.band(values), statistics.band(values)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    few = statistics.band(values[:5])
    assert np.mean(few[2] - few[1]) > 1.5 * np.mean(first[2] - first[1])
    # normal theory: half width 1.96/√40 = 0.31
    assert np.mean(first[2] - first[1]) / 2 == pytest.approx(1.96 * values.std(0).mean() / 40**0.5, rel=0.1)


def test_a_band_ends_where_the_first_seed_ends():
    middle, low, high = statistics.band([[1, 1, 1], [3, 3, np.nan], [2, 2, 2]])
    assert middle[:2].tolist() == [2, 2] and np.isnan([middle[2], low[2], high[2]]).all()


def test_p_better_by_hand():
    assert statistics.p_better([3, 4], [1, 2]) == 1 and statistics.p_better([1], [2]) == 0
    assert statistics.p_better([1, 1], [1, 1]) == 0.5
    assert statistics.p_better([1, 2, 3], [2]) == 0.5  # one loss, one tie, one win
    assert statistics.p_better([5, 1], [2, 3, 5]) == pytest.approx(2.5 / 6)


def test_duels_like_their_slow_twins():
    rng = np.random.default_rng(3)
    for _ in range(8):
        a, b = rng.integers(0, 5, rng.integers(3, 7)), rng.integers(1, 6, rng.integers(3, 6))
        got = statistics.comparison(a, b)
        assert got.p == pytest.approx(slow_wins(a, b))
        assert got.low <= got.p <= got.high


def test_verdicts():
    assert statistics.comparison([4, 5, 6], [1, 2, 3]).verdict == "A"
    assert statistics.comparison([1, 2, 3], [4, 5, 6]).verdict == "B"
    assert statistics.comparison([1, 5, 9], [2, 4, 8]).verdict == "tie"
    assert statistics.comparison([1, 2, 3], [1, 2, 3]).verdict == "tie"
    near = statistics.comparison([1, 2, 3], [1, 2, 3])
    assert near.p == 0.5 and near.low < 0.5 < near.high


def test_lower_is_better():
    worse = statistics.comparison([4, 5, 6], [1, 2, 3], better="lower")
    assert worse.p == 0 and worse.verdict == "B"


def test_few_seeds_are_no_evidence():
    two, one = statistics.comparison([3, 4], [1, 2]), statistics.comparison([3], [1])
    assert two.p == 1 and two.verdict == "none" and (two.low, two.high) == (None, None)
    assert two.mirrored.verdict == "none" == statistics.comparison([3, 4, 5, 6], [1, 2]).verdict
    assert one.p == 1 and one.verdict == "none" and one.low is None and one.high is None and one.p_value == 1


def test_a_coin_seldom_wins():
    """Of groups drawn alike, one in twenty is told apart."""
    rng = np.random.default_rng(5)
    told = [statistics.comparison(rng.normal(size=5), rng.normal(size=5)).verdict != "tie" for _ in range(200)]
    assert np.mean(told) < 0.09


def test_a_verdict_is_what_the_interval_of_the_difference_says():
    """Two seeds of three lie far above all of the other side, yet luck can explain the means."""
    got, verdict = statistics.difference([4.1, 9, 9], [4, 4, 4.1]), statistics.comparison([4.1, 9, 9], [4, 4, 4.1])
    assert verdict.p > 0.9 and got.low < 0 < got.high and verdict.verdict == "tie" and verdict.p_value > 0.05
    got, verdict = statistics.difference([4, 5, 6], [1, 2, 3]), statistics.comparison([4, 5, 6], [1, 2, 3])
    assert got.mean == 3 and got.low > 0 and got.count == 3 and verdict.verdict == "A" and verdict.p_value < 0.05
    assert statistics.difference([1.0], [4, 5]) == Mean(-3.5, None, None, 1)


@pytest.mark.parametrize("count", [3, 5, 6, 9])
def test_a_band_is_scipy_s(count):
    values = np.random.default_rng(count).normal(size=(count, 7))
    values[:, 2] = 1.0
    theirs = bootstrap((values,), np.mean, n_resamples=statistics.RESAMPLES, method="percentile", vectorized=True,
                       rng=np.random.default_rng(0)).confidence_interval
    _, low, high = statistics.band(values)
    np.testing.assert_allclose([low, high], [theirs.low, theirs.high], atol=1e-12)
