"""Pairs: of a file, of the reference once, or of the policy at every step."""

import json
from dataclasses import replace
from itertools import chain
from math import log, nan
from unittest.mock import patch

import pytest
import torch

from labcore.errors import LabError
from labcore.llm import pairs
from labcore.llm import preference_objective as objective
from labcore.llm.batch import Completions
from labcore.llm.generation import Generated, generate
from labcore.llm.loops import preference
from labcore.llm.preference_objective import Sides
from labcore.llm.session import LlmSession
from labcore.runs.files import bases
from labcore.runs.spec.run_spec import base_spec, make
from labcore.tasks.task import Pair, Score
from tests.llm.tools import records, session, shake, weights


def given(monkeypatch, groups, **knobs):
    """The pairs of a step whose prompts got completions named by their place, with these rewards."""
    size = len(groups[0])
    started = session("online_dpo", pairs_per_step=len(groups), group_size=size, **knobs)
    rewards = {f"{prompt}{place}": reward for prompt, row in enumerate(groups) for place, reward in enumerate(row)}
    mask = torch.ones(len(rewards), 2, dtype=torch.bool)
    cut = torch.arange(len(rewards)) % 2 == 1
    monkeypatch.setattr(pairs, "generate", lambda *_: Generated(
        None, Completions(mask.long(), mask, cut, torch.zeros(mask.shape)), list(rewards)))
    monkeypatch.setattr(pairs, "kl_to_reference", lambda *_: {})
    monkeypatch.setattr(started.task, "score", lambda problem, text: Score(rewards[text], False), raising=False)
    return pairs.next_pairs(started), started


@pytest.mark.parametrize("rewards, chosen, rejected", [
    ([0.1, 0.9, 0.0, 0.5], 1, 2), ([0.5, 0.5, 0.5, 0.5], 0, 3), ([1.0, 0.0, 1.0, 0.0], 0, 3),
    ([0.0, 1.0, 0.0, 1.0], 1, 2), ([nan, 0.2, 0.1, nan], 1, 2), ([nan, nan, 0.3, nan], 2, 2), ([nan] * 4, 0, 0)])
def test_the_best_is_chosen_and_the_worst_rejected(rewards, chosen, rejected, monkeypatch):
    found, _ = given(monkeypatch, [rewards, [1.0, 0.0, 0.5, 0.5]])
    first, second = found.pairs
    assert (first.chosen, first.rejected) == (f"0{chosen}", f"0{rejected}")
    assert (first.chosen_truncated, first.rejected_truncated) == (chosen % 2 == 1, rejected % 2 == 1)
    assert (second.chosen, second.rejected) == ("10", "11")


def test_what_a_step_measures_is_of_all_that_was_sampled(monkeypatch):
    found, started = given(monkeypatch, [[1.0, 0.0], [0.5, 0.5], [0.25, nan]])
    assert found.metrics["reward"] == pytest.approx(2.25 / 5)
    assert found.metrics["frac_reward_zero_std"] == pytest.approx(2 / 3)
    assert started.tokens == 12


@pytest.mark.parametrize("key", ["online_dpo", "dpo"])
def test_pairs_are_learnt_from_as_they_were_sampled(key):
    """A special token that was sampled stays one token, and a checkpoint keeps it."""
    started = session(key, pairs="policy_each_step" if key == "online_dpo" else "reference_once")
    if key == "dpo":
        started.pairs = pairs.sample_once(started)
    found = pairs.next_pairs(started).pairs
    marked = [replace(pair, sampled=((2, 0, 1), (2, 2))) for pair in found]
    for each in (marked, [Pair(**json.loads(json.dumps(vars(pair)))) for pair in marked]):
        completions = preference.encode(started, each)[1]
        assert completions.ids[:2].tolist() == [[2, 0, 1], [2, 2, completions.ids[1, 2]]]
        assert completions.lengths.tolist() == [3, 2] * len(found)
    texts = [replace(pair, sampled=()) for pair in found]
    plain = [pair for pair in found if not {0, 2} & {*chain.from_iterable(pair.sampled)}]
    assert plain and all(encoded(started, [pair]) == encoded(started, [other]) for pair, other in zip(
        found, texts, strict=True) if pair in plain), "what has no special token encodes to the same ids"


def encoded(started, found):
    return preference.encode(started, found)[1].ids.tolist()


def test_tokens_are_counted_once():
    started = session("online_dpo")
    found = pairs.next_pairs(started)
    sampled = int(found.sampled[1].completions.mask.sum())
    assert started.tokens == sampled > 0
    preference.update(started, found)
    assert started.tokens == sampled
    preference.update(started, pairs.Pairs(found.pairs))  # pairs that were not sampled for the step
    assert started.tokens == sampled + int(preference.encode(started, found.pairs)[1].mask.sum())


def test_fresh_pairs_are_the_policy_s_as_it_is_now():
    started = session("online_dpo", steps=3, learning_rate=0.02, beta=0.3)
    reference, got = weights(started.reference), records(started)
    assert got[0].metrics["loss"] == pytest.approx(log(2), abs=1e-5)
    assert got[0].metrics["kl"] == pytest.approx(0, abs=1e-6) and got[2].metrics["kl"] > 1e-4
    assert torch.equal(weights(started.reference), reference) and not started.pairs
    assert [record.tokens for record in got] == sorted({record.tokens for record in got})


def test_a_pair_has_a_side_of_the_policy_and_one_of_the_reference():
    started = session("xpo", pairs_per_step=64, letters=True)
    shake(started.policy, by=0.3)
    with patch("labcore.llm.pairs.generate", side_effect=generate) as drawn:
        found = pairs.next_pairs(started)
    assert [call.args[1] for call in drawn.call_args_list] == [started.policy, started.reference]
    score, sides = started.task.score, {"chosen": 0, "rejected": 0}
    for pair in found.pairs:
        gain = score(None, pair.chosen).reward - score(None, pair.rejected).reward
        assert gain >= 0 and pair.theirs
        sides[pair.theirs] += gain == 0
        assert pair.tie == (gain == 0)
    assert min(sides.values()) > 0, "a coin decides ties"
    ours = [pair.rejected if pair.theirs == "chosen" else pair.chosen for pair in found.pairs]
    assert ours == found.sampled[1].texts and 0 < found.metrics["win_rate"] < 1
    taken = preference.gradients(started, found)
    assert taken.sides.theirs.view(-1, 2).sum(1).eq(1).all()
    assert taken.sides.ties.tolist() == [pair.tie for pair in found.pairs for _ in range(2)]
    shown = preference.shown(started, found, taken, None)["pairs"]
    assert [pair.get("tie", False) for pair in shown] == [pair.tie for pair in found.pairs[:len(shown)]]
    assert preference.step(started, found, taken)["logps/opponent"] == pytest.approx(
        float(taken.sides.logprobs[taken.sides.theirs].mean()))


def test_a_coin_decides_too_where_one_side_could_not_be_scored():
    started = session("xpo", pairs_per_step=64)
    started.task.score = lambda problem, text: Score(nan, False)
    found = pairs.next_pairs(started)
    won = sum(pair.theirs == "rejected" for pair in found.pairs)
    assert 15 < won < 49 and "win_rate" not in found.metrics


def test_the_loss_of_a_tie_is_the_mean_of_both_orders():
    sums = torch.randn(2, 8, generator=torch.Generator().manual_seed(4))
    sides = Sides(sums, torch.full((8,), 3), torch.tensor([True, False] * 4), torch.zeros(2, 8),
                  theirs=torch.tensor([True, False, False, True] * 2))
    knobs = {**session("xpo").knobs, "second_weight": 0.5}
    forth, back = (objective.loss(knobs, replace(sides, labels=labels), 4) for labels in (sides.labels, ~sides.labels))
    assert abs(forth - back) > 0.01
    ties = torch.tensor([True] * 8)
    torch.testing.assert_close(objective.loss(knobs, replace(sides, ties=ties), 4), (forth + back) / 2)
    torch.testing.assert_close(objective.loss(knobs, replace(sides, ties=~ties), 4), forth)


def test_exploration_needs_pairs_with_a_side_of_the_reference():
    with pytest.raises(LabError, match="set `pairs=policy_and_reference`"):
        session("dpo", second_loss="exploration")


@pytest.mark.long
@pytest.mark.parametrize("algorithm, knobs", [
    ("xpo", {"pairs_per_step": 32, "beta": 0.1}), ("nash_md", {"prompts_per_step": 32, "beta": 0.02})])
def test_rows_with_an_opponent_learn(algorithm, knobs):
    started = session(algorithm, steps=20, learning_rate=0.01, **knobs)
    found = [record.metrics for record in records(started)]
    assert sum(each["reward"] for each in found[-3:]) / 3 > found[0]["reward"] + 0.05
    assert sum(each["win_rate"] for each in found[-3:]) / 3 > 0.5


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["xpo", "nash_md"])
def test_rows_with_an_opponent_learn_to_sort_with_their_defaults(algorithm, tmp_path, monkeypatch):
    """From about 0.4 to about 0.6 in 40 steps."""
    monkeypatch.setenv("RL_LAB_HOME", str(tmp_path))
    spec = make(algorithm_key=algorithm, task_key="sort", steps=40, knobs={"probes": False})
    base = bases.take(base_spec(spec).hash())
    rewards = [record.metrics["reward"] for record in records(LlmSession.start(spec, base / "model", None))]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.1


@pytest.mark.long
def test_online_dpo_learns():
    started = session("online_dpo", steps=20, pairs_per_step=16, learning_rate=0.01)
    rewards = [record.metrics["reward"] for record in records(started)]
    assert sum(rewards[-3:]) / 3 > rewards[0] + 0.05  # 0.75 is all that six letters earn


def test_pairs_of_the_reference_are_made_once(monkeypatch):
    started, made = session("dpo", steps=2), []
    real = pairs.sample_once
    monkeypatch.setattr(pairs, "sample_once", lambda session: made.append(real(session)) or made[-1])
    shake(started.policy, by=0.3)  # the reference samples them, whatever the policy is by now
    records(started)
    pairs.prepare(started)
    assert len(made) == 1 and started.pairs is made[0]
    assert {(pair.prompt, pair.chosen) for pair in pairs.next_pairs(started).pairs} <= {
        (pair.prompt, pair.chosen) for pair in made[0]}


def test_pairs_of_a_file_are_drawn_from_it(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{n}=", "chosen": "a", "rejected": "b"}) + "\n" for n in range(9)))
    started = session("dpo", letters=False, task="preferences", data=str(path))
    pairs.prepare(started)
    found = pairs.next_pairs(started)
    assert not started.pairs and found.sampled is None and len(found.pairs) == 4
    assert {pair.prompt for pair in found.pairs} <= {f"{n}=" for n in range(9)}


def test_fresh_pairs_need_a_verifier(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"prompt": "a=", "chosen": "a", "rejected": "b"}\n')
    for algorithm, knobs in (("online_dpo", {}), ("dpo", {"pairs": "policy_each_step"}),
                             ("dpo", {"pairs": "reference_once"})):
        with pytest.raises(LabError):
            session(algorithm, letters=False, task="preferences", data=str(path), **knobs)


def test_only_the_tokens_that_count_are_counted():
    started = session("online_dpo", max_new_tokens=40)
    mask = pairs.next_pairs(started).sampled[1].completions.mask
    assert started.tokens == int(mask.sum()) < mask.numel()


@pytest.mark.parametrize("rewards", [[nan, 1.0, 0.0], [1.0, nan, 0.0], [0.0, 1.0, nan], [nan, 0.0, nan, 1.0]])
def test_pairs_made_once_are_the_references_and_leave_out_what_could_not_be_scored(rewards, monkeypatch):
    started, asked = session("dpo", pair_prompts=1, group_size=len(rewards)), []
    texts, mask = [f"{place}" for place in range(len(rewards))], torch.ones(len(rewards), 2, dtype=torch.bool)
    monkeypatch.setattr(pairs, "generate", lambda session, model, *_: asked.append(model) or Generated(
        None, Completions(mask.long(), mask, mask[:, 0], torch.zeros(mask.shape)), texts))
    monkeypatch.setattr(started.task, "score", lambda problem, text: Score(rewards[int(text)], False), raising=False)
    [pair] = pairs.sample_once(started)
    assert (rewards[int(pair.chosen)], rewards[int(pair.rejected)]) == (1.0, 0.0)
    assert asked == [started.reference] and started.reference is not started.policy
