"""Process rewards: golden numbers of TRL and transformers, numbers by hand, slow loops and limits."""

import json
import math
from itertools import product as pairs_of
from pathlib import Path

import pytest
import torch
from torch import tensor

from labcore.maths import process

GOLDEN, PURE = (json.loads((Path(__file__).parents[1] / "golden" / f"{name}.json").read_text())
                for name in ("trl_prm", "pure"))
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


def test_the_minimum_is_pure_s():
    """Recorded from their code, which takes logits: of steps in the middle, of one step, and at other temperatures."""
    for case in PURE["cases"]:
        logits, steps = tensor(case["logits"], dtype=torch.float64), tensor(case["steps"])
        found = process.min_form(logits.softmax(-1)[..., 1], steps, case["temperature"])
        torch.testing.assert_close(found, tensor(case["rewards"], dtype=torch.float64), rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(found.sum(1), tensor(case["outcome"], dtype=torch.float64), rtol=1e-6, atol=1e-9)


def test_the_minimum_is_a_softmax_of_the_negative_signed_scores():
    found = process.min_form(SCORES, STEPS, 0.5)
    for row, scores in enumerate(([0.8, -0.6, 0.0], [-0.2, 0.6])):
        total = sum(math.exp(-score / 0.5) for score in scores)
        assert found[row, :len(scores)].tolist() == pytest.approx(
            [math.exp(-score / 0.5) / total * score for score in scores])
    assert found[1, 2] == 0
    lowest = process.min_form(SCORES, STEPS, 1e-3)
    assert lowest.sum(1).tolist() == pytest.approx([-0.6, -0.2]) and lowest[0].argmin() == 1  # where it is
    assert process.min_form(SCORES, STEPS, 1e6).sum(1).tolist() == pytest.approx([0.2 / 3, 0.2], rel=1e-5)


def test_a_wrong_step_costs_the_steps_up_to_it_and_none_after_it():
    """The return of a token is the sum of the rewards from its step on."""
    rewards = process.min_form(tensor([[0.95, 0.02, 0.9]], dtype=torch.float64), torch.ones(1, 3, dtype=torch.bool),
                               0.1)[0]
    returns = rewards.flip(0).cumsum(0).flip(0)
    assert returns[0] < -0.9 and returns[1] < -0.9 and abs(returns[2]) < 1e-6


def test_a_difference_cannot_be_raised_by_more_steps():
    """Whatever stands between, an answer earns its last score; the sum of the scores grows with their number."""
    longer = torch.cat([SCORES[:1], SCORES[:1]], 1)
    steps = torch.ones_like(longer, dtype=torch.bool)
    assert process.difference(longer, steps).sum().item() == pytest.approx(0.5)
    assert process.each_step(longer, steps).sum().item() == pytest.approx(3.2)
