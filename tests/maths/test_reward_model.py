"""The reward model's loss and its calibration: numbers by hand, gradients, a slow twin, limits."""

import math

import pytest
import torch

from labcore.maths.reward_model import bradley_terry, calibration, correlation


def sides(*rows):
    return (torch.tensor(row, dtype=torch.float64) for row in rows)


def test_the_loss_by_hand(close):
    chosen, rejected = sides([0.0, 2.0, -1.0], [0.0, 0.0, 1.0])
    plain = [math.log(2), math.log(1 + math.exp(-2)), math.log(1 + math.exp(2))]
    close(bradley_terry(chosen, rejected), plain)
    close(bradley_terry(chosen, rejected, margin=1.0),
          [math.log(1 + math.exp(1)), math.log(1 + math.exp(-1)), math.log(1 + math.exp(3))])
    close(bradley_terry(chosen, rejected, centering=0.5), [plain[0], plain[1] + 2, plain[2]])


def test_the_gradient_by_hand(close):
    """∂L/∂r_w = −σ(r_l − r_w + m) + 2c(r_w + r_l), and the same with + for the rejected one."""
    chosen, rejected = (side.requires_grad_() for side in sides([1.0, -2.0], [0.5, 3.0]))
    gradients = torch.autograd.grad(bradley_terry(chosen, rejected, 0.5, 0.1).sum(), (chosen, rejected))
    push = [1 / (1 + math.exp(w - l - 0.5)) for w, l in ((1.0, 0.5), (-2.0, 3.0))]
    centre = [0.2 * 1.5, 0.2 * 1.0]
    close(gradients[0], [c - p for c, p in zip(centre, push, strict=True)])
    close(gradients[1], [c + p for c, p in zip(centre, push, strict=True)])


def test_preferences_alone_do_not_see_the_mean(close, generator):
    chosen, rejected = torch.randn(2, 7, generator=generator, dtype=torch.float64)
    close(bradley_terry(chosen + 5, rejected + 5), bradley_terry(chosen, rejected))
    assert (bradley_terry(chosen + 5, rejected + 5, centering=0.1) > bradley_terry(chosen, rejected)).all()


def test_a_score_that_is_far_off_stays_finite():
    chosen, rejected = sides([-1e4, 1e4], [1e4, -1e4])
    assert bradley_terry(chosen, rejected).tolist() == [2e4, 0]


def slow(margins, bins):
    """The calibration as its definition reads, pair by pair."""
    members = [[] for _ in range(bins)]
    for margin in margins:
        p = 1 / (1 + math.exp(-abs(margin)))
        right = 1.0 if margin > 0 else 0.5 if margin == 0 else 0.0
        members[min(int((p - 0.5) * 2 * bins), bins - 1)].append((p, right))
    table = [(sum(p for p, _ in each) / len(each), sum(right for _, right in each) / len(each), len(each))
             for each in members if each]
    return table, sum(abs(p - right) * n for p, right, n in table) / len(margins)


@pytest.mark.parametrize("bins", [1, 3, 10])
def test_the_calibration_is_that_of_the_slow_twin(close, generator, bins):
    margins = 3 * torch.randn(40, generator=generator, dtype=torch.float64)
    margins[0] = 0
    table, error = slow(margins.tolist(), bins)
    got = calibration(margins, bins)
    for column, expected in zip((got.predicted, got.right, got.pairs), zip(*table, strict=True), strict=True):
        close(column, expected)
    assert got.error == pytest.approx(error, rel=1e-12)


def test_the_calibration_by_hand():
    sure = math.log(3)  # p = 3/4
    got = calibration(torch.tensor([sure, sure, sure, -sure]))
    assert got.pairs.tolist() == [4] and got.predicted.tolist() == pytest.approx([0.75])
    assert got.right.tolist() == [0.75] and got.error == pytest.approx(0, abs=1e-7)
    assert calibration(torch.tensor([sure] * 4)).error == pytest.approx(0.25)
    assert calibration(torch.zeros(3)).error == 0, "no opinion, and no error"


def test_the_calibration_of_true_odds_is_good(generator):
    """Labels drawn with σ(margin): no bin is off by more than chance."""
    margins = 2 * torch.randn(20_000, generator=generator, dtype=torch.float64)
    first = torch.rand(20_000, generator=generator, dtype=torch.float64) < torch.sigmoid(margins)
    assert calibration(torch.where(first, margins, -margins)).error < 0.015
    assert calibration(torch.where(first, margins, -margins) * 4).error > 0.05, "too sure of itself"


def test_the_correlation_by_hand():
    x = torch.tensor([1.0, 2.0, 3.0])
    assert correlation(x, 2 * x + 1) == pytest.approx(1) and correlation(x, -x) == pytest.approx(-1)
    assert correlation(x, torch.tensor([0.0, 1.0, 0.0])) == pytest.approx(0, abs=1e-12)
    assert math.isnan(correlation(x, torch.ones(3)))
