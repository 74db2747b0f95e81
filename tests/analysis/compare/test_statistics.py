"""Statistics over seeds, the exact interval of a share, and shares of a variance: by hand and by enumeration."""

from itertools import permutations, product
from math import comb

import numpy as np
import pytest
from scipy.stats import bootstrap

from labcore.analysis.compare import statistics
from labcore.analysis.compare.statistics import Mean, error_of, interval, noise, omega_squared, sums


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


def tail(low: int, high: int, count: int, p: float) -> float:
    return sum(comb(count, k) * p ** k * (1 - p) ** (count - k) for k in range(low, high + 1))


@pytest.mark.parametrize("right, count", [(1, 2), (3, 7), (8, 10), (30, 64), (64, 64), (0, 5), (500, 1000)])
def test_at_its_ends_the_found_count_is_as_rare_as_it_may_be(right, count):
    low, high = interval(right, count)
    assert low == 0 if right == 0 else tail(right, count, count, low) == pytest.approx(0.025, rel=1e-6)
    assert high == 1 if right == count else tail(0, right, count, high) == pytest.approx(0.025, rel=1e-6)
    assert low <= right / count <= high


def test_numbers_from_the_tables():
    """R: binom.test(9, 10)$conf.int; binom.test(0, 20)."""
    assert interval(9, 10) == pytest.approx((0.5549839, 0.9974714), abs=1e-6)
    assert interval(0, 20) == pytest.approx((0.0, 0.1684335), abs=1e-6)
    mirrored = interval(1, 10)
    assert (1 - mirrored[1], 1 - mirrored[0]) == pytest.approx(interval(9, 10))


def test_what_is_no_share():
    with pytest.raises(ValueError):
        interval(3, 2)


NOISE = (0.1, 0.5, 0.4, 0.9, 0.2, 0.7)  # six runs of which no knob explains anything


def in_parts(values, size: int):
    return [values[at:at + size] for at in range(0, len(values), size)]


def test_sums_of_squares_and_their_degrees_of_freedom():
    found = sums([[1, 3], [2, 4], [2]])  # the mean of all is 2.4
    assert (found.total, found.of_total) == (pytest.approx(1.96 + 0.36 + 0.16 + 2.56 + 0.16), 4)
    assert (found.within, found.of_within) == (pytest.approx(4.0), 2)
    assert (found.between, found.of_between) == (pytest.approx(1.2), 2)


@pytest.mark.parametrize("size", [2, 3])
def test_pure_noise_is_all_between_seeds_and_no_knob_explains_it(size):
    """However six numbers are dealt out to settings of two or three seeds: on average over all ways the share of seeds
    is 1, where SSW / SST is (N - k) / (N - 1), 60 or 80 %; and SSB is what its degrees of freedom give it."""
    ways = [in_parts(way, size) for way in permutations(NOISE)]
    settings = len(NOISE) // size
    assert np.mean([noise(way) for way in ways]) == pytest.approx(1)
    plain = np.mean([sums(way).within / sums(way).total for way in ways])
    assert plain == pytest.approx((6 - settings) / 5)
    explained = [found.between - found.of_between * error_of(found, []) for found in map(sums, ways)]
    assert np.mean(explained) == pytest.approx(0, abs=1e-12)


def test_a_knob_of_many_values_looks_no_stronger_than_one_of_few():
    """Two seeds of each of 32 settings, of which none matters: η² grows with the values, ω² does not."""
    shares, plain = [], []
    for seed in range(400):
        runs = np.random.default_rng(seed).normal(size=64)
        settings = sums(runs.reshape(32, 2).tolist())
        factors = [sums(runs.reshape(values, 64 // values).tolist()) for values in (2, 16)]
        shares.append([omega_squared(factor, error_of(settings, factors)) for factor in factors])
        plain.append([factor.between / factor.total for factor in factors])
    few, many = np.mean(shares, 0)
    assert np.mean(plain, 0) == pytest.approx([1 / 63, 15 / 63], abs=0.01)
    assert few < 0.02 and many < 0.06  # above 0, since negative estimates count as 0


def test_without_seeds_what_the_knobs_leave_counts_as_noise():
    """A 2 x 3 grid of one seed: y = a + b, and 0.6 more in one cell. Worked by hand."""
    y = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.6]])  # mean 2.6, rows 1 and 4.2, columns 1.5, 2.5, 3.8
    rows, columns = sums(y.tolist()), sums(y.T.tolist())
    assert [rows.between, columns.between, rows.total] == pytest.approx([15.36, 5.32, 20.8])
    error = error_of(sums([[value] for value in y.ravel()]), [rows, columns])
    assert error == pytest.approx((20.8 - 15.36 - 5.32) / (5 - 1 - 2))
    assert omega_squared(columns, error) == pytest.approx((5.32 - 2 * 0.06) / (20.8 + 0.06))
    assert error_of(sums([[1.0], [2.0]]), [sums([[1.0], [2.0]])]) is None


def test_what_does_not_differ_is_explained_by_nothing():
    assert noise([[1, 1], [1, 1]]) == 0 and omega_squared(sums([[1, 1], [1, 1]]), 0.0) == 0
    assert noise([[1], [2]]) is None and noise([]) is None
