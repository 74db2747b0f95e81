"""Rewards: from the verifier, with noise on top, and cut like every other column of a batch."""

import json

import numpy as np
import pytest
import torch

from labcore.catalog.reward_terms import BUILT_IN
from labcore.errors import LabError
from labcore.llm import rewards
from labcore.llm.generation import Generated
from labcore.llm.rendering import encode_answers
from labcore.llm.rewards import Rewards, noisy_verifier, order_only, reward, steps_and_outcome, verdict, verified
from labcore.runs.spec.run_spec import with_knob
from labcore.tasks import own_reward
from labcore.tasks.task import Problem, Score
from tests.llm.tokenizers import byte_level, sentencepiece
from tests.llm.tools import Letters, records, session
from tests.words import says

TEXTS = ["aaaaaaaa", "zz", "ab", "az", "", "m" * 4]
EARNED = [1.0, 0.0, 0.25, 0.125, 0.0, 0.5]
PROBLEMS = [Problem("a=", "a")] * len(TEXTS)


class Own(Letters):
    """A task that gives 1 where the completion is the problem's own answer."""

    def score(self, problem, completion):
        return Score(float(completion == problem.answer), completion == problem.answer)


def test_the_verifier_s_word_for_each_completion():
    got = verdict(Letters(), PROBLEMS, TEXTS)
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
    true = verdict(Letters(), PROBLEMS * 1000, texts)
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
    assert torch.equal(got.parts["gold"], verdict(Letters(), PROBLEMS, ["aabz", "z", "", "ba", "ab", "m" * 8]).total)


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


@pytest.mark.parametrize("tokenizer, text", [(byte_level(), "日本🎉x"), (sentencepiece(), "What is the sum ?")])
def test_the_right_answer_earns_all_of_it_whatever_its_tokens_are(tokenizer, text):
    """A character may take several tokens, and a SentencePiece token alone loses its space."""
    started = session("grpo", reward_source="steps_and_outcome")
    started.tokenizer = tokenizer
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    found = rewards._step_rewards(started, text, ids)
    assert len(found) == len(ids) and sum(found) == pytest.approx(1) and found[-1] == 0


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_a_run_learns_from_steps_too(algorithm):
    record = records(session(algorithm, task="add", letters=False, reward_source="steps_and_outcome", steps=1))[0]
    assert 0 <= record.metrics["reward/steps"] <= 1 and "reward/gold" not in record.metrics


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The knobs of functions that are written into a file."""
    for name in ("_given", "_modules"):
        monkeypatch.setattr(own_reward, name, {})

    def knobs(body, *names, **more):
        (tmp_path / "mine.py").write_text(body)
        keys = [name if name in BUILT_IN else own_reward.register(f"{tmp_path / 'mine.py'}:{name}") for name in names]
        return {"reward_source": "own_function", "reward_function": " + ".join(keys), **more}

    return knobs


LENGTH = "def length(completions, **_):\n    return [len(c) for c in completions]\n"


def test_a_function_of_ones_own_gives_the_rewards(own):
    record = records(session("grpo", **own(LENGTH, "length"), steps=1))[0]
    plain = records(session("grpo", steps=1))[0]
    assert record.metrics["reward/gold"] == pytest.approx(plain.metrics["reward"])
    assert 0 < record.metrics["reward"] <= 6 and record.metrics["unscored/reward"] == 0
    assert "reward/length" not in record.metrics  # the reward itself


def test_several_are_summed_by_their_weights_and_each_is_a_part(own):
    body = LENGTH + "def odd(completions, **_):\n    return [len(c) % 2 if c else None for c in completions]\n"
    knobs = own(body, "length", "odd", "verifier", reward_weights="0.5 -2 1")
    started, texts = session("grpo", **knobs), ["abc", "", "zzzz"]
    generated = Generated(None, encode_answers(started.rendering, [Problem("q", "")] * 3, texts, 10,
                                               torch.device("cpu"))[1], texts)
    got = reward(started, [Problem("a=", "a")], generated)
    true = [3 / 8, 0, 0]
    assert got.total.tolist() == [0.5 * 3 - 2 * 1 + true[0], 0, 0.5 * 4]  # the empty one: of the other two alone
    assert got.parts["length"].tolist() == [3, 0, 4] and got.parts["verifier"].tolist() == true
    assert got.parts["odd"][1].isnan() and got.weights == {"length": 0.5, "odd": -2, "verifier": 1}
    started.knobs["reward_weights"] = ""
    assert reward(started, [Problem("a=", "a")], generated).total.tolist() == [3 + 1 + true[0], 0, 4]


@pytest.mark.parametrize("algorithm", ["grpo", "gdpo"])
def test_each_of_several_is_a_curve_and_is_seen_in_the_pictures(own, algorithm):
    """GDPO compares each by itself."""
    body = LENGTH + "def odd(completions, **_):\n    return [len(c) % 2 for c in completions]\n"
    started = session(algorithm, **own(body, "length", "odd", reward_weights="1 3"), steps=1)
    record = records(started, pictures=True)[0]
    metrics = record.metrics
    assert metrics["reward"] == pytest.approx(metrics["reward/length"] + 3 * metrics["reward/odd"])
    assert {"unscored/reward", "unscored/length", "unscored/odd", "reward/gold"} <= metrics.keys()
    for completion in record.samples["groups"][0]["completions"]:
        assert completion["parts"]["length"] == len(completion["text"])
        assert completion["reward"] == completion["parts"]["length"] + 3 * completion["parts"]["odd"]
    answers = [answer for group in record.samples["watched"] for answer in group["answers"] if "parts" in answer]
    assert all(answer["parts"].keys() == {"length", "odd", "gold"} for answer in answers)


def test_a_group_without_any_reward_teaches_nothing_and_says_so_once(own):
    body = ("def f(prompts, completions):\n"
            "    return [None if prompt == 'a' else len(text) for prompt, text in zip(prompts, completions)]")
    started = session("grpo", **own(body, "f"), steps=3, prompts_per_step=8)
    found = records(started)
    silent = [record for record in found if record.metrics["unscored/reward"]]
    assert silent and all(record.metrics["grad_norm"] > 0 for record in silent)
    said = [note for record in found for note in record.notes]
    share = silent[0].metrics["frac_reward_unscored"]
    assert 0 < share == silent[0].metrics["unscored/reward"] < 1 and len(said) <= len(silent)
    assert says(said[0], f"step {silent[0].step}", "reward f", f"{round(8 * share)} of 8 prompts",
                "return a number instead of None")


def test_held_out_rows_without_any_reward_are_no_news(own, tmp_path):
    """Nothing is learnt from them."""
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"prompt": f"{n}=", "answer": "1"}) + "\n"
                                                 for n in range(40)))
    held = {row.prompt for row in session("grpo", task="prompts", letters=False, verifier="exact",
                                          data=str(tmp_path / "rows.jsonl")).task.held}
    body = (f"def f(prompts, completions):\n    return [None if prompt in {held!r} else 1 + len(text)"
            " for prompt, text in zip(prompts, completions)]")
    found = records(session("grpo", **own(body, "f"), task="prompts", letters=False, verifier="exact", steps=2,
                            held_out_every=1, data=str(tmp_path / "rows.jsonl")))
    assert "held_out/greedy" in found[0].metrics and "held_out/reward" not in found[0].metrics
    assert not any("No reward scored" in note for record in found for note in record.notes)


def test_a_function_may_be_called_reward(own):
    body = "def reward(completions):\n    return [None] + [1] * (len(completions) - 1)"
    record = records(session("grpo", **own(body, "reward", "verifier"), steps=1))[0]
    assert record.metrics["unscored/reward"] == 0 < record.metrics["unscored/mine.reward"]


def test_a_batch_without_any_reward_is_no_update(own):
    started = session("grpo", **own("def f(completions):\n    return [None] * len(completions)", "f"), steps=1)
    [record] = records(started)
    assert started.moves == 0 and record.metrics["unscored/reward"] == 1 and "reward" not in record.metrics


def test_a_column_that_is_missing_is_said_before_the_first_step(own):
    knobs = own("def f(completions, ground_truth): ...", "f")
    with pytest.raises(LabError, match=r"mine\.py:f asks for the column 'ground_truth'.*The columns are answer\."):
        session("grpo", **knobs)


def test_a_function_knows_how_far_the_run_is(own):
    body = ("seen = []\ndef f(completions, trainer_state):\n"
            "    seen.append((trainer_state.global_step, trainer_state.max_steps)); return [1] * len(completions)\n")
    knobs = own(body, "f", updates_per_batch=2)
    records(session("grpo", **knobs, steps=3))
    assert own_reward.function(knobs["reward_function"]).__globals__["seen"] == [(0, 6), (2, 6), (4, 6)]


@pytest.mark.parametrize("wrong, match", [
    ({"reward_function": ""}, "choose them in `reward_function`"), ({"reward_function": "os.system"}, "cannot be used"),
    ({"reward_function": "verifier + verifier"}, "is named twice"), ({"reward_weights": "1 2"}, "has 2 numbers for 1"),
    ({"reward_weights": "much"}, "write a number for each"), ({"reward_weights": "inf"}, "write a number for each")])
def test_a_sum_that_cannot_be_is_said_in_words(wrong, match):
    with pytest.raises(LabError, match=match):
        session("grpo", **{"reward_source": "own_function", "reward_function": "verifier", **wrong})


def test_weights_cannot_be_moved_to_what_they_cannot_be(own):
    spec = session("grpo", **own(LENGTH, "length", "verifier"), steps=1).spec
    assert with_knob(spec, "reward_weights", "1 0.5").knobs["reward_weights"] == "1 0.5"
    with pytest.raises(LabError, match="has 3 numbers for 2 rewards"):
        with_knob(spec, "reward_weights", "1 2 3")
