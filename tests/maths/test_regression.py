"""GVPO, A*-PO and REAL: against their authors' code and TRL, by hand, and at their limits."""

from math import exp, log

import pytest
import torch

from labcore.maths import advantages, aggregation, ratios, regression
from tests.references import golden

GOLDEN = golden("later_rows")


@pytest.fixture
def given():
    inputs = golden("verl_rows")["inputs"]
    found = {name: torch.tensor(value, dtype=torch.float64) for name, value in inputs.items()}
    found["counted"] = found["completion_mask"].bool()
    found["logprobs"].requires_grad_()
    found["ratio"] = ratios.token(found["logprobs"], found["old_logprobs"], found["counted"])
    return found


def loss_of(terms, counted):
    return aggregation.sequence_mean_token_mean(-terms, counted, len(counted))


def check(close, given, terms, expected):
    loss = loss_of(terms, given["counted"])
    close(loss, expected["loss"])
    close(torch.autograd.grad(loss, given["logprobs"])[0], expected["gradient"])


def of_rows(values):
    return torch.tensor(values, dtype=torch.float64).view(6, 1).expand(6, 7)


def test_gvpo_is_its_authors(close, given):
    centred = of_rows(advantages.group_mean(given["rewards"]).tolist())
    terms = [regression.centred_regression(given["ratio"], centred, given["counted"], 3, beta) for beta in (0.3, 0.4)]
    check(close, given, terms[0], GOLDEN["gvpo"])
    with pytest.raises(AssertionError):
        check(close, given, terms[1], GOLDEN["gvpo"])


def test_a_star_po_is_trl_s(close, given):
    less = given["rewards"].flatten() - torch.tensor(GOLDEN["a2po"]["values"], dtype=torch.float64)
    terms = regression.regression(given["logprobs"], given["old_logprobs"], of_rows(less.tolist()), given["counted"],
                                  0.3)
    check(close, given, terms, GOLDEN["a2po"])


def test_real_is_its_authors(close, given):
    labels = of_rows(advantages.group_mean(torch.tensor(GOLDEN["real"]["rewards"], dtype=torch.float64)).tolist())
    terms = [regression.classifier(given["ratio"], labels, given["counted"], 3, tau) for tau in (0.5, 1.0)]
    check(close, given, terms[0], GOLDEN["real"])
    with pytest.raises(AssertionError):
        check(close, given, terms[1], GOLDEN["real"])


def test_by_hand():
    """A group of two, one token each: log-ratios 0.4 and −0.2, the first right."""
    ratio, counted = torch.tensor([[exp(0.4)], [exp(-0.2)]]), torch.ones(2, 1) > 0
    centred = torch.tensor([[0.5], [-0.5]])
    found = regression.centred_regression(ratio, centred, counted, 2, 0.5)
    assert found.flatten().tolist() == pytest.approx([-0.5 * 2 * (0.5 * 0.3 - 0.5) ** 2] * 2)
    found = regression.classifier(ratio, centred, counted, 2, 0.5)
    assert found.flatten().tolist() == pytest.approx([-log(1 + exp(-0.8)) - log(1 + exp(-0.4))] * 2)
    found = regression.regression(ratio.log(), torch.zeros(2, 1), centred, counted, 0.5)
    assert found.flatten().tolist() == pytest.approx([-(0.2 - 0.5) ** 2, -(-0.1 + 0.5) ** 2])


@pytest.mark.parametrize("name", ["centred_regression", "classifier"])
def test_what_does_not_count_takes_no_part(close, given, name):
    """Of three completions one is left out: the same as a group of the other two."""
    function, labels = getattr(regression, name), of_rows([0.5, -0.5, 0.0, 0.3, -0.3, 0.0])
    counted = given["counted"] & (torch.arange(6) % 3 < 2)[:, None]
    two = [0, 1, 3, 4]
    found = function(given["ratio"], labels, counted, 3, 0.4)[two]
    close(found, function(given["ratio"][two], labels[two], counted[two], 2, 0.4).tolist())


def test_a_group_on_one_side_says_nothing_and_one_alone_has_no_regression(given):
    same = regression.classifier(given["ratio"], torch.zeros(6, 1), given["counted"], 3, 0.5)
    assert not same.any() and not torch.autograd.grad(same.sum(), given["logprobs"])[0].any()
    alone = given["counted"] & (torch.arange(6) % 3 < 1)[:, None]
    found = regression.centred_regression(given["ratio"], torch.zeros(6, 1), alone, 3, 0.5)
    assert found[alone].abs().max() == 0


def test_the_value_of_the_best_policy_is_between_the_mean_and_the_best_reward(close):
    rewards = torch.tensor([[1.0, 0.0, 0.5], [0.0, torch.nan, 1.0], [torch.nan] * 3], dtype=torch.float64)
    found = advantages.soft_value(rewards, 0.5)
    close(found[:2], [0.5 * log((exp(2) + 1 + exp(1)) / 3), 0.5 * log((1 + exp(2)) / 2)])
    assert found[2].isnan()
    assert advantages.soft_value(rewards, 1e-3)[0] == pytest.approx(1.0, abs=2e-3)
    assert advantages.soft_value(rewards, 1e4)[0] == pytest.approx(0.5, abs=1e-4)
    values = torch.tensor([[0.25], [torch.nan], [0.0]], dtype=torch.float64)
    close(advantages.optimal_value(rewards, values), [[0.75, -0.25, 0.25], [0.0] * 3, [0.0] * 3])


def test_both_regressions_have_no_gradient_at_their_optimum(close, given):
    """π ∝ π_old e^(R/β) over the group, and π ∝ π_ref e^((R − V)/β), whatever sampled the completions."""
    rewards, beta, counted = given["rewards"], 0.4, given["counted"]
    apart = ((rewards - 0.3) / beta).view(6, 1) / counted.sum(1, keepdim=True)  # of each token
    logprobs = (given["old_logprobs"] + apart).detach().requires_grad_()
    ratio = ratios.token(logprobs, given["old_logprobs"], counted)
    centred = of_rows(advantages.group_mean(rewards).tolist())
    for terms in (regression.centred_regression(ratio, centred, counted, 3, beta),
                  regression.regression(logprobs, given["old_logprobs"], of_rows((rewards - 0.3).tolist()), counted,
                                        beta)):
        close(terms[counted], torch.zeros(int(counted.sum())).tolist())
        assert torch.autograd.grad(terms.sum(), logprobs)[0].abs().max() < 1e-9
