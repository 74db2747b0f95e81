"""Ensembles of reward models: numbers by hand, a slow loop, limits."""

import pytest
import torch

from labcore.maths.ensembles import mean, spread, uncertainty_weighted, weighted_sum, worst_case

SCORES = torch.tensor([[1.0, 2.0, -1.0], [3.0, 2.0, 0.0], [2.0, 2.0, 4.0]], dtype=torch.float64)  # 3 models, 3 texts


def test_numbers_by_hand():
    assert mean(SCORES).tolist() == [2, 2, 1]
    assert worst_case(SCORES).tolist() == [1, 2, -1]
    assert spread(SCORES).tolist() == pytest.approx([(2 / 3) ** 0.5, 0, (14 / 3) ** 0.5])
    assert uncertainty_weighted(SCORES, 0.5).tolist() == pytest.approx([2 - 1 / 3, 2, 1 - 7 / 3])


def test_limits():
    assert torch.equal(uncertainty_weighted(SCORES, 0.0), mean(SCORES))
    one = SCORES[:1]
    for combined in (mean(one), worst_case(one), uncertainty_weighted(one, 9.0)):
        assert torch.equal(combined, one[0]), "a single model is itself"
    assert (worst_case(SCORES) <= mean(SCORES)).all() and (uncertainty_weighted(SCORES, 9.0) <= mean(SCORES)).all()


def test_as_a_slow_loop():
    scores = torch.randn(4, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for place in range(7):
        column = scores[:, place].tolist()
        centre = sum(column) / 4
        variance = sum((score - centre) ** 2 for score in column) / 4
        assert worst_case(scores)[place] == min(column)
        assert float(uncertainty_weighted(scores, 2.0)[place]) == pytest.approx(centre - 2 * variance)


def test_a_weighted_sum_of_what_is_there():
    """As TRL's: a reward that was not given counts nothing, and where none was there is none."""
    nan = float("nan")
    parts = torch.tensor([[1.0, nan, nan, 2.0], [3.0, 5.0, nan, nan]], dtype=torch.float64)
    found = weighted_sum(parts, torch.tensor([0.5, -2.0], dtype=torch.float64))
    assert found[:2].tolist() == [0.5 - 6, -10] and found[2].isnan() and found[3] == 1
    assert weighted_sum(parts, torch.tensor([0.0, 1.0], dtype=torch.float64))[3] == 0
