"""Shares of a variance by their degrees of freedom: numbers worked by hand, and pure noise by enumeration."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from labcore.analysis.compare.statistics import error_of, noise, omega_squared, sums

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
    assert few < 0.02 and many < 0.06  # not 0: what is below is cut off


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
