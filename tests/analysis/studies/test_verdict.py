"""From an interval to a verdict: claims that agree, disagree or stay open."""

from math import inf

import pytest

from labcore.analysis.estimate import Estimate, estimate
from labcore.analysis.studies.verdict import judged, together


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
