"""DPO: pairs made by the verifier or brought by the user, the start at ln 2, and what is learnt from them."""

import json
from math import log

import pytest
import torch

from labcore.catalog.kinds import task
from labcore.catalog.metrics import METRICS
from labcore.catalog.panels import PANELS
from labcore.errors import Diverged, LabError
from labcore.llm import pairs
from labcore.llm.batch import Completions
from labcore.llm.generation import Generated
from labcore.llm.loops import preference
from labcore.llm.nets.forward import completion_outputs
from labcore.llm.probes.budget import Budget
from labcore.maths.logprobs import selective_log_softmax
from labcore.tasks.task import Pair, Score
from tests.llm.tools import records, session, shake, weights

PAIRS = [Pair("abc=", "abc", "cab"), Pair("b=", "b", "bbbbbb"), Pair("dcba=", "abcd", "dcb"), Pair("a=", "a", "ba")]


@pytest.fixture
def preferences(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"prompt": p.prompt, "chosen": p.chosen, "rejected": p.rejected}) + "\n"
                            for p in PAIRS))
    return str(path)


def sampled(texts, truncated, rewards, monkeypatch, **knobs):
    """The pairs made of given completions of one prompt."""
    started = session("dpo", pair_prompts=1, group_size=len(texts), **knobs)
    cut = torch.tensor(truncated)
    monkeypatch.setattr(pairs, "generate", lambda *_: Generated(
        None, Completions(cut[:, None], cut[:, None], cut), list(texts)))
    monkeypatch.setattr(started.task, "score", lambda problem, text: Score(rewards[text], False), raising=False)
    return pairs.sample_once(started)


def test_the_better_is_chosen_and_the_worse_rejected(monkeypatch):
    rewards = {"right": 1.0, "near": 0.5, "far": 0.25, "wrong": 0.0}
    got = sampled(["near", "wrong", "right", "far"], [False, True, False, True], rewards, monkeypatch)
    assert {(p.chosen, p.rejected, p.chosen_truncated, p.rejected_truncated) for p in got} == {
        ("right", "wrong", False, True), ("near", "far", False, True)}
    assert {p.line for p in got} == {7}


def test_equal_answers_make_no_pair_and_empty_ones_take_no_part(monkeypatch):
    got = sampled(["right", "right", "", "wrong"], [False] * 4, {"right": 1.0, "": 0.5, "wrong": 0.0}, monkeypatch)
    assert [(p.chosen, p.rejected) for p in got] == [("right", "wrong")]


def test_a_verifier_that_sees_no_difference_is_told_in_words(monkeypatch):
    with pytest.raises(LabError, match=r"None of 1 prompts .* raise `pair_prompts`"):
        sampled(["a", "b"], [False] * 2, {"a": 1.0, "b": 1.0}, monkeypatch)


def test_pairs_of_a_real_run_are_judged_by_the_task():
    started = session("dpo")
    made = pairs.sample_once(started)
    assert len(made) > 4
    for pair in made:
        better, worse = (started.task.score(None, text).reward for text in (pair.chosen, pair.rejected))
        assert better > worse
    assert any(pair.rejected_truncated for pair in made)  # random weights seldom end within six tokens


def test_what_was_cut_is_not_taught_to_end():
    started = session("dpo")
    one = [Pair("ab=", "ab", "ba", chosen_truncated=False, rejected_truncated=True)]
    prompts, completions = preference.encode(started, one)
    end = started.tokenizer.eos_token_id
    assert completions.lengths.tolist() == [3, 2] and len(prompts) == 1
    assert int(completions.ids[0, 2]) == end and end not in completions.ids[1][completions.mask[1]].tolist()


@pytest.mark.parametrize("brought", [False, True])
def test_it_starts_at_ln_2(brought, preferences):
    given = {"task": "preferences", "data": preferences} if brought else {}
    started = session("dpo", letters=not brought, beta=0.7, **given)
    metrics = records(started)[0].metrics
    assert metrics["loss"] == pytest.approx(log(2), abs=1e-6)
    assert metrics["rewards/margins"] == pytest.approx(0, abs=1e-6)
    assert metrics["kl"] == pytest.approx(0, abs=1e-6)


def test_the_users_pairs_are_learnt(preferences):
    started = session("dpo", letters=False, task="preferences", data=preferences, steps=12, learning_rate=0.01)
    reference = weights(started.reference)
    got = records(started, pictures=True)
    assert not started.pairs and started.updates == 12
    assert "exact_match" not in got[-1].metrics and "reward" not in got[0].metrics  # there is no verifier
    last = got[-1].metrics
    assert last["loss"] < 0.3 and last["rewards/accuracies"] == 1
    assert last["rewards/margins"] == pytest.approx(last["rewards/chosen"] - last["rewards/rejected"], abs=1e-4)
    assert last["rewards/chosen"] > last["rewards/rejected"] and last["logps/chosen"] > got[0].metrics["logps/chosen"]
    assert torch.equal(weights(started.reference), reference)
    assert {p["prompt"] for p in got[0].samples["pairs"]} == {p.prompt for p in PAIRS}


def test_the_numbers_of_an_update_worked_by_hand():
    """ℓ is the sum over the completion, its end token included, at temperature 1 whatever the sampling's is."""
    started = session("dpo", beta=0.3, temperature=0.5)
    shake(started.policy)
    prompts, completions = preference.encode(started, PAIRS)
    sums = []
    for model in (started.policy, started.reference):
        logits = completion_outputs(model, prompts, completions.ids).detach()
        sums.append((selective_log_softmax(logits, completions.ids) * completions.mask).sum(1).view(-1, 2))
        if model is started.policy:
            entropy = torch.distributions.Categorical(logits=logits).entropy()[completions.mask].mean()
    chosen, rejected = (sums[0] - sums[1]).unbind(1)
    metrics, shown = preference.update(started, pairs.Pairs(PAIRS))
    delta = 0.3 * (chosen - rejected)
    assert delta.abs().min() > 1e-3
    for key, expected in {"loss": -torch.nn.functional.logsigmoid(delta).mean(), "rewards/margins": delta.mean(),
                          "rewards/chosen": 0.3 * chosen.mean(), "rewards/rejected": 0.3 * rejected.mean(),
                          "rewards/accuracies": (delta > 0).float().mean(), "logps/chosen": sums[0][:, 0].mean(),
                          "logps/rejected": sums[0][:, 1].mean(), "entropy": entropy}.items():
        assert metrics[key] == pytest.approx(expected.item(), rel=1e-4, abs=1e-5), key
    assert started.tokens == sum(len(p.chosen) + len(p.rejected) + 2 for p in PAIRS)
    for row, pair, margin in zip(shown["pairs"], PAIRS, delta, strict=True):
        assert (row["chosen"]["text"], row["rejected"]["text"]) == (pair.chosen, pair.rejected)
        assert row["margin"] == pytest.approx(margin.item(), abs=1e-4)
    json.dumps(shown, allow_nan=False)


def test_a_tie_is_not_right():
    """Two of four pairs have the same completion on both sides: at most half can be right, whatever the policy."""
    started, twice = session("dpo"), [Pair("abc=", "abc", "abc"), Pair("a=", "b", "b")]
    shake(started.policy)
    found = [preference.update(started, pairs.Pairs(given))[0]["rewards/accuracies"]
             for given in (twice, [*twice, *PAIRS[:2]])]
    assert found[0] == 0 and found[1] <= 0.5


@pytest.mark.parametrize("key", ["dpo", "sft"])
def test_without_a_verifier_only_the_charts_that_are_filled_are_announced(key, preferences):
    started = session(key, letters=False, task="preferences", data=preferences, steps=1)
    logged = {name for record in records(started) for name in record.metrics}
    row = started.spec.row
    filled = {panel for panel in row.panels if logged & set(PANELS[panel].metrics)}
    machine = {panel for panel in row.panels if METRICS[PANELS[panel].metrics[0]].about == "machine"}
    assert set(row.charts(started.spec.task_row)) == filled | machine
    assert row.charts(task("sort")) == row.panels


def test_pairs_that_are_made_once_are_no_part_of_a_step(monkeypatch):
    now, sample = [0.0], pairs.sample_once
    monkeypatch.setattr(pairs, "sample_once", lambda started: (now.__setitem__(0, 100.0), sample(started))[1])
    started = session("dpo", steps=1)
    started.probes = Budget(lambda: now[0])
    assert records(started, pictures=True) and now == [100.0]
    assert started.probes.seconds == 0


def test_knobs_count_at_the_next_update():
    started = session("dpo", steps=3)
    run = started.run()
    next(run)
    started.knobs |= {"learning_rate": 0.0, "pairs_per_step": 2}
    before = weights(started.policy)
    assert next(run).metrics["learning_rate"] == 0
    assert torch.equal(weights(started.policy), before)


def test_a_pair_longer_than_the_context_is_cut_and_a_prompt_named():
    started = session("dpo")
    long = Pair("a=", "b" * 100, "c")
    _, completions = preference.encode(started, [long])
    assert completions.ids.shape[1] == started.context - 2 and completions.truncated.tolist() == [True, False]
    with pytest.raises(LabError, match="line 12"):
        preference.encode(started, [Pair("a" * 64, "b", "c", line=12)])


def test_a_base_whose_weights_are_no_numbers_is_told_as_such():
    started = session("dpo", steps=2)
    with torch.no_grad():
        next(started.reference.parameters()).fill_(float("nan"))
    with pytest.raises(Diverged, match="sampling distribution"):
        next(started.run())


def test_the_first_measurement_is_of_the_base():
    """Before the update, so that the first value on the chart is what the run starts from."""
    first, second = records(session("dpo", steps=2, eval_every=1, learning_rate=0.1))
    assert first.metrics["kl"] == pytest.approx(0, abs=1e-9) and first.metrics["updates"] == 1
    assert second.metrics["kl"] > 1e-3


@pytest.mark.parametrize("kind, expected", [("sigmoid", log(2)), ("ipo", (1 / (2 * 0.4)) ** 2)])
def test_the_loss_is_the_one_that_the_run_chose(kind, expected):
    """At the reference Δ = 0: −log σ(0) = log 2, and (0 − 1/(2β))²."""
    started = session("dpo", preference_loss=kind, beta=0.4)
    metrics, _ = preference.update(started, pairs.Pairs(PAIRS))
    assert metrics["loss"] == pytest.approx(expected, rel=1e-4)
