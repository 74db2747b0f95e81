from math import isnan

import pytest
import torch
from torch.nn.functional import cross_entropy

from labcore.maths import advantages, selection
from labcore.maths.aggregation import token_mean
from labcore.maths.logprobs import selective_log_softmax
from labcore.maths.surrogates import score_function

NAN = torch.nan
# In turn: mixed, all equal, one not scored, only one scored, none scored, the rest equal, a tie for the best.
REWARDS = torch.tensor([[0.0, 1.0, 0.5], [0.7, 0.7, 0.7], [NAN, -1.0, 2.0], [NAN, 3.0, NAN], [NAN, NAN, NAN],
                        [NAN, 1.0, 1.0], [0.2, 0.9, 0.9]])


def test_informative_by_hand():
    assert selection.informative(REWARDS).tolist() == [
        [True] * 3, [False] * 3, [False, True, True], [False] * 3, [False] * 3, [False] * 3, [True] * 3]


def test_best_of_group_by_hand():
    assert selection.best_of_group(REWARDS).tolist() == [
        [False, True, False], [True, False, False], [False, False, True], [False, True, False], [False] * 3,
        [False, True, False], [False, True, False]]


def test_everything_and_not_truncated_by_hand():
    assert selection.everything(REWARDS).all() and selection.everything(REWARDS).shape == REWARDS.shape
    truncated = torch.zeros(7, 3, dtype=bool)
    truncated[0, 1] = truncated[4, 2] = True
    assert torch.equal(selection.not_truncated(REWARDS, truncated), ~truncated)


@pytest.mark.parametrize("group_size", [1, 2, 5])
def test_loop_twins(generator, group_size):
    # Few levels, so that ties and equal groups occur.
    rewards = torch.randint(0, 3, (200, group_size), generator=generator).double() / 2
    rewards[torch.rand(200, group_size, generator=generator) < 0.2] = NAN
    informative, best = selection.informative(rewards), selection.best_of_group(rewards)
    for p, row in enumerate(rewards.tolist()):
        scored = [i for i, reward in enumerate(row) if not isnan(reward)]
        mixed = len({row[i] for i in scored}) > 1
        assert informative[p].tolist() == [mixed and i in scored for i in range(group_size)]
        first = max(scored, key=lambda i: (row[i], -i)) if scored else None
        assert best[p].tolist() == [i == first for i in range(group_size)]
    assert group_size == 1 or (informative.any(1).any() and not informative.any(1).all())


@pytest.mark.parametrize("name", ["leave_one_out", "group_mean", "group_standardised"])
def test_what_is_not_informative_has_advantage_0(generator, name):
    """So leaving it out changes the denominators of the loss and nothing else."""
    rewards = torch.randint(0, 2, (50, 3), generator=generator).float()
    rewards[torch.rand(50, 3, generator=generator) < 0.1] = NAN
    kept, estimate = selection.informative(rewards), getattr(advantages, name)(rewards)
    assert kept.any() and not kept.all()
    assert (estimate[~kept] == 0).all() and (estimate[kept].view(-1) != 0).any()


def test_raft_is_supervised_fine_tuning_on_the_best(close, generator):
    """Best of group, weight 1, the score function and a token mean: the cross-entropy of the best completions."""
    logits = torch.randn(6, 4, 5, generator=generator, dtype=torch.float64).requires_grad_()
    tokens = torch.randint(0, 5, (6, 4), generator=generator)
    mask = torch.arange(4) < torch.tensor([4, 2, 3, 1, 4, 2])[:, None]
    rewards = torch.tensor([[0.0, 1.0, 1.0], [0.5, NAN, 0.2]])
    kept = mask & selection.best_of_group(rewards).view(-1, 1)
    weights = advantages.one(rewards.double()).view(-1, 1)
    surrogate = score_function(selective_log_softmax(logits, tokens), weights)
    loss = token_mean(-surrogate, kept, int(kept.sum()))
    best = [1, 3]
    supervised = cross_entropy(logits[best][mask[best]], tokens[best][mask[best]])
    close(loss, supervised.detach())
    close(torch.autograd.grad(loss, logits)[0], torch.autograd.grad(supervised, logits)[0])
