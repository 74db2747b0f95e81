"""The rule from seeds to a verdict: intervals by hand and beside scipy, their coverage, and regions."""

from math import inf

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_ind

from labcore.analysis.estimate import Estimate, contrast, estimate, level_of, p_value, seeds_needed, within

APART = {"A": (1.0, 2.0, 3.0), "B": (10.0, 14.0, 18.0)}


def test_welch_s_interval_by_hand():
    """Of equal spreads and sizes ν = 2 (n − 1) = 4, and t(4; 97.5 %) = 2.776."""
    found, reach = estimate({"A": [1, 2, 3], "B": [4, 5, 6]}, {"A": 1.0, "B": -1.0}), 2.776 * (1 / 3 + 1 / 3) ** 0.5
    assert (found.mean, found.low, found.high) == pytest.approx((-3, -3 - reach, -3 + reach), abs=1e-3)
    assert found.seeds == 3


def test_student_s_interval_by_hand():
    """1, 2, 6 has mean 3, s² = 7, and t(2; 97.5 %) = 4.303."""
    found = estimate({"A": [1, 2, 6]}, {"A": 1.0})
    reach = 4.303 * (7 / 3) ** 0.5
    assert (found.mean, found.low, found.high) == pytest.approx((3, 3 - reach, 3 + reach), abs=1e-3)


@pytest.mark.parametrize("sizes", [(3, 3), (3, 8), (12, 5)])
@pytest.mark.parametrize("level", [0.95, 0.99])
def test_it_is_scipy_s(sizes, level):
    rng = np.random.default_rng(sum(sizes))
    a, b = rng.normal(1.0, 2.0, sizes[0]), rng.normal(0.0, 0.3, sizes[1])
    test = ttest_ind(a, b, equal_var=False)
    found = estimate({"A": a, "B": b}, {"A": 1.0, "B": -1.0}, level)
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval(level)), rel=1e-9)
    assert p_value(a, b) == pytest.approx(test.pvalue, rel=1e-9)
    alone = estimate({"A": a}, {"A": 1.0}, level)
    assert (alone.low, alone.high) == pytest.approx(tuple(ttest_1samp(a, 0).confidence_interval(level)), rel=1e-9)


def test_weights_scale_the_interval_and_equal_seeds_have_none():
    one, twice = estimate(APART, {"B": 1.0}), estimate(APART, {"B": 2.0})
    assert twice.high - twice.low == pytest.approx(2 * (one.high - one.low))
    assert estimate({"A": (4.0, 4.0, 4.0)}, {"A": 1.0}) == Estimate(4.0, 4.0, 4.0, 3)
    assert estimate({"A": (4.0,)}, {"A": 1.0}) == Estimate(4.0, None, None, 1)
    assert p_value(np.ones(3), np.zeros(3)) == 0 and p_value(np.ones(3), np.ones(3)) == 1 == p_value(
        np.ones(1), np.zeros(3))


def test_each_place_of_curves_is_an_estimate_of_its_own():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 5)), rng.normal(size=(4, 5))
    a[:, 3], b[:, 3], b[0, 4] = 2.0, 1.0, np.nan
    middle, low, high = contrast([a, b], [1.0, -1.0])
    for place in range(4):
        one = estimate({"A": a[:, place], "B": b[:, place]}, {"A": 1.0, "B": -1.0})
        assert (middle[place], low[place], high[place]) == pytest.approx((one.mean, one.low, one.high))
    assert (low[3], high[3]) == (1, 1) and np.isnan([middle[4], low[4], high[4]]).all()
    assert contrast([a, b[:1]], [1.0, -1.0])[1] is None


@pytest.mark.parametrize("seeds", [3, 5])
def test_the_interval_covers_a_true_difference_as_often_as_it_says(seeds):
    rng = np.random.default_rng(0)
    a, b = rng.normal(1.0, 1.0, (seeds, 4000)), rng.normal(0.0, 0.3, (seeds, 4000))
    _, low, high = contrast([a, b], [1.0, -1.0])
    assert np.mean((low <= 1.0) & (high >= 1.0)) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("low, high, region, expected", [
    (0.01, 0.04, (-inf, 0.05), True), (0.01, 0.05, (-inf, 0.05), None), (0.05, 0.09, (-inf, 0.05), False),
    (3.6, 4.4, (3.5, 4.5), True), (2.0, 5.0, (3.5, 4.5), None), (0.0, 0.0, (0.0, inf), False)])
def test_the_interval_decides_against_the_region(low, high, region, expected):
    assert within(Estimate((low + high) / 2, low, high, 3), *region) is expected


def test_two_seeds_decide_nothing():
    assert within(Estimate(1.0, 0.9, 1.1, 2), 0.0, inf) is None
    assert within(Estimate(1.0, None, None, 1), 0.0, inf) is None


def test_deciding_contrasts_share_the_error():
    assert level_of(1) == pytest.approx(0.95) and level_of(5) == pytest.approx(0.99)


def test_the_seeds_that_decide_by_simulation():
    """As many as are named decide in about four of five repetitions, and half as many in far fewer."""
    rng, gap, spread = np.random.default_rng(0), 0.5, 0.6
    reach = 2.7764 * spread * np.sqrt(2 / 3)  # t(4; 97.5 %)
    seeds = seeds_needed(Estimate(gap, gap - reach, gap + reach, 3), 0.0, inf, settings=2)

    def decided(count: int) -> float:
        found = [estimate({"A": gap + spread * rng.normal(size=count), "B": spread * rng.normal(size=count)},
                          {"A": 1.0, "B": -1.0}) for _ in range(400)]
        return np.mean([within(each, 0.0, inf) is True for each in found])

    assert seeds is not None and decided(seeds) == pytest.approx(0.8, abs=0.07) and decided(seeds // 2) < 0.6


def test_what_no_number_of_seeds_decides():
    assert seeds_needed(Estimate(0.0, -1.0, 1.0, 3), 0.0, inf, settings=2) is None
    assert seeds_needed(Estimate(1.0, None, None, 2), 0.0, inf, settings=2) == 3
