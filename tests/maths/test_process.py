"""Process rewards: golden numbers of TRL and transformers, numbers by hand, slow loops and limits."""

from __future__ import annotations

import json
import math
from itertools import product as pairs_of
from pathlib import Path

import pytest
import torch
from torch import tensor

from labcore.maths import process

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "trl_prm.json").read_text())
SCORES = tensor([[0.9, 0.2, 0.5], [0.4, 0.8, 7.0]], dtype=torch.float64)
STEPS = tensor([[True, True, True], [True, True, False]])


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: f"{case['separator']!r} {case['last_step_only']}")
def test_the_loss_and_its_gradient_are_those_of_trl_s_trainer(case):
    logits = tensor(case["logits"], requires_grad=True)
    loss = process.step_cross_entropy(logits, tensor(case["labels"]).float()).mean()
    assert loss.item() == pytest.approx(case["loss"], rel=1e-6)
    torch.testing.assert_close(torch.autograd.grad(loss, logits)[0], tensor(case["gradient"]))


def test_a_label_may_be_a_share():
    logits = tensor([[0.0, math.log(3)]])  # s = 3/4
    found = process.step_cross_entropy(logits, tensor([0.25]))
    assert found.item() == pytest.approx(-0.25 * math.log(0.75) - 0.75 * math.log(0.25), rel=1e-6)
    assert process.step_cross_entropy(torch.zeros(1, 2), tensor([1.0])).item() == pytest.approx(math.log(2))


def test_the_auc_is_the_share_of_pairs_in_order():
    scores, right = tensor([0.1, 0.4, 0.4, 0.8, 0.9, 0.2]), tensor([False, True, False, True, False, True])
    good, bad = scores[right].tolist(), scores[~right].tolist()
    slow = [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs_of(good, bad)]
    assert process.auc(scores, right) == pytest.approx(sum(slow) / len(slow)) == pytest.approx(4.5 / 9)
    assert process.auc(tensor([0.1, 0.9]), tensor([False, True])) == 1
    assert math.isnan(process.auc(scores, torch.ones(6, dtype=torch.bool)))


def test_the_first_error_is_the_first_wrong_step():
    right = tensor([[True, False, False], [True, True, True], [False, True, False], [True, True, False]])
    steps = torch.ones_like(right)
    assert process.first_errors(right, steps).tolist() == [1, 3, 0, 2]
    assert process.first_errors(right, steps & tensor([True, True, False])).tolist() == [1, 3, 0, 3], "no step there"


def test_the_best_of_n_is_the_answer_with_the_highest_score():
    scores = tensor([[0.9, 0.2, 0.5], [0.4, 0.8, 0.8], [0.1, 0.2, 0.3]])
    right = tensor([[True, False, False], [True, False, True], [True, True, False]])
    assert process.best_of_n(scores, right) == pytest.approx((1 + 0.5 + 0) / 3)
    assert process.best_of_n(torch.zeros(3, 3), right) == pytest.approx(right.double().mean().item())


EXPECTED = {
    "each_step": [[0.9, 0.2, 0.5], [0.4, 0.8, 0]],
    "difference": [[0.9, -0.7, 0.3], [0.4, 0.4, 0]],
    "lowest": [[0, 0, 0.2], [0, 0.4, 0]],
    "product": [[0, 0, 0.09], [0, 0.32, 0]],
    "last": [[0, 0, 0.5], [0, 0.8, 0]]}


@pytest.mark.parametrize("name", EXPECTED)
def test_rewards_of_steps_by_hand(name):
    torch.testing.assert_close(getattr(process, name)(SCORES, STEPS), tensor(EXPECTED[name], dtype=torch.float64))


def test_the_minimum_is_a_softmax_of_the_negative_scores():
    found = process.min_form(SCORES, STEPS, 0.5)
    for row, scores in enumerate(([0.9, 0.2, 0.5], [0.4, 0.8])):
        total = sum(math.exp(-score / 0.5) for score in scores)
        assert found[row, :len(scores)].tolist() == pytest.approx(
            [math.exp(-score / 0.5) / total * score for score in scores])
    assert found[1, 2] == 0
    assert process.min_form(SCORES, STEPS, 1e-3).sum(1).tolist() == pytest.approx([0.2, 0.4])  # the lowest, where it is
    assert process.min_form(SCORES, STEPS, 1e-3)[0].argmax() == 1
    assert process.min_form(SCORES, STEPS, 1e6).sum(1).tolist() == pytest.approx([1.6 / 3, 0.6], rel=1e-5)


def test_a_difference_cannot_be_raised_by_more_steps():
    """Whatever stands between, an answer earns its last score; the sum of the scores grows with their number."""
    longer = torch.cat([SCORES[:1], SCORES[:1]], 1)
    steps = torch.ones_like(longer, dtype=torch.bool)
    assert process.difference(longer, steps).sum().item() == pytest.approx(0.5)
    assert process.each_step(longer, steps).sum().item() == pytest.approx(3.2)
