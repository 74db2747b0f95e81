"""The advantage over an opponent: by hand, beside TRL's Nash-MD with its gradient, and at its limits."""

from math import exp, nan

import pytest
import torch

from labcore.maths.advantages import win_probability
from labcore.maths.aggregation import sequence_mean_token_sum
from labcore.maths.kl import k2
from labcore.maths.surrogates import score_function
from tests.references import golden

TRL = golden("trl_opponents")


def test_worked_by_hand(close):
    rewards = torch.tensor([[1.0, 0.0, 0.5], [nan, 1.0, 2.0]], dtype=torch.float64)
    opponents = torch.tensor([[0.0, 1.0, 0.5], [0.0, nan, 0.0]], dtype=torch.float64)
    won = 1 / (1 + exp(-1))
    close(win_probability(rewards, opponents), [[won - 0.5, 0.5 - won, 0.0], [0.0, 0.0, 1 / (1 + exp(-2)) - 0.5]])


@pytest.mark.parametrize("case", TRL["nash_md"], ids=lambda case: f"beta {case['beta']}")
def test_the_gradient_is_that_of_nash_md_in_trl(close, case):
    """The value of the KL's term is another one: TRL writes log π times the log-ratio, with the gradient of k2."""
    own, reference, rewards, opponents = (torch.tensor(case[key], dtype=torch.float64)
                                          for key in ("own", "reference", "rewards", "opponents"))
    mask, own = torch.tensor(TRL["mask"]), own.requires_grad_()
    advantages = win_probability(rewards[:, None], opponents[:, None]) * mask
    token_losses = case["beta"] * k2(own, reference) - score_function(own, advantages)
    loss = sequence_mean_token_sum(token_losses, mask, total_rows=3)
    close(torch.autograd.grad(loss, own)[0], torch.tensor(case["gradient"], dtype=torch.float64) * mask)  # TRL's of 0s
    if not case["beta"]:
        close(loss, case["loss"])


def test_no_reward_is_worth_more_than_a_sure_win(close):
    sure = win_probability(torch.tensor([[1e6]], dtype=torch.float64), torch.tensor([[0.0]], dtype=torch.float64))
    close(sure, [[0.5]])
    same = torch.full((2, 3), 0.3)
    assert not win_probability(same, same).any()
