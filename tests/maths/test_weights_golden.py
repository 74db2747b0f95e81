"""Weights of tokens against TRL's own, and the losses and gradients that they make (`tests/golden/trl_sampler.py`)."""


import pytest
import torch

from labcore.maths import aggregation, ratios, surrogates, weights
from tests.references import golden

GOLDEN = golden("trl_sampler")
GAMMA = {"gamma_power_positive": 2.0, "gamma_rate_positive": 3.0, "gamma_power_negative": 3.0,
         "gamma_rate_negative": 2.0}
BOUNDS = {"clip_low": 0.4, "clip_high": 0.4}
CORRECTED = GOLDEN["corrected"]
IDS = [f"{case['mode']}-{case['low']}-{case['high']}" for case in CORRECTED]


@pytest.fixture
def given():
    found = {name: torch.tensor(value, dtype=torch.float64) for name, value in GOLDEN["inputs"].items()}
    found["completion_mask"] = found["completion_mask"].bool()
    found["advantages"] = found["advantages"][:, None].expand_as(found["logprobs"])
    found["logprobs"].requires_grad_()
    return found


def correction(given, case):
    return weights.sampler_correction(given["old_logprobs"], given["sampler_logprobs"], given["completion_mask"],
                                      case["high"], case["low"], case["mode"])


def check(close, given, terms, expected, aggregate=aggregation.sequence_mean_token_mean):
    total = {"total_tokens": int(given["completion_mask"].sum())} if aggregate is aggregation.token_mean else {
        "total_rows": 5}
    loss = aggregate(-terms, given["completion_mask"], **total)
    close(loss, expected["loss"])
    close(torch.autograd.grad(loss, given["logprobs"])[0], expected["gradient"])


@pytest.mark.parametrize("case", CORRECTED, ids=IDS)
def test_the_weights_for_another_sampler_are_trl_s(close, given, case):
    expected = torch.tensor(case["weight"], dtype=torch.float64).expand(5, 7)
    mask = given["completion_mask"]
    close(correction(given, case)[mask], expected[mask])
    assert case["mode"].endswith("truncate") or (expected[mask] == 0).any()


def clipped(given):
    ratio = ratios.token(given["logprobs"], given["old_logprobs"], given["completion_mask"])
    return ratio, surrogates.clip(ratio, given["advantages"], **BOUNDS)


@pytest.mark.parametrize("case", CORRECTED, ids=IDS)
def test_they_multiply_the_clipped_surrogate_as_in_trl(close, given, case):
    check(close, given, clipped(given)[1] * correction(given, case), case["grpo"])


@pytest.mark.parametrize("case", [case for case in CORRECTED if "vespo" in case],
                         ids=[name for name, case in zip(IDS, CORRECTED, strict=True) if "vespo" in case])
def test_vespo_takes_them_into_its_own_ratio_as_in_trl(close, given, case):
    ratio = ratios.sequence_sum(given["logprobs"], given["old_logprobs"], given["completion_mask"])

    def vespo(weight):
        return surrogates.gamma_weight(ratio, given["logprobs"], given["advantages"], **GAMMA,
                                       sampler_correction=weight)
    check(close, given, vespo(correction(given, case)), case["vespo"], aggregation.token_mean)
    with pytest.raises(AssertionError):  # as every other surrogate: multiplied
        check(close, given, vespo(None) * correction(given, case), case["vespo"], aggregation.token_mean)


@pytest.mark.parametrize("case", GOLDEN["off_policy"], ids=lambda case: str(case["threshold"]))
def test_the_off_policy_mask_compares_with_the_sampler_and_weighs_nothing(close, given, case):
    kept = weights.near_policy(given["logprobs"], given["old_logprobs"], given["sampler_logprobs"],
                               given["advantages"], given["completion_mask"], case["threshold"])
    assert 0 < kept.mean() < 1
    check(close, given, clipped(given)[1] * kept, case)


@pytest.mark.parametrize("case", GOLDEN["gmpo"], ids=lambda case: str(case["share"]))
def test_gmpo_leaves_tokens_of_low_entropy_out_of_its_geometric_mean(close, given, case):
    ratio, mask = clipped(given)[0], given["completion_mask"]
    kept = weights.high_entropy(given["entropies"], weights.entropy_floor(given["entropies"], mask, case["share"]))

    def gmpo(weight):
        return surrogates.geometric_clip(ratio, given["advantages"], mask, **BOUNDS, high_entropy=weight)
    check(close, given, gmpo(kept), case)
    with pytest.raises(AssertionError):  # as every other surrogate: multiplied
        check(close, given, gmpo(None) * kept, case)
