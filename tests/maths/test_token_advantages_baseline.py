"""OTB: against verl, against a slow loop, at its limits, and its variance."""


import pytest
import torch

from labcore.maths import advantages
from tests.references import golden

GOLDEN = golden("later_rows")["token_baseline"]
INPUTS = golden("verl_rows")["inputs"]
MASK = torch.tensor(INPUTS["completion_mask"]).bool()
OLD, SQUARES = (torch.tensor(each, dtype=torch.float64) for each in (INPUTS["old_logprobs"], GOLDEN["square_sums"]))


def rewards(name):
    return torch.tensor(GOLDEN["token_rewards"][name], dtype=torch.float64)


@pytest.mark.parametrize("name", ["last", "each"])
def test_it_is_verl_s(close, name):
    found = advantages.optimal_token_baseline(rewards(name), MASK, OLD, SQUARES, 3)
    close(found, GOLDEN[name])
    with pytest.raises(AssertionError):
        close(advantages.optimal_token_baseline(rewards(name), MASK, OLD, 2 * SQUARES, 3), GOLDEN[name])


def test_gaps_between_counted_tokens_change_nothing(close):
    """Tokens are compared by their number among the counted ones, as in verl's variant for several turns."""
    wide = torch.zeros(6, 9, dtype=torch.bool)
    wide[:, [0, 1, 3, 4, 6, 7, 8]] = MASK
    rows, places = wide, MASK

    def spread(values):
        return torch.full((6, 9), 7.0, dtype=torch.float64).masked_scatter(rows, values[places])
    found = advantages.optimal_token_baseline(*(spread(each) if torch.is_floating_point(each) else rows for each in (
        rewards("each"), MASK, OLD, SQUARES)), 3)
    close(found[wide], torch.tensor(GOLDEN["each"], dtype=torch.float64)[MASK])
    assert not found[~wide].any()


def test_what_could_not_be_scored_gets_0_and_is_in_no_baseline(close):
    scored = MASK.clone()
    scored[1] = False
    found = advantages.optimal_token_baseline(rewards("last").masked_fill(~scored, torch.nan), scored, OLD, SQUARES, 3)
    without = advantages.optimal_token_baseline(rewards("last")[[0, 2]], MASK[[0, 2]], OLD[[0, 2]], SQUARES[[0, 2]], 2)
    close(found[[0, 2]], without)
    assert not found[1].any()
    scored[2] = False
    assert not advantages.optimal_token_baseline(rewards("last"), scored, OLD, SQUARES, 3)[:3].any()  # one alone


@pytest.mark.parametrize("constant", [8.1, 0.1, 0.0])
def test_equal_returns_give_exactly_0(constant):
    last = torch.zeros(6, 7).scatter(1, MASK.sum(1, keepdim=True) - 1, constant)
    assert not advantages.optimal_token_baseline(last, MASK, OLD.float(), SQUARES.float(), 3).any()


def test_of_completions_alike_in_all_but_the_reward_it_is_the_group_s_mean():
    alike = torch.full((2, 3), 0.5).log(), torch.full((2, 3), 0.5)
    given = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    found = advantages.optimal_token_baseline(given, torch.ones(2, 3) > 0, *alike, 2)
    torch.testing.assert_close(found, torch.tensor([[0.5] * 3, [-0.5] * 3]))


def test_a_baseline_is_among_the_returns_of_its_group_also_where_an_older_policy_sampled():
    """1 − 2π + Σπ² of two policies may be below 0: weights of both signs would leave the baseline without a bound."""
    returns = torch.tensor([[0.0], [1.0], [0.5]])
    found = advantages.optimal_token_baseline(returns, torch.ones(3, 1) > 0, torch.tensor([[0.9], [0.8], [0.2]]).log(),
                                              torch.full((3, 1), 0.3), 3)
    baseline = returns - found
    assert (baseline >= 0).all() and (baseline <= 1).all()
