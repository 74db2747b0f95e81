"""Advantages of turns: by hand, beside a slow loop, and as the usual ones where there is one turn."""

import torch

from labcore.maths import advantages, returns, turns

# Two groups of two episodes; a hole is an observation.
MASK = torch.tensor([[1, 1, 0, 1, 0, 1], [1, 0, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0]]).bool()
REWARDS = torch.tensor([[0, 1.0, 9, 2, 9, 4], [3, 9, 0, 5, 9, 9], [0, 0, 7, 9, 9, 9], [1, 9, 9, 6, 9, 9]])


def test_by_hand(close):
    got = advantages.turn_return(REWARDS, MASK, 2)
    # Returns from each turn on: 7 6 4 and 8 5; 7 and 7 6. The third turn of the first is alone: its baseline is 0.
    close(got, [[-1, -1, 0, 1, 0, 4], [1, 0, -1, -1, 0, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 6, 0, 0]])


def test_the_return_of_others_is_the_mean_of_those_that_have_the_turn(close, generator):
    mask = torch.rand(12, 9, generator=generator) < 0.7
    mask[:, 0] = True
    rewards = torch.randn(12, 9, generator=generator, dtype=torch.float64)
    got = advantages.turn_return(rewards, mask, 4)
    sums, counts = turns.per_turn(rewards, mask).tolist(), turns.count(mask).tolist()
    for row in range(12):
        group = [other for other in range(row // 4 * 4, row // 4 * 4 + 4) if other != row]
        for turn in range(counts[row]):
            others = [sum(sums[other][turn:]) for other in group if counts[other] > turn]
            expected = sum(sums[row][turn:]) - (sum(others) / len(others) if others else 0)
            close(got[row][mask[row] & (turns.numbers(mask)[row] == turn)][0], expected)


def test_of_one_turn_it_is_leave_one_out(close):
    mask = torch.arange(3) < torch.tensor([[3], [1], [2], [3]])
    rewards = torch.tensor([1.0, 0.0, 4.0, 2.0])
    placed = torch.zeros(4, 3).scatter(1, mask.sum(1, keepdim=True) - 1, rewards[:, None])
    close(advantages.turn_return(placed, mask, 2),
          advantages.leave_one_out(rewards.view(2, 2)).reshape(4, 1) * mask)


def test_gae_over_turns_by_hand(close):
    """Two turns of two tokens. δ₂ = 1 − 0.4 = 0.6; δ₁ = 0.5 + 0.9·0.4 − 0.2 = 0.66; A₁ = 0.66 + 0.9·0.8·0.6 = 1.092.
    A turn's other token compares the same return with its own value: 1.092 + 0.2 − 0.3, and 0.6 + 0.4 − 0.6."""
    mask = torch.tensor([[1, 1, 0, 1, 1]]).bool()
    rewards, values = torch.tensor([[0, 0.5, 9, 0, 1]]), torch.tensor([[0.2, 0.3, 9, 0.4, 0.6]])
    close(advantages.turn_gae(rewards, values, mask, 0.9, 0.8), [[1.092, 0.992, 0, 0.6, 0.4]])
    close(advantages.turn_gae(rewards, values, mask, 0.9, 0.0), [[0.66, 0.56, 0, 0.6, 0.4]])
    close(advantages.turn_gae(rewards, values, mask, 1.0, 1.0), [[1.3, 1.2, 0, 0.6, 0.4]])


def test_gae_over_turns_steps_from_turn_to_turn(close, generator):
    values = torch.randn(4, 6, generator=generator)
    got = advantages.turn_gae(REWARDS, values, MASK, 0.9, 0.8)
    for row in range(4):
        numbers, count = turns.numbers(MASK)[row], int(turns.count(MASK)[row])
        own = [(MASK[row] & (numbers == turn)).nonzero()[:, 0].tolist() for turn in range(count)]
        rewards, firsts = ([float(REWARDS[row, places].sum()) for places in own],
                           [float(values[row, places[0]]) for places in own])
        advantage, following = 0.0, 0.0
        for turn in reversed(range(count)):
            advantage = rewards[turn] + 0.9 * following - firsts[turn] + 0.9 * 0.8 * advantage
            following = firsts[turn]
            for place in own[turn]:
                close(got[row, place], advantage + firsts[turn] - float(values[row, place]))
    assert not got[~MASK].any()


def test_gae_over_turns_of_one_token_each_is_gae(close, generator):
    mask = torch.tensor([[1, 0, 1, 0, 1, 0], [1, 0, 0, 1, 0, 0]]).bool()
    rewards, values = torch.randn(2, 2, 6, generator=generator)
    close(advantages.turn_gae(rewards, values, mask, 0.9, 0.7), returns.gae(rewards, values, mask, 0.9, 0.7))
