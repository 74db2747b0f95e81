"""The losses without a reference against TRL's CPOTrainer: value and gradient (`tests/golden/trl_cpo.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from labcore.maths import preferences

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "trl_cpo.json").read_text("utf-8"))
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
