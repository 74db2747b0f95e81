"""The rule from runs to a verdict: intervals by hand, coverage, and claims that agree, disagree or stay open."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from labcore.analysis.studies.verdict import Estimate, estimate, judged, level_of, t_quantile, together

APART = {"A": (1.0, 2.0, 3.0), "B": (10.0, 14.0, 18.0)}


@pytest.mark.parametrize("share, freedom, value", [  # Student's table
    (0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 4, 2.776), (0.995, 10, 3.169), (0.975, 200, 1.972), (0.5, 3, 0.0)])
def test_quantiles_of_student_s_t(share, freedom, value):
    assert t_quantile(share, freedom) == pytest.approx(value, abs=2e-3)


def test_welch_s_interval_by_hand():
    found = estimate(APART, {"A": 1.0, "B": -1.0})
    variance = 1 / 3 + 16 / 3
    freedom = variance ** 2 / ((1 / 3) ** 2 / 2 + (16 / 3) ** 2 / 2)
    reach = t_quantile(0.975, freedom) * variance ** 0.5
    assert found == Estimate(-12.0, pytest.approx(-12 - reach), pytest.approx(-12 + reach), 3)


def test_weights_scale_the_interval_and_equal_seeds_have_none():
    one, twice = estimate(APART, {"B": 1.0}), estimate(APART, {"B": 2.0})
    assert twice.high - twice.low == pytest.approx(2 * (one.high - one.low))
    assert estimate({"A": (4.0, 4.0, 4.0)}, {"A": 1.0}) == Estimate(4.0, 4.0, 4.0, 3)
    assert estimate({"A": (4.0,)}, {"A": 1.0}).low is None


def test_the_interval_covers_a_true_difference_as_often_as_it_says():
    rng, hits = np.random.default_rng(0), 0
    for _ in range(150):
        values = {"A": rng.normal(1.0, 1.0, 3), "B": rng.normal(0.0, 0.3, 3)}
        found = estimate(values, {"A": 1.0, "B": -1.0})
        hits += found.low <= 1.0 <= found.high
    assert 0.91 <= hits / 150 <= 0.99


def curves(level: float, spread: float) -> tuple[float, ...]:
    """What three learning curves end with, a seed each."""
    return tuple(level * (1 - 0.9 ** 50) + spread * seed for seed in (-1, 0, 1))


@pytest.mark.parametrize("better, spread, verdict", [
    (0.8, 0.01, "agrees"), (0.2, 0.01, "disagrees"), (0.55, 0.1, "unclear")])
def test_a_claim_agrees_disagrees_or_stays_open(better, spread, verdict):
    found = estimate({"A": curves(better, spread), "B": curves(0.5, spread)}, {"A": 1.0, "B": -1.0})
    assert judged(found, 0.0, inf) == verdict


@pytest.mark.parametrize("low, high, region, verdict", [
    (0.01, 0.04, (-inf, 0.05), "agrees"), (0.01, 0.05, (-inf, 0.05), "unclear"),
    (0.05, 0.09, (-inf, 0.05), "disagrees"), (3.6, 4.4, (3.5, 4.5), "agrees"), (2.0, 5.0, (3.5, 4.5), "unclear"),
    (0.0, 0.0, (0.0, inf), "disagrees")])
def test_the_interval_decides_against_the_region(low, high, region, verdict):
    assert judged(Estimate((low + high) / 2, low, high, 3), *region) == verdict


def test_two_seeds_decide_nothing():
    assert judged(Estimate(1.0, 0.9, 1.1, 2), 0.0, inf) == "unclear"
    assert judged(Estimate(1.0, None, None, 1), 0.0, inf) == "unclear"


def test_a_claim_of_several_parts():
    assert together(["agrees", "agrees"]) == "agrees"
    assert together(["agrees", "unclear"]) == "unclear"
    assert together(["agrees", "unclear", "disagrees"]) == "disagrees"
    assert level_of(1) == pytest.approx(0.95) and level_of(5) == pytest.approx(0.99)
