"""A surrogate's picture: its curve by hand numbers, and the side on which each token is cut off."""

import pytest
import torch

from labcore.maths.surrogates import FURTHEST, clip, clip_cut, curve, sides, soft_gate

EPS = {"clip_low": 0.2, "clip_high": 0.28}


def at(drawn, ratio, name):
    return dict(zip(drawn["ratio"], drawn[name], strict=True))[ratio]


def test_the_clip_by_hand():
    """min(ρA, clip(ρ, 0.8, 1.28)A) for A = ±1, Schulman et al. 2017, figure 1."""
    drawn = curve(clip, EPS, torch.tensor([0.5, 1.5]))
    assert drawn["bounds"] == [0.8, 1.28] and drawn["ratio"] == sorted(drawn["ratio"])
    assert at(drawn, 0.8, "positive") == 0.8 and at(drawn, 1.28, "positive") == 1.28
    assert drawn["positive"][-1] == 1.28 and drawn["positive"][0] == drawn["ratio"][0] < 0.2
    assert drawn["negative"][0] == -0.8 and drawn["negative"][-1] == -drawn["ratio"][-1] < -1.8


def test_all_ratios_are_in_sight_but_none_far_away():
    for ratios, low, high in (([1.0], 1 - 3.25 * 0.28, 1 + 3.25 * 0.28), ([1.0, 2.4], 1 - 3.25 * 0.28, 2.47),
                              ([1.0, 50.0], 0.09, FURTHEST), ([0.05, 1.0], 0.0, 1.91)):
        drawn = curve(clip, EPS, torch.tensor(ratios))
        assert (drawn["ratio"][0], drawn["ratio"][-1]) == (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6))


def test_a_surrogate_without_bounds_is_drawn_as_it_is():
    drawn = curve(soft_gate, {"gate_positive": 1.0, "gate_negative": 2.0}, torch.ones(2))
    assert drawn["bounds"] == [] and len(drawn["ratio"]) == 121
    assert at(drawn, 1.0, "positive") == 2.0 and at(drawn, 1.0, "negative") == -1.0  # 2A/τ


def test_the_side_of_each_token():
    ratio, advantages = torch.tensor([[0.7, 0.7, 1.3], [1.3, 0.81, 1.27]]), torch.tensor([[-1.0, 1, 1], [-1, -1, 1]])
    cut = clip_cut(ratio, advantages, **EPS)
    assert sides(cut, ratio) == [["low", "", "high"], ["", "", ""]]
    assert sides({}, ratio) == [["", "", ""], ["", "", ""]]
    assert sides({"high": torch.tensor([[True], [False]])}, ratio) == [["high"] * 3, [""] * 3]
