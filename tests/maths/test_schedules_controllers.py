"""β that moves by itself, by hand."""

from __future__ import annotations

import pytest

from labcore.maths.schedules import adaptive_kl


@pytest.mark.parametrize("kl, error", [(0.1, 0.0), (0.11, 0.1), (0.12, 0.2), (3.0, 0.2), (0.09, -0.1), (0.0, -0.2)])
def test_a_step_by_hand(kl, error):
    assert adaptive_kl(2.0, kl, 0.1, 10_000, 256) == pytest.approx(2 * (1 + error * 256 / 10_000), rel=1e-12)


@pytest.mark.parametrize("kl, factor", [(0.0, 0.8), (3.0, 1.2)])
def test_a_step_beyond_the_horizon_moves_as_far_as_one_of_it(kl, factor):
    assert adaptive_kl(1.0, kl, 0.1, 1, 4096) == adaptive_kl(1.0, kl, 0.1, 256, 256) == pytest.approx(factor)
