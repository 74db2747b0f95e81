"""Rewards: from the verifier, with noise on top, and cut like every other column of a batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from labcore.errors import LabError
from labcore.llm.generation import Generated
from labcore.llm.rendering import encode_answers
from labcore.llm.rewards import Rewards, noisy_verifier, order_only, reward, steps_and_outcome, verified, verifier
from labcore.tasks import own_reward
from labcore.tasks.task import Problem, Score
from tests.llm.tools import Letters, records, session

TEXTS = ["aaaaaaaa", "zz", "ab", "az", "", "m" * 4]
EARNED = [1.0, 0.0, 0.25, 0.125, 0.0, 0.5]
PROBLEMS = [Problem("a=", "a")] * len(TEXTS)


class Own(Letters):
    """A task that gives 1 where the completion is the problem's own answer."""

    def score(self, problem, completion):
        return Score(float(completion == problem.answer), completion == problem.answer)


def test_the_verifier_s_word_for_each_completion():
    got = verifier(Letters(), PROBLEMS, TEXTS)
    assert got.total.tolist() == EARNED and got.total.dtype == torch.float64
    assert got.exact.tolist() == [value == 1 for value in EARNED]
    assert not got.parts and got.per_token is None


def test_every_completion_is_scored_on_its_own_problem():
    started, problems = session("grpo"), [Problem("a=", "x"), Problem("b=", "y")]
    started.task = Own()
    generated = Generated(None, None, ["x", "y", "x", "x", "y", "y"])
    for scored in (reward(started, problems, generated), verified(started, problems, generated)):
        assert scored.total.tolist() == [1, 0, 1, 0, 1, 1]


def test_noise_flips_its_share_and_says_what_was_earned():
    texts = TEXTS * 1000
    true = verifier(Letters(), PROBLEMS * 1000, texts)
    got = noisy_verifier(Letters(), PROBLEMS * 1000, texts, 0.3, np.random.default_rng(1))
    flipped = got.total != true.total
    assert torch.equal(got.total[flipped], 1 - true.total[flipped])
    assert torch.equal(got.parts["verifier"], true.total) and torch.equal(got.exact, true.exact)
    unlike_a_half = true.total != 0.5  # 1 − ½ is ½
    share = float(flipped[unlike_a_half].double().mean())
    assert abs(share - 0.3) < 4 * (0.3 * 0.7 / 5000) ** 0.5
    again = noisy_verifier(Letters(), PROBLEMS * 1000, texts, 0.3, np.random.default_rng(1))
    assert torch.equal(again.total, got.total)
    none = noisy_verifier(Letters(), PROBLEMS * 1000, texts, 0.0, np.random.default_rng(1))
    assert torch.equal(none.total, true.total)


def test_a_reward_that_is_missing_stays_missing_with_noise():
    class Unsure(Letters):
        def score(self, problem, completion):
            return Score(float("nan"), False)
    got = noisy_verifier(Unsure(), PROBLEMS, TEXTS, 0.5, np.random.default_rng(0))
    assert got.total.isnan().all() and not got.exact.any()


def test_rows_are_cut_from_every_column():
    rewards = Rewards(torch.arange(3.0), torch.tensor([True, False, True]), {"part": torch.arange(3.0) * 2},
                      torch.arange(6.0).view(3, 2))
    got = rewards[torch.tensor([2, 0])]
    assert got.total.tolist() == [2, 0] and got.exact.tolist() == [True, True]
    assert got.parts["part"].tolist() == [4, 0] and got.per_token.tolist() == [[4, 5], [0, 1]]
    assert Rewards(rewards.total, rewards.exact)[torch.tensor([1])].per_token is None


def test_a_run_with_noise_shows_what_it_really_earned():
    given = {"reward_source": "noisy_verifier", "reward_noise": 0.5, "prompts_per_step": 16}
    noisy, clean = records(session("grpo", **given))[0], records(session("grpo", prompts_per_step=16))[0]
    assert noisy.metrics["reward/verifier"] == pytest.approx(clean.metrics["reward"])  # the same completions
    assert noisy.metrics["reward"] != pytest.approx(clean.metrics["reward"])
    assert noisy.metrics["exact_match"] == clean.metrics["exact_match"] and "reward/verifier" not in clean.metrics
    assert records(session("grpo", **given))[0].metrics == noisy.metrics


def test_what_is_verified_has_no_noise():
    started = session("grpo", reward_source="noisy_verifier", reward_noise=0.5)
    generated = Generated(None, None, TEXTS)
    assert verified(started, PROBLEMS[:1], generated).total.tolist() == EARNED
    given = [reward(started, PROBLEMS[:1], generated).total.tolist() for _ in range(8)]
    assert any(totals != EARNED for totals in given)


def test_the_planted_hole_is_there_and_gold_is_the_truth():
    got = order_only(Letters(), PROBLEMS, ["aabz", "z", "", "ba", "ab", "m" * 8])
    assert got.total.tolist() == [1, 1, 0, 0, 1, 1]
    assert torch.equal(got.parts["gold"], verifier(Letters(), PROBLEMS, ["aabz", "z", "", "ba", "ab", "m" * 8]).total)


def test_every_right_character_earns_its_share_at_its_token():
    started = session("grpo", reward_source="steps_and_outcome")
    started.task = Own()
    texts, problems = ["132", "142", "1", "1320"], [Problem("47+85=", "132")] * 4
    completions = encode_answers(started.rendering, [Problem("q", "")] * len(texts), texts, 10, torch.device("cpu"))[1]
    got = steps_and_outcome(started.task, problems, texts, completions, started)
    third = pytest.approx(1 / 3)
    assert got.total.tolist() == [1, 0, 0, 0] and got.exact.tolist() == [True, False, False, False]
    assert [list(row) for row in got.per_token.tolist()] == [
        [third, third, third, 0, 0], [third, 0, third, 0, 0], [third, 0, 0, 0, 0], [third, third, third, 0, 0]]
    assert got.parts["steps"].tolist() == [pytest.approx(value) for value in (1, 2 / 3, 1 / 3, 1)]


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_a_run_learns_from_steps_too(algorithm):
    record = records(session(algorithm, task="add", letters=False, reward_source="steps_and_outcome", steps=1))[0]
    assert 0 <= record.metrics["reward/steps"] <= 1 and "reward/gold" not in record.metrics


def test_a_function_of_ones_own_gives_the_rewards(tmp_path, monkeypatch):
    monkeypatch.setattr(own_reward, "_given", {})
    (tmp_path / "mine.py").write_text("def length(completions, **_):\n    return [len(c) for c in completions]\n")
    name = own_reward.give(f"{tmp_path / 'mine.py'}:length")
    given = {"reward_source": "own_function", "reward_function": name}
    record = records(session("grpo", **given, steps=1))[0]
    plain = records(session("grpo", steps=1))[0]
    assert record.metrics["reward/gold"] == pytest.approx(plain.metrics["reward"])
    assert 0 < record.metrics["reward"] <= 6
    own_reward._given.clear()  # another process, such as a worker of the page
    with pytest.raises(LabError, match=r"mine\.py:length with the hash .*: resume it on the command line"):
        session("grpo", **given)
