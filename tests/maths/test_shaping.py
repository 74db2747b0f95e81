import pytest
import torch

from labcore.maths import shaping

REWARDS = torch.tensor([1.0, 0.0, 1.0, 0.5, 1.0, -1.0], dtype=torch.float64)
LENGTHS = torch.tensor([1, 8, 9, 11, 12, 15])


def test_overlong_by_hand(close):
    """L = 12, c = 4: free up to 8 tokens, then a quarter per token, −1 at 12 and beyond."""
    penalty = torch.tensor([0, 0, -0.25, -0.75, -1, -1], dtype=torch.float64)
    close(shaping.overlong(REWARDS, LENGTHS, 12, 4, 1.0), REWARDS + penalty)
    close(shaping.overlong(REWARDS, LENGTHS, 12, 4, 0.5), REWARDS + penalty / 2)


@pytest.mark.parametrize(("limit", "buffer"), [(12, 4), (12, 12), (9, 1), (20480, 4096)])
def test_overlong_loop_twin(close, limit, buffer):
    lengths = torch.arange(1, 2 * limit, max(limit // 12, 1))
    expected = []
    for length in lengths.tolist():
        if length <= limit - buffer:
            expected.append(0.0)
        elif length <= limit:
            expected.append(((limit - buffer) - length) / buffer)
        else:
            expected.append(-1.0)
    shaped = shaping.overlong(torch.zeros(len(lengths), dtype=torch.float64), lengths, limit, buffer, 1.0)
    close(shaped, expected)
    assert (shaped.diff() <= 0).all() and shaped[0] <= 0 and shaped[-1] == -1


def test_overlong_without_a_buffer_is_a_step(close):
    close(shaping.overlong(torch.zeros(3, dtype=torch.float64), torch.tensor([11, 12, 13]), 12, 0, 1.0), [0, 0, -1])


def test_others_by_hand(close):
    close(shaping.length_cost(REWARDS, LENGTHS, 0.1), [0.9, -0.8, 0.1, -0.6, -0.2, -2.5])
    assert torch.equal(shaping.none(REWARDS), REWARDS)


def shaped(rewards):
    return {"none": shaping.none(rewards), "overlong": shaping.overlong(rewards, LENGTHS, 12, 4, 1.0),
            "length_cost": shaping.length_cost(rewards, LENGTHS, 0.1)}


@pytest.mark.parametrize("name", shaped(REWARDS))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_could_not_be_scored_stays_so(name, dtype):
    rewards = REWARDS.to(dtype).clone()
    rewards[[1, 4]] = torch.nan
    result = shaped(rewards)[name]
    assert result.dtype == dtype and torch.equal(result.isnan(), rewards.isnan())
    rest = ~rewards.isnan()
    assert torch.equal(result[rest], shaped(REWARDS.to(dtype))[name][rest])


def test_clipped_by_hand(close):
    rewards = torch.tensor([-3.0, -0.5, 0.2, 7.0, torch.nan], dtype=torch.float64)
    close(shaping.clipped(rewards, 0.5), [-0.5, -0.5, 0.2, 0.5, torch.nan])


def test_clipped_on_each_side_by_hand(close):
    """The lines of TRL's RLOOTrainer: `rewards.clamp(min=reward_clip_range[0], max=reward_clip_range[1])`."""
    rewards = torch.tensor([-3.0, -0.5, 0.2, 7.0, torch.nan], dtype=torch.float64)
    close(shaping.clipped_between(rewards, -1.0, 0.1), [-1.0, -0.5, 0.1, 0.1, torch.nan])
    close(shaping.clipped_between(rewards, 0.0, 2.0), [0.0, 0.0, 0.2, 2.0, torch.nan])
