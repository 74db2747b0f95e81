"""From an interval to a verdict: claims that agree, disagree or stay open."""

from math import inf

import pytest

from labcore.analysis.estimate import estimate
from labcore.analysis.studies.verdict import judged, together


def curves(level: float, spread: float) -> tuple[float, ...]:
    """What three learning curves end with, a seed each."""
    return tuple(level * (1 - 0.9 ** 50) + spread * seed for seed in (-1, 0, 1))


@pytest.mark.parametrize("better, spread, verdict", [
    (0.8, 0.01, "agrees"), (0.2, 0.01, "disagrees"), (0.55, 0.1, "unclear")])
def test_a_claim_agrees_disagrees_or_stays_open(better, spread, verdict):
    found = estimate({"A": curves(better, spread), "B": curves(0.5, spread)}, {"A": 1.0, "B": -1.0})
    assert judged(found, 0.0, inf) == verdict


def test_a_claim_of_several_parts():
    assert together(["agrees", "agrees"]) == "agrees"
    assert together(["agrees", "unclear"]) == "unclear"
    assert together(["agrees", "unclear", "disagrees"]) == "disagrees"
