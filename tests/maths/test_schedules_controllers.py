"""β and the entropy bonus that move by themselves, by hand."""

from __future__ import annotations

import pytest

from labcore.maths.schedules import adaptive_entropy, adaptive_kl


@pytest.mark.parametrize("kl, error", [(0.1, 0.0), (0.11, 0.1), (0.12, 0.2), (3.0, 0.2), (0.09, -0.1), (0.0, -0.2)])
def test_a_step_by_hand(kl, error):
    assert adaptive_kl(2.0, kl, 0.1, 10_000, 256) == pytest.approx(2 * (1 + error * 256 / 10_000), rel=1e-12)


@pytest.mark.parametrize("kl, factor", [(0.0, 0.8), (3.0, 1.2)])
def test_a_step_beyond_the_horizon_moves_as_far_as_one_of_it(kl, factor):
    assert adaptive_kl(1.0, kl, 0.1, 1, 4096) == adaptive_kl(1.0, kl, 0.1, 256, 256) == pytest.approx(factor)


@pytest.mark.parametrize("coefficient, entropy, found", [
    (0.01, 0.1, 0.03), (0.05, 0.3, 0.03), (0.01, 0.2, 0.0), (0.0, 0.9, 0.0), (0.99, 0.0, 1.0)])
def test_the_entropy_bonus_rises_below_its_target_and_falls_at_and_above_it(coefficient, entropy, found):
    assert adaptive_entropy(coefficient, entropy, 0.2, 0.02) == pytest.approx(found)
