"""How good an estimate is, against draws whose bias, variance and direction are known."""

import pytest
import torch

from labcore.maths.estimators import quality

SIZE, DRAWS, TIMES = 12, 40, 150


def known(scale, aside):
    """A truth, a mean that is `scale` times as long and has moved `aside` of |t| to the side, and a spread."""
    generator = torch.Generator().manual_seed(1)
    truth, other = torch.randn(2, SIZE, generator=generator, dtype=torch.float64)
    other -= (other @ truth) / (truth @ truth) * truth
    spread = torch.rand(SIZE, generator=generator, dtype=torch.float64) + 0.2
    return truth, scale * truth + aside * truth.norm() * other / other.norm(), spread


@pytest.mark.parametrize("scale, aside", [(1.0, 0.0), (0.5, 0.0), (1.0, 0.6), (2.0, 0.5)])
def test_the_means_over_many_tries_are_the_truth_and_the_intervals_hold_it(scale, aside):
    truth, mean, spread = known(scale, aside)
    length, variance = float(truth @ truth), float((spread**2).sum())
    wanted = {"bias": (scale - 1) ** 2 + aside**2, "turned": (aside / scale) ** 2, "scale": scale,
              "variance": variance / length, "noise": variance / length / scale**2,
              "signal": scale**2 * length / variance / 8, "cosine": scale / (scale**2 + aside**2) ** 0.5}
    generator = torch.Generator().manual_seed(2)
    tries = [quality(mean + spread * torch.randn(DRAWS, SIZE, generator=generator, dtype=torch.float64), truth, 8)
             for _ in range(TIMES)]
    for name, value in wanted.items():
        found = [getattr(each, name) for each in tries]
        assert sum(each.value for each in found) / TIMES == pytest.approx(value, rel=0.06, abs=0.01), name
        assert sum(each.low <= value <= each.high for each in found) / TIMES > 0.87, name
    assert all(each.cosine.high - each.cosine.low > 1e-6 for each in tries), "never sure by being cut at 1"
    assert sum(each.biased for each in tries) == (0 if (scale, aside) == (1, 0) else TIMES)
    assert sum(each.turns for each in tries) == (TIMES if aside else 0)


def test_numbers_by_hand():
    """Two kinds of draws around t = (2, 0): E g = (1, 1), tr Cov g = 2·(M/(M−1))."""
    draws = torch.tensor([[2.0, 2.0], [0.0, 0.0]] * 50, dtype=torch.float64)
    found = quality(draws, torch.tensor([2.0, 0.0]), samples=4)
    variance = 2 * 100 / 99
    assert found.scale.value == pytest.approx(0.5) and found.variance.value == pytest.approx(variance / 4)
    assert found.bias.value == pytest.approx((2 - variance / 100) / 4)
    assert found.turned.value == pytest.approx((1 - variance / 200) / 0.25 / 4)
    assert found.signal.value == pytest.approx(1 / variance / 4)
    assert found.cosines.value == pytest.approx(0.5**0.5 / 2), "a draw of 0 has the cosine 0"


def test_draws_that_are_all_the_truth_have_no_bias_and_no_variance():
    found = quality(torch.tensor([[3.0, -1.0]] * 5), torch.tensor([3.0, -1.0]), samples=1)
    assert not found.biased and not found.turns and found.variance.value == pytest.approx(0)
    assert found.cosine.value == pytest.approx(1) and found.scale.value == pytest.approx(1)
