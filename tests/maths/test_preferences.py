"""The preference losses: by hand, against a slow loop, at their limits, and as the catalog says."""

import math
from inspect import signature

import pytest
import torch

from labcore.catalog.choices import DIVERGENCE, PREFERENCE_LOSS, SFT_LOSS
from labcore.maths import divergences, preferences, supervised
from labcore.maths.call import call, member
from labcore.maths.logprobs import log_square_sum
from labcore.maths.preferences import log_odds
from tests.every import every

NAMES = PREFERENCE_LOSS.names
KNOBS = {"beta": 0.5, "label_smoothing": 0.2, "exo_epsilon": 0.1, "discopop_tau": 0.05, "target_margin": 0.3,
         "desirable_weight": 1.5, "undesirable_weight": 0.5, "reward_alpha": 0.2}


def sigma(x):
    return 1 / (1 + math.exp(-x))


def lsig(x):
    return math.log(sigma(x))


def odds(logprob):
    return math.log(math.exp(logprob) / (1 - math.exp(logprob)))


# Of one pair (c, r, ℓ_w, ℓ_l, T_w, T_l), with math alone.
SLOW = {
    "sigmoid": lambda c, r, w, l_, m, n: -lsig(.5 * (c - r)),
    "cdpo": lambda c, r, w, l_, m, n: -.8 * lsig(.5 * (c - r)) - .2 * lsig(-.5 * (c - r)),
    "robust": lambda c, r, w, l_, m, n: (-.8 * lsig(.5 * (c - r)) + .2 * lsig(-.5 * (c - r))) / .6,
    "hinge": lambda c, r, w, l_, m, n: max(0, 1 - .5 * (c - r)),
    "ipo": lambda c, r, w, l_, m, n: (c - r - 1) ** 2,
    "ipo_mean": lambda c, r, w, l_, m, n: (c / m - r / n - 1) ** 2,
    "sigmoid_norm": lambda c, r, w, l_, m, n: -lsig(.5 * (c / m - r / n)),
    "exo_pair": lambda c, r, w, l_, m, n: (sigma(.5 * (c - r)) * math.log(sigma(.5 * (c - r)) / .9)
                                           + sigma(.5 * (r - c)) * math.log(sigma(.5 * (r - c)) / .1)),
    "nca_pair": lambda c, r, w, l_, m, n: -lsig(.5 * c) - lsig(-.5 * c) / 2 - lsig(-.5 * r) / 2,
    "bco_pair": lambda c, r, w, l_, m, n: -lsig(.5 * c) - lsig(-.5 * r),
    "sppo_hard": lambda c, r, w, l_, m, n: (c - 1) ** 2 + (r + 1) ** 2,
    "apo_zero": lambda c, r, w, l_, m, n: 1 - sigma(.5 * c) + sigma(.5 * r),
    "apo_down": lambda c, r, w, l_, m, n: sigma(.5 * c) + 1 - sigma(.5 * (c - r)),
    "discopop": lambda c, r, w, l_, m, n: ((1 - sigma(10 * (c - r))) * -lsig(.5 * (c - r))
                                           + sigma(10 * (c - r)) * math.exp(-.5 * (c - r))),
    "simpo": lambda c, r, w, l_, m, n: -lsig(.5 * (w / m - l_ / n) - .3),
    "cpo": lambda c, r, w, l_, m, n: -lsig(.5 * (w - l_)),
    "alphapo": lambda c, r, w, l_, m, n: -lsig(.5 * (math.exp(-.2 * l_ / n) - math.exp(-.2 * w / m)) / .2 - .3),
}
PAIRED = [choice.key for choice in PREFERENCE_LOSS.members if not (choice.own_answer or choice.opposed)]
WHOLE = {choice.key for choice in PREFERENCE_LOSS.members if choice.whole_batch}


@pytest.fixture
def given(generator):
    """The quantities of six pairs, in float64."""
    def normal():
        return torch.randn(6, generator=generator, dtype=torch.float64)
    logprobs = {f"{model}logprob_{side}": -3 - normal().abs() for model in ("", "ref_")
                for side in ("chosen", "rejected")}
    ratios = {f"log_ratio_{side}": logprobs[f"logprob_{side}"] - logprobs[f"ref_logprob_{side}"]
              for side in ("chosen", "rejected")}
    whole = {f"whole_{key}": value for key, value in {**logprobs, **ratios}.items() if not key.startswith("ref_")}
    theirs = torch.tensor([True, False, False, True, True, False])
    return {**logprobs, **ratios, **whole, "theirs_chosen": theirs, "theirs_rejected": ~theirs,
            "logprob_answer": -3 - normal().abs(),
            "mean_length_answer": torch.tensor(2.5, dtype=torch.float64),
            "mismatched_kl": torch.tensor(0.4, dtype=torch.float64),
            "length_chosen": torch.tensor([3, 1, 4, 2, 5, 2]), "length_rejected": torch.tensor([2, 2, 6, 1, 3, 4])}


def test_every_loss_has_a_slow_twin():
    assert {*SLOW, *WHOLE} == set(PAIRED)


@every("name", SLOW)
def test_a_loss_is_its_formula(name, given, close):
    columns = [given[key].tolist() for key in ("log_ratio_chosen", "log_ratio_rejected", "logprob_chosen",
                                               "logprob_rejected", "length_chosen", "length_rejected")]
    close(call(member(PREFERENCE_LOSS, name), KNOBS, given), [SLOW[name](*row) for row in zip(*columns, strict=True)])


def test_apo_of_single_completions_is_kto_at_a_reference_point_of_0(given, close):
    """TRL's lines: 1 − σ(βc) of the chosen, σ(βr) of the rejected, times their weights."""
    chosen, rejected = given["whole_log_ratio_chosen"], given["whole_log_ratio_rejected"][:4]
    expected = [1.5 * (1 - sigma(0.5 * c)) for c in chosen.tolist()] + [0.5 * sigma(0.5 * r) for r in rejected.tolist()]
    close(preferences.apo_zero_unpaired(chosen, rejected, 0.5, 1.5, 0.5), expected)
    close(preferences.kto(chosen, rejected, torch.zeros((), dtype=torch.float64), 0.5, 1.5, 0.5), expected)
    assert len(preferences.apo_zero_unpaired(chosen[:0], rejected, 0.5, 1.5, 0.5)) == 4


def test_kto_is_its_formula(given, close):
    """A desired gain and an undesired one, each against the same reference point; there may be one side only."""
    chosen, rejected = given["log_ratio_chosen"], given["log_ratio_rejected"][:2]
    expected = [1.5 * (1 - sigma(.5 * (c - .4))) for c in chosen.tolist()]
    expected += [.5 * (1 - sigma(.5 * (.4 - r))) for r in rejected.tolist()]
    close(preferences.kto(chosen, rejected, given["mismatched_kl"], 0.5, 1.5, 0.5), expected)
    assert len(preferences.kto(chosen, rejected[:0], given["mismatched_kl"], 0.5, 1.5, 0.5)) == 6


def test_the_reference_point_is_a_mean_that_is_never_negative(close):
    ratios = torch.tensor([0.5, 0.25, 0.75], dtype=torch.float64, requires_grad=True)
    point = preferences.reference_point(ratios)
    close(point, 0.5)
    assert not point.requires_grad and float(preferences.reference_point(-ratios)) == 0


def test_aot_compares_quantiles(given, close):
    margins = sorted((given["logprob_chosen"] - given["logprob_rejected"]).tolist())
    ref_margins = sorted((given["ref_logprob_chosen"] - given["ref_logprob_rejected"]).tolist())
    sorted_sides = [sorted(given[f"log_ratio_{side}"].tolist()) for side in ("chosen", "rejected")]
    for name, (first, second) in {"aot": (margins, ref_margins), "aot_unpaired": sorted_sides}.items():
        deltas = [.5 * (a - b) for a, b in zip(first, second, strict=True)]
        close(call(member(PREFERENCE_LOSS, name), KNOBS, given), [-.8 * lsig(d) - .2 * lsig(-d) for d in deltas])


def test_sft_and_orpo_count_every_token_of_the_batch_once(given, close):
    """The mean over pairs is the sum over all tokens over their number: 17 in the chosen completions."""
    nll = -given["logprob_chosen"].sum() / 17
    close(call(preferences.sft, KNOBS, given).mean(), nll)
    ratio = [lsig(odds(w / m) - odds(l / n)) for w, l, m, n in zip(*(given[key].tolist() for key in (
        "logprob_chosen", "logprob_rejected", "length_chosen", "length_rejected")), strict=True)]
    close(call(preferences.orpo, KNOBS, given).mean(), nll - 0.5 * sum(ratio) / 6)


def test_answers_count_every_token_once(given, close):
    """The answers of the batch have 15 tokens together, 2.5 each on average."""
    close(call(preferences.answer_sft, KNOBS, given).mean(), -given["logprob_answer"].sum() / 15)


def test_odds_of_a_certain_answer_are_finite(close):
    close(log_odds(torch.tensor([-1e-9, math.log(0.5), -50.0], dtype=torch.float64)), [
        -math.log(1e-9), 0, -50])
    certain = torch.zeros(1, requires_grad=True)
    assert log_odds(certain).isfinite() and torch.autograd.grad(log_odds(certain).sum(), certain)[0].isfinite()


@every("name", NAMES)
def test_gradients_are_those_of_finite_differences(name, given):
    function = member(PREFERENCE_LOSS, name)
    keys = [key for key in given if key in signature(function).parameters and given[key].is_floating_point()
            and key not in ("mismatched_kl", "mean_length_answer") and not key.startswith("ref_")]
    tensors = [given[key].clone().requires_grad_() for key in keys]
    assert torch.autograd.gradcheck(
        lambda *values: call(function, KNOBS, {**given, **dict(zip(keys, values, strict=True))}), tensors)


@every("name", PAIRED)
def test_a_step_downhill_raises_the_chosen_or_lowers_the_rejected_side(name, given):
    """Each loss increases the margin. APO-down lowers both log-probs."""
    tensors = {key: value.clone().requires_grad_() for key, value in given.items() if value.is_floating_point()
               and "ref" not in key and key != "mismatched_kl"}
    call(member(PREFERENCE_LOSS, name), KNOBS, {**given, **tensors}).sum().backward()
    slope = {side: sum(float(tensors[f"{kind}_{side}"].grad.sum())
                       for kind in ("log_ratio", "logprob", "whole_log_ratio", "whole_logprob")
                       if tensors[f"{kind}_{side}"].grad is not None) for side in ("chosen", "rejected")}
    assert slope["chosen"] < slope["rejected"]


@every("name", NAMES)
def test_the_catalog_says_what_a_loss_asks_for(name):
    choice, asked = PREFERENCE_LOSS[name], set(signature(member(PREFERENCE_LOSS, name)).parameters)
    assert choice.reference == any("log_ratio" in key or key.startswith("ref_") for key in asked)
    assert choice.own_answer == any("answer" in key for key in asked)
    assert choice.every_token == all(key.startswith("whole_") or "answer" in key
                                     for key in asked if "log" in key and key[:4] != "ref_")
    assert choice.mismatched == ("mismatched_kl" in asked)


@every("name", NAMES)
def test_only_losses_of_the_whole_batch_change_with_the_other_pairs(name, given, close):
    function = member(PREFERENCE_LOSS, name)
    whole = call(function, KNOBS, given)
    halves = [call(function, KNOBS, {key: value if value.ndim == 0 else value[rows] for key, value in given.items()})
              for rows in (slice(0, 3), slice(3, 6))]
    if name not in WHOLE:
        close(torch.cat(halves), whole)
    elif name not in ("kto", "apo_zero_unpaired"):  # they order completions differently, and need no pairs
        assert not torch.allclose(torch.cat(halves), whole)


def test_smoothing_of_0_is_dpo(given, close):
    plain = call(preferences.sigmoid, KNOBS, given)
    for name in ("cdpo", "robust"):
        close(call(member(PREFERENCE_LOSS, name), KNOBS | {"label_smoothing": 0.0}, given), plain)


def test_robust_dpo_takes_exchanged_labels_out(given, close):
    """With a fifth of the pairs exchanged, its expectation is DPO's loss on the pairs as they were."""
    chosen, rejected = given["log_ratio_chosen"], given["log_ratio_rejected"]
    noisy = (.8 * preferences.robust(chosen, rejected, .5, .2) + .2 * preferences.robust(rejected, chosen, .5, .2))
    close(noisy, preferences.sigmoid(chosen, rejected, .5))


def test_cdpo_is_least_where_the_labels_are_right_as_often_as_it_expects(close):
    delta = torch.tensor(math.log(.8 / .2) / .5, dtype=torch.float64, requires_grad=True)
    for loss in (lambda d: preferences.cdpo(d, 0 * d.detach(), .5, .2),
                 lambda d: preferences.exo_pair(d, 0 * d.detach(), .5, .2)):
        close(torch.autograd.grad(loss(delta), delta)[0], 0)


def test_far_margins_stay_finite():
    far = torch.tensor([300.0, -300.0], requires_grad=True)
    for name in ("sigmoid", "cdpo", "robust", "exo_pair", "discopop", "nca_pair", "bco_pair"):
        value = call(member(PREFERENCE_LOSS, name), KNOBS, {"log_ratio_chosen": far, "log_ratio_rejected": 0 * far})
        assert value.isfinite().all() and torch.autograd.grad(value.sum(), far)[0].isfinite().all(), name


# ---------------------------------------------------------------------------- DPO and IPO

def test_dpo_by_hand(close):
    chosen, rejected = torch.tensor([[2.0, 0.0, -1.0], [1.0, 1.0, 0.0]], dtype=torch.float64).requires_grad_()
    loss = preferences.sigmoid(chosen, rejected, 0.5)
    close(loss, [math.log(1 + math.exp(-0.5 * delta)) for delta in (1, -1, -1)])
    gradients = torch.autograd.grad(loss.sum(), (chosen, rejected))
    expected = torch.tensor([-0.5 / (1 + math.exp(0.5 * delta)) for delta in (1, -1, -1)], dtype=torch.float64)
    close(gradients[0], expected)
    close(gradients[1], -expected)


def test_at_the_reference_it_is_ln_2(close):
    log_ratios = torch.zeros(4, dtype=torch.float64)
    close(preferences.sigmoid(log_ratios, log_ratios, 0.1), [math.log(2)] * 4)


@pytest.mark.parametrize("loss", [preferences.sigmoid, preferences.ipo])
def test_only_the_difference_counts(close, generator, loss):
    chosen, rejected = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    close(loss(chosen + 3, rejected + 3, 0.1), loss(chosen, rejected, 0.1))


def test_ipo_by_hand(close):
    """β = 1/4 aims at a margin of 2."""
    chosen, rejected = torch.tensor([[2.0, 0.0, 3.0, 5.0], [0.0, 1.0, 0.0, -1.0]], dtype=torch.float64).requires_grad_()
    loss = preferences.ipo(chosen, rejected, 0.25)
    close(loss, [0, 9, 1, 16])
    gradients = torch.autograd.grad(loss.sum(), (chosen, rejected))
    close(gradients[0], [0, -6, 2, 8])
    close(gradients[1], [0, 6, -2, -8])


def test_ipo_at_the_reference(close):
    log_ratios = torch.zeros(4, dtype=torch.float64)
    close(preferences.ipo(log_ratios, log_ratios, 0.1), [25.0] * 4)


def test_ipo_stops_at_its_margin_and_dpo_does_not(close):
    """A certain preference: the logistic loss pushes on for ever, the squared one back from beyond 1/(2β)."""
    delta = torch.tensor([1.0, 5.0, 9.0], dtype=torch.float64, requires_grad=True)
    slopes = {loss: torch.autograd.grad(getattr(preferences, loss)(delta, 0 * delta.detach(), 0.1).sum(), delta)[0]
              for loss in ("sigmoid", "ipo")}
    assert (slopes["sigmoid"] < 0).all()
    close(slopes["ipo"], [-8, 0, 8])


def test_the_optimum_has_the_preference_probability(close):
    """With P(chosen) = 0.8 the expected loss is least where σ(βΔ) = 0.8: the model behind it is Bradley–Terry."""
    beta = 0.25
    delta = torch.tensor(math.log(0.8 / 0.2) / beta, dtype=torch.float64, requires_grad=True)
    zero = torch.zeros((), dtype=torch.float64)
    expected = 0.8 * preferences.sigmoid(delta, zero, beta) + 0.2 * preferences.sigmoid(zero, delta, beta)
    close(torch.autograd.grad(expected, delta)[0], 0)


# ---------------------------------------------------------------------------- divergences

SLOPES = {"reverse_kl": 1, "forward_kl": 1, "jensen_shannon": 0.5, "alpha": 1}


@pytest.mark.parametrize("name", DIVERGENCE.names)
def test_a_divergence_implies_no_reward_where_nothing_moved(name, close):
    ratio = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    reward = call(member(DIVERGENCE, name), {"divergence_alpha": 0.3}, {"log_ratios": ratio})
    close(reward, [0])
    close(torch.autograd.grad(reward.sum(), ratio)[0], [SLOPES[name]])


@pytest.mark.parametrize("name, derivative", [
    ("forward_kl", lambda u: 1 - 1 / u), ("jensen_shannon", lambda u: math.log(2 * u / (1 + u))),
    ("alpha", lambda u: (u**-.7 - 1) / -.7), ("reverse_kl", math.log)])
def test_a_divergence_is_its_formula(name, derivative, close):
    ratios = torch.tensor([-2.0, -0.3, 0.4, 1.7], dtype=torch.float64)
    close(call(member(DIVERGENCE, name), {"divergence_alpha": 0.3}, {"log_ratios": ratios}),
          [derivative(math.exp(x)) for x in ratios.tolist()])


def test_alpha_lies_between_the_two_kls(close):
    ratios = torch.tensor([-1.0, 0.5], dtype=torch.float64)
    close(divergences.alpha(ratios, 0.0), divergences.forward_kl(ratios))
    close(divergences.alpha(ratios, 1.0), ratios)
    close(divergences.alpha(ratios, 1 - 1e-5), ratios, torch.float32)


def test_divergences_far_from_the_reference_stay_finite():
    far = torch.tensor([-1e4, 1e4], requires_grad=True)
    for function in (divergences.forward_kl, divergences.jensen_shannon, lambda x: divergences.alpha(x, 0.0),
                     lambda x: divergences.alpha(x, 3.0)):
        value = function(far)
        assert value.isfinite().all() and torch.autograd.grad(value.sum(), far)[0].isfinite().all()


# ---------------------------------------------------------------------------- weights, SFT

def test_the_tail_of_the_longer_side_counts_less(close):
    logprobs = torch.tensor([[-1.0, -2.0, -4.0], [-8.0, 9.0, 9.0]], dtype=torch.float64)
    mask = torch.tensor([[True] * 3, [True, False, False]])
    for alpha, sums in ((1.0, [-7, -8]), (0.5, [-4, -8]), (0.0, [-1, -8])):
        close(preferences.without_tail(logprobs, mask, torch.tensor([1, 3]), alpha), sums)


def test_a_completion_as_likely_as_the_policy_s_own_has_weight_1(close):
    """Under a uniform policy every token is as likely as any: p = Σ p²."""
    logits = torch.zeros(2, 3, 4, dtype=torch.float64)
    logprobs = torch.full((2, 3), math.log(0.25), dtype=torch.float64)
    mask = torch.tensor([[True] * 3, [True, False, False]])
    close(preferences.likelihood(logprobs, log_square_sum(logits), mask), [1, 1])
    close(preferences.likelihood(logprobs - mask * 2, log_square_sum(logits), mask), [math.exp(-2)] * 2)


def test_the_square_sum_by_hand(close):
    close(log_square_sum(torch.tensor([.5, .3, .2], dtype=torch.float64).log()), math.log(.25 + .09 + .04))


def test_dft_weighs_a_token_by_its_probability_which_has_no_gradient(close):
    logprobs = torch.tensor([[math.log(.5), math.log(.1)]], dtype=torch.float64, requires_grad=True)
    close(supervised.dft(logprobs), [[-.5 * math.log(.5), -.1 * math.log(.1)]])
    close(torch.autograd.grad(supervised.dft(logprobs).sum(), logprobs)[0], [[-.5, -.1]])
    close(torch.autograd.grad(supervised.nll(logprobs).sum(), logprobs)[0], [[-1, -1]])
    close(supervised.dft(torch.zeros(1)), [0])
    assert {key for key in SFT_LOSS.names if not SFT_LOSS[key].teacher} == {"nll", "dft"}
