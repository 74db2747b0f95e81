"""XPO: its loss and gradient beside TRL's, and the term that lowers the reference's completion by hand."""


import pytest
import torch

from labcore.llm.preference_objective import Sides, loss, summed
from labcore.maths.preferences import exploration
from labcore.runs.spec.run_spec import make
from tests.references import golden

TRL = golden("trl_opponents")


def test_only_the_side_of_the_reference_counts(close):
    chosen, rejected = torch.tensor([-1.0, -2.0, -4.0]), torch.tensor([-3.0, -5.0, -6.0])
    theirs = torch.tensor([1.0, 0.0, 0.0])
    close(exploration(chosen, rejected, theirs, torch.tensor([0.0, 1.0, 0.0])), [-1.0, -5.0, 0.0])


@pytest.mark.parametrize("case", TRL["xpo"], ids=lambda case: f"{case['loss_type']} {case['alpha']}")
def test_the_loss_and_its_gradient_are_those_of_xpo_in_trl(close, case):
    mask = torch.tensor(TRL["mask"])
    given = {key: torch.tensor(case[key], dtype=torch.float64)
             for key in ("own", "of_reference", "ref_own", "ref_of_reference")}
    both = given["own"].requires_grad_(), given["of_reference"].requires_grad_()
    won = torch.tensor(case["won"])
    knobs = dict(make(algorithm_key="xpo", task_key="sort", knobs={
        "preference_loss": case["loss_type"], "beta": case["beta"], "second_weight": case["alpha"]}).knobs)

    def paired(own, other):  # each chosen one next to its rejected one
        first, second = (torch.where(won[:, None], *sides) for sides in ((own, other), (other, own)))
        return torch.stack([first, second], 1).flatten(0, 1)
    masks = mask.repeat_interleave(2, 0)
    theirs = torch.stack([~won, won], 1).flatten()
    sides = Sides(summed(knobs, paired(*both), masks, True), masks.sum(1), torch.tensor([True, False]).repeat(3),
                  summed(knobs, paired(given["ref_own"], given["ref_of_reference"]), masks, True), theirs=theirs)
    found = loss(knobs, sides, 3)
    close(found, case["loss"])
    for gradient, expected in zip(torch.autograd.grad(found, both), case["gradients"], strict=True):
        close(gradient, torch.tensor(expected, dtype=torch.float64) * mask)  # TRL has one at its padding too
