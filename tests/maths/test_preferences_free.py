"""The losses without a reference against TRL's CPOTrainer and TPOTrainer: value and gradient
(`tests/golden/trl_cpo.py`, `tests/golden/trl_tpo.py`)."""


import pytest
import torch

from labcore.llm import preference_objective as objective
from labcore.llm.preference_objective import Sides
from labcore.maths import preferences
from labcore.maths.logprobs import selective_log_softmax
from tests.every import every
from tests.references import golden

GOLDEN = golden("trl_cpo")
TRIPLES = golden("trl_tpo")
CASES = GOLDEN["cases"]


def losses(case, sums, sign=1):
    (chosen, rejected), lengths = sums, torch.tensor(GOLDEN["inputs"]["lengths"])
    if case["loss_type"] == "sigmoid":
        return preferences.cpo(chosen, rejected, sign * case["beta"])
    named = (chosen, rejected, *lengths, sign * case["beta"], case["simpo_gamma"])
    return preferences.alphapo(*named, case["alpha"]) if case["alpha"] else preferences.simpo(*named)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['loss_type']}-{case['beta']}-{case['alpha']}")
def test_matches_trl(close, case):
    sums = torch.tensor(GOLDEN["inputs"]["logprobs"], dtype=torch.float64, requires_grad=True)
    found = losses(case, sums)
    close(found, case["losses"])
    close(torch.autograd.grad(found.sum(), sums)[0], case["gradient"])
    with pytest.raises(AssertionError):
        close(losses(case, sums, -1), case["losses"])


def test_alphapo_without_a_bend_is_simpo(close):
    sums, lengths = torch.tensor(GOLDEN["inputs"]["logprobs"]).double(), torch.tensor(GOLDEN["inputs"]["lengths"])
    expected = preferences.simpo(*sums, *lengths, 2.0, 0.5).tolist()
    close(preferences.alphapo(*sums, *lengths, 2.0, 0.5, 0.0), expected)
    assert torch.allclose(preferences.alphapo(*sums, *lengths, 2.0, 0.5, 1e-6),
                          torch.tensor(expected).double(), atol=1e-4)


@every("case", TRIPLES["cases"])
def test_a_pair_with_an_answer_beside_it_matches_trl(case, close):
    """On the lab's own sums and losses: from logits to the loss of the batch, and back."""
    logits = torch.tensor(TRIPLES["inputs"]["logits"], dtype=torch.float64, requires_grad=True)
    ids, mask = (torch.tensor(TRIPLES["inputs"][name])[:, 1:] for name in ("ids", "mask"))
    logprobs = (selective_log_softmax(logits[:, :-1], ids) * mask).sum(1)
    order = torch.tensor([0, 3, 1, 4, 2, 5])  # TRL has all chosen sides first
    knobs = {"preference_loss": {"sigmoid": "cpo", "tpo-l": "simpo"}[case["loss_type"]], "second_loss": "answer_sft",
             "second_weight": case["tpo_alpha"], "beta": case["beta"], "target_margin": case["tpo_l_gamma"],
             "ld_alpha": 1, "divergence": "reverse_kl"}
    sides = Sides(logprobs[order].expand(2, -1), mask.sum(1)[order], torch.tensor([True, False]).repeat(3))
    answers = objective.answer_loss(knobs, logprobs[6:], float(mask[6:].sum()) / 3, 3)
    found = objective.loss(knobs, sides, 3) + answers
    close(found, case["loss"])
    close(torch.autograd.grad(found, logits)[0], case["gradient"])
    assert float(answers.detach()) > 0.1
