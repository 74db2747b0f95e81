"""Groups that wait between sampling and learning, and groups that are learnt from again: ages by hand."""

import pytest
import torch

from labcore.llm.group_queue import collect
from labcore.llm.loops import online
from labcore.llm.session import LlmSession
from tests.llm.tools import records, session, shake, spec
from tests.words import says

SIZE = {"prompts_per_step": 4, "group_size": 2, "max_new_tokens": 3}


def steps(started: LlmSession, count: int, updates: int = 1):
    """`count` batches with so many updates after each, which move nothing."""
    found = []
    for _ in range(count):
        found.append(collect(started))
        started.step, started.updates = started.step + 1, started.updates + updates
    return found


def ages(batches) -> list[list[int]]:
    return [batch.rollout.age.view(-1, 2)[:, 0].tolist() for batch in batches]


def test_a_batch_is_k_steps_old_once_k_steps_are_made():
    """k = 2 with 3 updates a step: 0, 3, then 6 updates. The first step samples all three batches."""
    started = session("grpo", steps=5, staleness=2, **SIZE)
    batches = steps(started, 5, updates=3)
    assert ages(batches) == [[0] * 4, [3] * 4, *[[6] * 4] * 3]
    assert [len(batch.sampled) for batch in batches] == [3, 1, 1, 1, 1]
    fresh = steps(session("grpo", steps=5, **SIZE), 5)
    asked = [[problem.prompt for problem in batch.batch.problems] for batch in batches]
    assert asked == [[problem.prompt for problem in batch.batch.problems] for batch in fresh], "the same, of each step"
    assert all(batch.rollout.age is None for batch in fresh) and fresh[0].rollout.apart is None


def test_completions_and_log_probs_are_those_of_the_policy_that_sampled():
    started = session("grpo", staleness=1, **SIZE)
    first = collect(started)
    waiting = started.queue[0].sampled
    shake(started.policy)
    started.step, started.updates = 1, 1
    second = collect(started).rollout
    assert torch.equal(second.ids, waiting.completions.ids)
    assert torch.equal(second.old_logprobs, waiting.completions.logprobs) and second.apart.all()
    assert first.rollout.apart is None


def test_ages_vary_in_a_mixed_queue_around_the_same_mean():
    """A group is taken with probability 1/(k + 1) at each step: its age is k on average, and has no bound."""
    started = session("grpo", staleness=2, staleness_order="mixed", **SIZE | {"max_new_tokens": 1})
    found = torch.tensor(ages(steps(started, 40))[10:])
    assert found.double().mean() == pytest.approx(2, abs=0.4) and found.max() > 4 and found.min() == 0


@pytest.mark.parametrize("staleness", [0, 1])
def test_what_was_sampled_is_never_dropped_while_no_knob_changes(staleness):
    """A share of 0.3 of 4 groups leaves 3 new ones a step, and the first step needs 4: the fourth is of a lot of one.
    """
    started = session("grpo", staleness=staleness, replay_share=0.3, replay_steps=2, **SIZE)
    found = steps(started, 4)
    sampled = [sum(len(round.problems) for round in batch.sampled) for batch in found]
    assert sampled == [4 + 3 * staleness, 3, 3, 3] and not started.notes


@pytest.mark.parametrize("algorithm", ["spo", "reinforce_average"])
def test_a_group_that_is_learnt_from_again_is_counted_once(algorithm, monkeypatch):
    """Half of 4 groups are replayed from the second step on: 4 + 2 + 2 + 2 new ones, for the mean of all rewards and
    for what is tracked of each prompt."""
    counted, real = [], online.learn_prompts
    monkeypatch.setattr(online, "learn_prompts", lambda session, problems, totals: (
        counted.append((len(problems), len(totals))), real(session, problems, totals)))
    started = session(algorithm, steps=4, replay_share=0.5, replay_steps=2, **SIZE | {"group_size": 1})
    records(started)
    assert counted == [(4, 4), *[(2, 2)] * 3] and started.past_count == 4 + 3 * 2


def test_a_share_of_the_batch_comes_from_groups_of_before():
    """Half of 4 groups: 2 new ones a step, and 2 of the newest 2 × 4 that were learnt from."""
    started = session("grpo", replay_share=0.5, replay_steps=2, **SIZE)
    batches = steps(started, 12)
    assert ages(batches)[0] == [0] * 4 and all(found[:2] == [0, 0] for found in ages(batches))
    again = [age for found in ages(batches)[6:] for age in found[2:]]
    assert set(again) <= {1, 2, 3, 4} and len(set(again)) > 1
    assert [sum(len(each.problems) for each in batch.sampled) for batch in batches] == [4, *[2] * 11]
    assert sum(map(len, started.replay)) == 8
    both = steps(session("grpo", replay_share=0.5, staleness=1, **SIZE), 3)
    assert [found[:2] for found in ages(both)] == [[0, 0], [1, 1], [1, 1]]


def test_a_smaller_k_drops_the_oldest_groups_and_says_so():
    started = session("grpo", staleness=3, **SIZE)
    steps(started, 4)
    started.knobs["staleness"] = 1
    assert ages(steps(started, 2)) == [[1] * 4] * 2
    assert [says(note, "8 sampled groups", "dropped", "shorter") for note in started.notes] == [True]
    started.knobs["group_size"] = 4
    assert collect(started).rollout.age.tolist() == [0] * 16
    started.knobs["staleness"] = 0
    assert collect(started).rollout.age is None and not started.queue and not started.replay


def test_rows_of_the_present_policy_have_ratios_of_exactly_1():
    rollout = collect(session("grpo", staleness=0, sampler_dtype="bf16", **SIZE)).rollout
    from dataclasses import replace
    mixed = replace(rollout, apart=torch.tensor([True] * 4 + [False] * 4))
    now = rollout.old_logprobs + 0.25
    met = mixed.met_by_sampler(now).old_logprobs
    assert torch.equal(met[:4], rollout.old_logprobs[:4])
    assert torch.equal(met[4:], now[4:].masked_fill(~rollout.completion_mask[4:], 0))


def test_a_run_without_a_queue_stores_none_and_a_fork_keeps_it_only_as_a_twin(tmp_path):
    plain = session("grpo", **SIZE)
    plain.save(tmp_path)
    assert not (tmp_path / "queue.safetensors").exists()
    started = session("grpo", staleness=2, **SIZE)
    collect(started)
    other = spec("grpo", staleness=2, **SIZE)
    from dataclasses import replace
    twin = replace(other, parent=("grpo-sort-0000", 1), twin=True)
    assert len(replace(started).fork(twin).queue) == 2 and not replace(started).fork(replace(twin, twin=False)).queue


def test_the_share_of_kept_completions_is_of_the_batch_also_with_replay():
    """Half of the batch comes again, so only half of it is sampled: the share is never above 1."""
    started = session("grpo", replay_share=0.5, overlong_filter=True, **SIZE | {"max_new_tokens": 30})
    batches = steps(started, 4)
    share = [float(batch.rollout.counted.any(1).double().mean()) for batch in batches]
    assert [batch.metrics["selection/kept_frac"] for batch in batches] == share and any(share[1:])


def test_a_queue_that_is_switched_off_says_what_it_drops():
    started = session("grpo", staleness=2, **SIZE)
    steps(started, 1)
    started.knobs["staleness"] = 0
    collect(started)
    assert [says(note, "8 sampled groups", "dropped", "shorter") for note in started.notes] == [True]
