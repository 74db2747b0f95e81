"""The exact interval of a share."""

from math import comb

import pytest

from labcore.analysis.compare.statistics import interval


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
