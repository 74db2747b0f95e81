import pytest
import torch

from labcore.catalog.choices import AGGREGATION
from labcore.maths import aggregation
from labcore.maths.call import call, member

LOSSES = torch.tensor([[1.0, 2.0, 3.0], [5.0, 7.0, 7.0], [9.0, 9.0, 9.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])


def test_by_hand(close):
    close(aggregation.sequence_mean_token_mean(LOSSES, MASK, total_rows=3), (2 + 5) / 3)
    close(aggregation.token_mean(LOSSES, MASK, total_tokens=4), 11 / 4)
    close(aggregation.constant_length(LOSSES, MASK, total_rows=3, max_new_tokens=8), 11 / 24)
    close(aggregation.sequence_mean_token_sum(LOSSES, MASK, total_rows=3), 11 / 3)


@pytest.mark.parametrize("key", AGGREGATION.names)
def test_weights_of_tokens(close, batch, key):
    """The gradient by the token losses is each token's weight: a loop twin of the four formulas."""
    losses, mask = batch["logprobs"].requires_grad_(), batch["completion_mask"]
    weights = torch.autograd.grad(call(member(AGGREGATION, key), {}, {**batch, "token_losses": losses}), losses)[0]
    for i in range(6):
        length = int(mask[i].sum())
        expected = {"sequence_mean_token_mean": 1 / 6 / max(length, 1), "token_mean": 1 / batch["total_tokens"],
                    "constant_length": 1 / (6 * 8), "sequence_mean_token_sum": 1 / 6}[key]
        close(weights[i], [expected] * length + [0] * (7 - length))


@pytest.mark.parametrize("key", AGGREGATION.names)
@pytest.mark.parametrize("cut", [(2, 4), (1, 2, 3), (4, 1, 1), (1,) * 6])
def test_gradient_does_not_depend_on_how_the_batch_is_cut(close, batch, key, cut):
    function, losses = member(AGGREGATION, key), batch["logprobs"].requires_grad_()
    whole = call(function, {}, {**batch, "token_losses": losses})
    parts = sum(call(function, {}, {**batch, "token_losses": part, "completion_mask": mask})
                for part, mask in zip(losses.split(cut), batch["completion_mask"].split(cut), strict=True))
    close(parts, whole)
    close(torch.autograd.grad(parts, losses)[0], torch.autograd.grad(whole, losses)[0])


def test_a_mean_of_means_would_depend_on_the_cut(close, batch):
    """The classic bug, for the record: each part divided by its own count of tokens."""
    losses, mask = batch["logprobs"], batch["completion_mask"]
    means = [aggregation.token_mean(losses[rows], mask[rows], int(mask[rows].sum()))
             for rows in (slice(0, 2), slice(2, 6))]
    with pytest.raises(AssertionError):
        close(sum(means) / 2, aggregation.token_mean(losses, mask, batch["total_tokens"]))


@pytest.mark.parametrize("key", AGGREGATION.names)
def test_what_does_not_count_is_never_read(batch, key):
    mask = batch["completion_mask"]
    losses = torch.where(mask, batch["logprobs"], torch.nan).requires_grad_()
    loss = call(member(AGGREGATION, key), {}, {**batch, "token_losses": losses})
    gradient = torch.autograd.grad(loss, losses)[0]
    assert loss.isfinite() and (gradient[~mask] == 0).all() and (gradient[mask] > 0).all()


@pytest.mark.parametrize("key", AGGREGATION.names)
def test_nothing_to_count_is_0(batch, key):
    quantities = {**batch, "token_losses": batch["logprobs"], "total_tokens": 0,
                  "completion_mask": torch.zeros_like(batch["completion_mask"])}
    assert call(member(AGGREGATION, key), {}, quantities) == 0


def test_equal_lengths_make_them_alike(close, batch):
    losses, mask = batch["logprobs"], torch.ones(6, 7, dtype=bool)
    mean = losses.mean()
    close(aggregation.sequence_mean_token_mean(losses, mask, 6), mean)
    close(aggregation.token_mean(losses, mask, 42), mean)
    close(aggregation.constant_length(losses, mask, 6, 7), mean)
    close(aggregation.sequence_mean_token_sum(losses, mask, 6), 7 * mean)
