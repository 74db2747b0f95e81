import math

import pytest
import torch

from labcore.catalog.choices import PREFERENCE_LOSS
from labcore.maths import preferences
from labcore.maths.call import member
from labcore.maths.masked import masked_sum
from tests.references import golden

GOLDEN = golden("trl_dpo_loss")
PLAIN = {"loss_type": ["sigmoid"], "loss_weights": None, "label_smoothing": 0.0, "f_divergence_type": "reverse_kl",
         "ld_alpha": None, "use_weighting": False}
CASES = [case for case in GOLDEN["cases"] if PLAIN.items() <= case["config"].items()]
IPO = [case for case in GOLDEN["cases"] if {**PLAIN, "loss_type": ["ipo"]}.items() <= case["config"].items()]


def test_by_hand(close):
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


@pytest.mark.parametrize("loss", [preferences.sigmoid, preferences.ipo])
def test_gradients_are_those_of_finite_differences(generator, loss):
    chosen, rejected = torch.randn(2, 5, generator=generator, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda c, r: loss(c, r, 0.3), (chosen, rejected))


def test_far_margins_stay_finite(close):
    far = torch.tensor([1e4, -1e4])
    close(preferences.sigmoid(far, torch.zeros(2), 1.0), [0, 1e4])


def test_the_optimum_has_the_preference_probability(close):
    """With P(chosen) = 0.8 the expected loss is least where σ(βΔ) = 0.8: the model behind it is Bradley–Terry."""
    beta = 0.25
    delta = torch.tensor(math.log(0.8 / 0.2) / beta, dtype=torch.float64, requires_grad=True)
    zero = torch.zeros((), dtype=torch.float64)
    expected = 0.8 * preferences.sigmoid(delta, zero, beta) + 0.2 * preferences.sigmoid(zero, delta, beta)
    close(torch.autograd.grad(expected, delta)[0], 0)


def pair_loss(case, loss, token_mean=False):
    """Mean loss over pairs, its gradient by the token log-probabilities, and the log-ratios (chosen, rejected).

    `token_mean` divides each log-ratio by its completion's length.
    """
    inputs = {key: torch.tensor(value, dtype=getattr(torch, case["config"]["dtype"]))
              for key, value in GOLDEN["inputs"].items()}
    logprobs, mask = inputs["per_token_logps"].requires_grad_(), inputs["completion_mask"][:, 1:].bool()
    log_ratios = masked_sum(logprobs - inputs["ref_per_token_logps"], mask, dim=1)
    if token_mean:
        log_ratios = log_ratios / mask.sum(1)
    chosen, rejected = log_ratios.chunk(2)
    value = loss(chosen, rejected, case["config"]["beta"]).mean()
    return value, torch.autograd.grad(value, logprobs)[0], chosen, rejected


@pytest.mark.parametrize("case", CASES, ids=[f"{c['config']['dtype']}-{c['config']['beta']}" for c in CASES])
def test_matches_trl(close, case):
    loss, gradient, chosen, rejected = pair_loss(case, preferences.sigmoid)
    close(loss, case["loss"])
    close(gradient, case["grad_logps"])
    beta, metrics = case["config"]["beta"], case["metrics"]
    close(beta * chosen.mean(), metrics["rewards/chosen"])
    close(beta * rejected.mean(), metrics["rewards/rejected"])
    close(beta * (chosen - rejected).mean(), metrics["rewards/margins"])
    close((chosen > rejected).double().mean(), metrics["rewards/accuracies"], torch.float32)


@pytest.mark.parametrize("case", IPO, ids=[str(case["config"]["beta"]) for case in IPO])
def test_ipo_matches_trl_on_token_means(close, case):
    """TRL's DPO averages the log-ratios over the tokens first. Given those, the loss is ours, value and gradient."""
    loss, gradient, _, _ = pair_loss(case, preferences.ipo, token_mean=True)
    close(loss, case["loss"])
    close(gradient, case["grad_logps"])
    summed, _, _, _ = pair_loss(case, preferences.ipo)
    with pytest.raises(AssertionError):
        close(summed, case["loss"])
    for mutant in (lambda c, r, beta: -preferences.ipo(c, r, beta), lambda c, r, beta: preferences.ipo(r, c, beta),
                   lambda c, r, beta: preferences.ipo(c, r, 2 * beta)):
        with pytest.raises(AssertionError):
            close(pair_loss(case, mutant, token_mean=True)[0], case["loss"])


@pytest.mark.parametrize("mutant", [
    lambda chosen, rejected, beta: -preferences.sigmoid(chosen, rejected, beta),
    lambda chosen, rejected, beta: preferences.sigmoid(rejected, chosen, beta),
    lambda chosen, rejected, beta: preferences.sigmoid(chosen, rejected, 1 / beta),
], ids=["sign", "sides", "beta"])
@pytest.mark.parametrize("case", CASES[:2])
def test_mistakes_are_rejected(close, case, mutant):
    loss, gradient, _, _ = pair_loss(case, mutant)
    with pytest.raises(AssertionError):
        close(loss, case["loss"])
    with pytest.raises(AssertionError):
        close(gradient, case["grad_logps"])


def test_there_are_all_cases():
    assert len(CASES) == 3 and len(IPO) == 2


def test_every_loss_of_the_catalog_is_a_function():
    assert "sigmoid" in PREFERENCE_LOSS.names
    for name in PREFERENCE_LOSS.names:
        assert member(PREFERENCE_LOSS, name) is getattr(preferences, name)
