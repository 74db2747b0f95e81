"""Sampling further batches until groups have signal: which groups are kept, how often, and what they are joined to."""

import pytest
import torch

from labcore.llm.experience import collect, groups_of, joined, sample_round
from labcore.llm.generation import token_logprobs
from labcore.tasks.task import Problem
from tests.llm.test_experience import Partly, finite
from tests.llm.tools import records, session, shake, weights


def drawn(flat, resample_rounds, prompts=8, **knobs):
    started = session("dapo", prompts_per_step=prompts, resample_rounds=resample_rounds, shaping="none", **knobs)
    started.task = Partly(flat)
    return started


def test_a_batch_is_filled_with_groups_that_have_signal():
    started = drawn(0.5, 8)
    batch = collect(started)
    assert 1 < len(batch.sampled) <= 9 and batch.rollout.kept is None
    assert len(batch.batch.problems) == 8 and all(p.answer.startswith("live") for p in batch.batch.problems)
    names = [problem.answer for each in batch.sampled for problem in each.problems]
    assert len(set(names)) == len(names) == 8 * len(batch.sampled), "every round has prompts of its own"
    live = [name for name in names if name.startswith("live")]
    assert [problem.answer for problem in batch.batch.problems] == live[:8]
    assert sum(name.startswith("live") for name in names[:-8]) < 8, "the last round was needed"
    assert batch.metrics["selection/rounds"] == len(batch.sampled)
    assert batch.metrics["selection/kept_frac"] == pytest.approx(32 / (4 * len(names)))
    assert started.tokens == sum(int(each.completions.mask.sum()) for each in batch.sampled)
    assert batch.metrics["frac_reward_zero_std"] == pytest.approx(1 - len(live) / len(names), abs=1e-6)
    for row, text in enumerate(batch.batch.texts):
        expected = started.task.score(batch.batch.problems[row // 4], text).reward
        assert batch.rollout.shaped[row].item() == pytest.approx(expected)


def test_a_batch_that_is_full_at_once_is_not_sampled_again():
    batch = collect(drawn(0.0, 8))
    assert len(batch.sampled) == 1 and batch.sampled[0].kept_groups.all()


@pytest.mark.parametrize("rounds", [0, 2])
def test_at_most_so_many_rounds(rounds):
    started = drawn(1.0, rounds)
    batch = collect(started)
    assert len(batch.sampled) == 1 + rounds and len(batch.batch.problems) == 8 and not batch.rollout.kept.any()
    started = drawn(1.0, rounds, steps=2)
    before = weights(started.policy)
    found = records(started)
    finite(started, found)
    assert [record.metrics["grad_norm"] for record in found] == [0, 0]
    assert torch.equal(weights(started.policy), before)
    assert [record.metrics["selection/kept_frac"] for record in found] == [0, 0]


def test_what_is_missing_stays_without_being_learnt_from():
    started = drawn(0.8, 1, prompts=10)
    batch = collect(started)
    live = torch.tensor([problem.answer.startswith("live") for problem in batch.batch.problems])
    total = sum(problem.answer.startswith("live") for each in batch.sampled for problem in each.problems)
    assert len(batch.sampled) == 2 and 0 < int(live.sum()) == total < 10
    assert torch.equal(batch.rollout.kept.view(10, 4), live[:, None].expand(10, 4))


def test_a_penalty_of_length_gives_no_signal_to_groups_that_are_all_wrong():
    """DAPO keeps groups with 0 < #right < G: what its overlong penalty adds is no verdict."""
    started = session("dapo", prompts_per_step=8, resample_rounds=0, max_new_tokens=20, overlong_buffer=19)
    started.task = Partly(0.5)
    batch = collect(started)
    live = torch.tensor([problem.answer.startswith("live") for problem in batch.batch.problems])
    spread = batch.rollout.shaped.view(8, 4).std(1)
    assert (spread[~live] > 0).any() and live.any()
    assert torch.equal(batch.batch.kept_groups, live)


def test_rounds_of_different_widths_are_joined_without_a_change():
    started = session("dapo")
    shake(started.policy, by=0.3)
    rounds = []
    for number, limit in enumerate((6, 3, 5)):
        started.knobs["max_new_tokens"] = limit
        started.task.problems = lambda count, rng, width=1 + number: [Problem("a" * width, "a")] * count
        rounds.append(sample_round(started, number))
    whole = joined(rounds)
    assert whole.prompts.ids.shape == (12, 3) and whole.completions.ids.shape == (48, 6)
    assert whole.texts == [text for each in rounds for text in each.texts]
    together = token_logprobs(started, started.policy, whole.prompts, whole.completions)
    for number, each in enumerate(rounds):
        rows, width = slice(16 * number, 16 * number + 16), each.completions.ids.shape[1]
        alone = token_logprobs(started, started.policy, each.prompts, each.completions)
        torch.testing.assert_close(together[rows, :width], alone, rtol=1e-4, atol=1e-5)
        assert (together[rows, width:] == 0).all() and not whole.completions.mask[rows, width:].any()
        part = groups_of(whole, torch.arange(4 * number, 4 * number + 4))
        assert part.texts == each.texts and torch.equal(part.shaped, each.shaped)
        assert torch.equal(part.completions.logprobs[:, :width], each.completions.logprobs)
    assert groups_of(whole, torch.tensor([9, 2])).texts == whole.texts[36:40] + whole.texts[8:12]
