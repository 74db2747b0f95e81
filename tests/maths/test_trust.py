"""The surrogates of `trust` and what they cut off: against verl and ms-swift, by hand, and at their limits."""

from math import log

import pytest
import torch

from labcore.maths import aggregation, ratios, surrogates, trust, weights
from tests.references import golden

GOLDEN = golden("verl_rows")
BOUNDS = {"divergence_low": 0.05, "divergence_high": 0.1}


@pytest.fixture
def given():
    found = {name: torch.tensor(value, dtype=torch.float64) for name, value in GOLDEN["inputs"].items()}
    found["completion_mask"] = found["completion_mask"].bool()
    found["logprobs"].requires_grad_()
    found["ratio"] = ratios.token(found["logprobs"], found["old_logprobs"], found["completion_mask"])
    return found


def parts(given, *names):
    return [given[name] for name in names]


def check(close, given, terms, name):
    expected = GOLDEN["losses"][f"compute_policy_loss_{name}"]
    loss = aggregation.token_mean(-terms, given["completion_mask"], int(given["completion_mask"].sum()))
    close(loss, expected["loss"])
    close(torch.autograd.grad(loss, given["logprobs"])[0], expected["gradient"])


@pytest.mark.parametrize("key", ["tv", "kl"])
def test_dppo_is_verl_s(close, given, key):
    function, cut = getattr(trust, f"{key}_mask"), getattr(trust, f"{key}_cut")
    named = parts(given, "ratio", "logprobs", "old_logprobs", "advantages")
    check(close, given, function(*named, ratio_cap=1.5, **BOUNDS), f"dppo_{key}")
    share = surrogates.cut_fractions(cut(*parts(given, "ratio", "advantages", "old_logprobs"), **BOUNDS),
                                     given["completion_mask"])
    close(share["region"], GOLDEN["losses"][f"compute_policy_loss_dppo_{key}"]["actor/pg_clipfrac"], torch.float32)
    assert share["low"] > 0 and share["high"] > 0
    for wrong in ({"ratio_cap": 9.0, **BOUNDS}, {"ratio_cap": 1.5, "divergence_low": 0.1, "divergence_high": 0.05}):
        with pytest.raises(AssertionError):
            check(close, given, function(*named, **wrong), f"dppo_{key}")


def test_dro_is_verl_s(close, given):
    named = parts(given, "ratio", "logprobs", "advantages")
    check(close, given, trust.quadratic(*named, 1.7), "dro")
    with pytest.raises(AssertionError):
        check(close, given, trust.quadratic(*named, -1.7), "dro")


def test_a_token_of_dro_stops_where_its_log_ratio_is_its_advantage_over_the_pull():
    logprobs = torch.tensor([[log(0.3) + 0.4]], dtype=torch.float64, requires_grad=True)
    ratio = (logprobs - log(0.3)).exp()
    slope, = torch.autograd.grad(trust.quadratic(ratio, logprobs, torch.tensor([[2.0]]), 5.0).sum(), logprobs)
    assert slope.item() == pytest.approx(0, abs=1e-12)


def test_the_weight_of_fipo_is_ms_swift_s(close, given):
    found = trust.future_weight(*parts(given, "ratio", "advantages", "completion_mask"), 3.0, 0.3, 1.4)
    mask = given["completion_mask"]
    close(found[mask], torch.tensor(GOLDEN["fipo"], dtype=torch.float64)[mask])
    assert not found.requires_grad and (found[mask] > 1).any() and (found[mask] == 1).any()
    held = mask & (given["advantages"] < 0) & (given["ratio"] > 1.4)
    assert held.any() and (found[held] == 1).all()


def test_fipo_multiplies_the_clip_by_the_future(given):
    """Of two tokens the first counts by the change of both; at a range of 0 it is the clip."""
    ratio, mask = torch.tensor([[1.1, 1.2]]), torch.ones(1, 2) > 0
    advantages, knobs = torch.ones(1, 2), {"clip_low": 0.2, "clip_high": 0.3, "future_half_life": 1.0,
                                           "future_safety": 4.0}
    found = surrogates.future_kl_clip(ratio, advantages, mask, future_range=9.0, **knobs)
    assert found[0].tolist() == pytest.approx([1.1 * 1.1 * 1.2 ** 0.5, 1.2 * 1.2])
    plain = surrogates.future_kl_clip(ratio, advantages, mask, future_range=0.0, **knobs)
    assert torch.equal(plain, surrogates.clip(ratio, advantages, 0.2, 0.3))


@pytest.mark.parametrize("case", GOLDEN["sampler"], ids=lambda case: f"{case['level']}-{case['threshold']}")
def test_the_weights_for_another_sampler_are_verl_s(close, given, case):
    """One bound truncates, two mask."""
    low, *high = (float(bound) for bound in str(case["threshold"]).split("_"))
    mode = f"{case['level']}_{'mask' if high else 'truncate'}"
    found = weights.sampler_correction(given["logprobs"].detach(), given["old_logprobs"], given["completion_mask"],
                                       *([high[0], low] if high else [low, 0.0]), mode)
    mask = given["completion_mask"]
    close(found[mask], torch.tensor(case["weight"], dtype=torch.float64)[mask])


@pytest.mark.parametrize("key", ["tv", "kl"])
def test_only_the_side_of_the_advantage_is_masked(key):
    """A token of probability ½ that moved to 0.9 or to 0.1; one at its old place is never masked."""
    old = torch.full((1, 6), log(0.5), dtype=torch.float64)
    ratio = torch.tensor([[1.8, 1.8, 0.2, 0.2, 1.0, 1.0]], dtype=torch.float64)
    advantages = torch.tensor([[1.0, -1.0, 1.0, -1.0, 1.0, -1.0]], dtype=torch.float64)
    cut = getattr(trust, f"{key}_cut")(ratio, advantages, old, 0.1, 0.1)
    assert cut["high"][0].tolist() == [True, False, False, False, False, False]
    assert cut["low"][0].tolist() == [False, False, False, True, False, False]


def test_a_token_that_is_now_certain_has_a_finite_mask():
    cut = trust.kl_cut(torch.tensor([[2.0, 0.0]]), torch.tensor(
        [[1.0, -1.0]]), torch.tensor([[log(0.5)] * 2]), 0.1, 0.1)
    assert cut["high"][0].tolist() == [True, False] and cut["low"][0].tolist() == [False, True]
