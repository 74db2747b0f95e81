"""Clip-Cov and KL-Cov: against verl, by hand, against a slow loop, and at their limits."""

from math import inf

import pytest
import torch

from labcore.maths import aggregation, covariance, ratios, surrogates
from tests.references import golden

GOLDEN = golden("verl_rows")
OF_VERL = {"clip_low": 0.05, "clip_high": 0.1, "cov_share": 0.9, "cov_low": 0.05, "cov_high": 1.0}


@pytest.fixture
def given():
    found = {name: torch.tensor(value, dtype=torch.float64) for name, value in GOLDEN["inputs"].items()}
    found["completion_mask"] = found["completion_mask"].bool()
    found["logprobs"].requires_grad_()
    found["ratio"] = ratios.token(found["logprobs"], found["old_logprobs"], found["completion_mask"])
    found["draws"] = torch.rand(6, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return found


def dropped(given, **changed):
    names = ("ratio", "logprobs", "advantages", "completion_mask", "draws")
    return covariance.tokens_to_drop(*(given[name] for name in names), **{**OF_VERL, **changed})


def held(given, share):
    return covariance.tokens_to_hold(given["logprobs"], given["advantages"], given["completion_mask"], share)


def check(close, given, terms, name):
    expected = GOLDEN["losses"][f"compute_policy_loss_{name}"]
    loss = aggregation.token_mean(-terms, given["completion_mask"], int(given["completion_mask"].sum()))
    close(loss, expected["loss"])
    close(torch.autograd.grad(loss, given["logprobs"])[0], expected["gradient"])


def test_clip_cov_is_verl_s(close, given):
    found = dropped(given)
    terms = covariance.clip_cov(given["ratio"], given["advantages"], found, 0.05, 0.1)
    check(close, given, terms, "clip_cov")
    cut = covariance.clip_cov_cut(given["ratio"], given["advantages"], found, 0.05, 0.1)
    share = surrogates.cut_fractions(cut, given["completion_mask"])
    close(share["covariance"], GOLDEN["losses"]["compute_policy_loss_clip_cov"]["actor/pg_clipfrac"], torch.float32)
    assert share["low"] > 0 and share["high"] > 0
    close(share["region"], sum(float(share[side]) for side in ("low", "high", "covariance")))  # none is on two sides


def test_kl_cov_is_verl_s(close, given):
    found = held(given, 0.2)
    check(close, given, covariance.kl_cov(given["ratio"], given["advantages"], found, 0.7), "kl_cov")
    assert int(found.sum()) == 5 == int(0.2 * 26)
    with pytest.raises(AssertionError):
        check(close, given, covariance.kl_cov(given["ratio"], given["advantages"], ~found, 0.7), "kl_cov")


def test_the_covariance_of_a_loop(close, given):
    mask, advantages = given["completion_mask"], given["advantages"]
    places = mask.nonzero().tolist()
    means = [sum(float(values[row, at]) for row, at in places) / len(places)
             for values in (advantages, given["logprobs"])]
    found = covariance.covariance(given["logprobs"], advantages, mask)
    assert not found.requires_grad
    for row, at in places:
        close(found[row, at], (float(advantages[row, at]) - means[0]) * (float(given["logprobs"][row, at]) - means[1]))


def test_what_is_drawn_is_within_the_bounds_and_follows_the_draws(given):
    apart = covariance.covariance(given["logprobs"], given["advantages"], given["completion_mask"])
    every = dropped(given)
    assert ((apart > 0.05) & (apart < 1.0))[every].all() and given["completion_mask"][every].all()
    few = dropped(given, cov_share=0.08)
    assert int(few.sum()) == 2 and (every | ~few).all()
    least = given["draws"].masked_fill(~every, inf).flatten().topk(2, largest=False).indices
    assert set(few.flatten().nonzero()[:, 0].tolist()) == set(least.tolist())
    assert int(dropped(given, cov_share=1e-6).sum()) == 1 and not dropped(given, cov_low=50.0, cov_high=60.0).any()


@pytest.mark.parametrize("find", [dropped, held])
def test_nothing_that_does_not_count_is_singled_out(given, find):
    given["completion_mask"] = torch.zeros_like(given["completion_mask"])
    given["completion_mask"][2, :2] = True
    found = find(given, 1.0) if find is held else find(given, cov_share=1.0, cov_low=-inf, cov_high=inf)
    assert not found[~given["completion_mask"]].any() and found.any()


def test_without_a_share_of_the_tokens_they_are_the_plain_ones(given):
    nothing = torch.zeros_like(given["completion_mask"])
    plain = surrogates.clip(given["ratio"], given["advantages"], 0.05, 0.1)
    assert torch.equal(covariance.clip_cov(given["ratio"], given["advantages"], nothing, 0.05, 0.1), plain)
    assert torch.equal(covariance.kl_cov(given["ratio"], given["advantages"], nothing, 3.0),
                       surrogates.cpi(given["ratio"], given["advantages"]))
