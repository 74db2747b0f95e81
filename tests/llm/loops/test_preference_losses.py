"""All rows that learn from pairs, and all their losses: without a reference, with an answer, of single completions."""

import json
from dataclasses import replace
from math import isfinite

import pytest
import torch

from labcore.catalog import choices
from labcore.catalog.llm.algorithms import ALGORITHMS
from labcore.errors import LabError
from labcore.llm import own_answers, pairs
from labcore.llm.loops import preference
from labcore.llm.nets.forward import completion_outputs
from labcore.llm.networks import REFERENCE
from labcore.llm.rendering import encode_answers
from labcore.maths.logprobs import selective_log_softmax
from labcore.tasks.task import Pair, Single
from tests.every import now
from tests.llm.loops.test_preference import PAIRS
from tests.llm.loops.test_preference import preferences as preferences
from tests.llm.tools import records, session, shake
from tests.words import saying

ROWS = [key for key, row in ALGORITHMS.items() if row.loop == "preference"]
# Of six letters of the chosen side two are rewarded, of the rejected one none, and of the base's about five.
WORSE_THAN_THE_BASE = [Pair("abc=", chosen, rejected, chosen_truncated=True, rejected_truncated=True)
                       for chosen, rejected in (("xoAvyb", "qtzznw"), ("1uwpCs", "rvoxyn"), ("npdz7t", "wsuvqo"),
                                                ("Ezyxfo", "tpnprs"), ("vGqn3w", "yyxuzt"), ("stkro5", "osnwvv"))]
FREE = [choice.key for choice in choices.PREFERENCE_LOSS.members if not (choice.reference or choice.opposed)]


@pytest.mark.long
@pytest.mark.parametrize("key", ROWS)
def test_every_row_learns(key):
    """A flipped sign anywhere would lower the margin; what is sampled earns more afterwards. The sign of every loss is
    that of its exact gradient, too: `exact/test_draws_gradients.py`."""
    measured = {"eval_prompts": 256} if "eval_every" in {knob.key for knob in ALGORITHMS[key].knobs} else {}
    started = session(key, steps=20, pairs_per_step=16, learning_rate=0.01, **measured)
    if key == "apo_down":
        started.pairs = WORSE_THAN_THE_BASE
    started.task.answer = "abc" * 8  # which earns more than the base does in the six tokens that are sampled
    got = records(started)
    first, last = got[0].metrics, got[-1].metrics
    assert last["loss"] < first["loss"] and last["rewards/accuracies"] > 0.6
    assert last["rewards/margins"] > first["rewards/margins"] + 0.05
    assert last["reward"] > first["reward"] + 0.01
    assert (REFERENCE in started.models) == (REFERENCE in ALGORITHMS[key].models)


@pytest.mark.long
@pytest.mark.parametrize("key, chosen, worse", [
    ("apo_down", -1, True), ("apo_down", -1, False), ("apo_zero", 1, True), ("apo_zero", 1, False)])
def test_apo_moves_the_chosen_side_down_or_up(key, chosen, worse):
    """APO-down lowers both sides, the rejected one more, so completions unlike both become likelier. This earns more
    where both are worse than the base, on every seed (0.63 to 0.71 or more). Where the base sampled the pairs itself it
    may earn less, because the chosen side is better than the base: 0.63 to between 0.53 and 0.70 on eight seeds.
    """
    started = session(key, steps=20, pairs_per_step=16, learning_rate=0.01, eval_prompts=64)
    started.pairs = WORSE_THAN_THE_BASE if worse else []
    got = records(started)
    last = got[-1].metrics
    assert last["rewards/chosen"] * chosen > 1 and last["rewards/rejected"] < min(-1, last["rewards/chosen"] - 1)
    if key == "apo_down" and worse:
        assert last["reward"] > got[0].metrics["reward"] + 0.04


@pytest.mark.parametrize("name", now(FREE, FREE[0], FREE[-1]))
def test_a_row_without_a_reference_holds_none_and_takes_only_such_losses(name):
    metrics = records(session("simpo", steps=1, preference_loss=name))[0].metrics
    assert "kl" not in metrics and isfinite(metrics["loss"])
    with pytest.raises(LabError, match=saying("`sigmoid`", "reference", "ORPO holds none", "choose `simpo`")):
        session("orpo", preference_loss="sigmoid")
    with pytest.raises(LabError, match="`kto` compares with a reference"):
        session("simpo", second_loss="kto")


def test_the_numbers_of_an_update_without_a_reference():
    """The implicit reward is β times the mean log-prob per token, end token included."""
    started = session("simpo", beta=0.5, target_margin=0.2, second_loss="none")
    shake(started.policy)
    prompts, completions = preference.encode(started, PAIRS)
    logits = completion_outputs(started.policy, prompts, completions.ids).detach()
    sums = (selective_log_softmax(logits, completions.ids) * completions.mask).sum(1) / completions.lengths
    chosen, rejected = (0.5 * sums.view(-1, 2)).unbind(1)
    metrics, shown = preference.update(started, pairs.Pairs(PAIRS))
    expected = -torch.nn.functional.logsigmoid(chosen - rejected - 0.2).mean().item()
    assert metrics["loss"] == pytest.approx(expected, rel=1e-5)
    assert metrics["rewards/margins"] == pytest.approx((chosen - rejected).mean().item(), rel=1e-4)
    assert [row["margin"] for row in shown["pairs"]] == pytest.approx((chosen - rejected).tolist(), abs=1e-4)
    assert all("ref_logprob" not in row[side] for row in shown["pairs"] for side in ("chosen", "rejected"))


def test_simpo_adds_the_loss_of_sft_unless_it_is_switched_off():
    """Its default: alone it lets both log-probs fall on `sort`, and exact match with them."""
    usual, alone = session("simpo"), session("simpo", second_loss="none")
    prompts, completions = preference.encode(usual, PAIRS)
    logits = completion_outputs(usual.policy, prompts, completions.ids).detach()
    logprobs = (selective_log_softmax(logits, completions.ids) * completions.mask)[::2]  # the chosen sides
    loss, own = (preference.update(each, pairs.Pairs(PAIRS))[0]["loss"] for each in (usual, alone))
    assert loss - own == pytest.approx(-float(logprobs.sum() / completions.lengths[::2].sum()), rel=1e-5)


@pytest.mark.parametrize("knobs", [{}, {"preference_loss": "sigmoid", "ld_alpha": 0.3, "pair_weighting": True}],
                         ids=["TPO", "DPO with the answer"])
def test_the_answer_is_learnt_beside_both_sides(knobs, monkeypatch):
    """Its loss is −ℓ per token of all answers, whatever is done to the pairs, in any micro-batches."""
    pairs_of = [replace(pair, answer=answer) for pair, answer in zip(PAIRS, ("abc", "bb", "abcd", "a"), strict=True)]
    key = "dpo" if knobs else "tpo"
    both, alone = (session(key, second_loss=name, second_weight=0.7, **knobs) for name in ("answer_sft", "none"))
    prompts, answers = encode_answers(both.rendering, pairs_of, [pair.answer for pair in pairs_of], 64, both.device)
    logits = completion_outputs(both.policy, prompts, answers.ids)
    nll = -(selective_log_softmax(logits, answers.ids) * answers.mask).sum() / answers.mask.sum()
    expected = torch.autograd.grad(0.7 * nll, [*both.policy.parameters()])
    taken = [preference.gradients(each, pairs.Pairs(pairs_of)) for each in (both, alone)]
    assert taken[0].loss - taken[1].loss == pytest.approx(0.7 * float(nll.detach()), rel=1e-5)
    assert taken[0].tokens - taken[1].tokens == int(answers.mask.sum()) and taken[1].answers is None
    for ours, without, beside in zip(both.policy.parameters(), alone.policy.parameters(), expected, strict=True):
        assert torch.allclose(ours.grad - without.grad, beside, atol=1e-6)
    whole = both.policy.lm_head.weight.grad.clone()
    both.policy.zero_grad()
    monkeypatch.setattr(own_answers, "micro_batches", lambda *_: iter(
        [(slice(0, 1), slice(0, 1)), (slice(1, 4), slice(1, 4))]))
    assert preference.gradients(both, pairs.Pairs(pairs_of)).loss == pytest.approx(taken[0].loss, rel=1e-5)
    assert torch.allclose(both.policy.lm_head.weight.grad, whole, atol=1e-6)


def test_the_answer_of_a_pair_is_shown_and_measured():
    started = session("tpo", steps=1, pairs_per_step=2)
    [record] = records(started, pictures=True)
    shown = [pair["own_answer"] for pair in record.samples["pairs"]]
    assert {each["text"] for each in shown} == {"abc"}
    assert record.metrics["logps/answer"] == pytest.approx(sum(each["logprob"] for each in shown) / 2, rel=1e-4)


def test_pairs_without_an_answer_cannot_teach_it(preferences, tmp_path):
    with pytest.raises(LabError, match=r"Line 1 of pairs.jsonl has no field 'reference' or 'answer'"):
        session("tpo", letters=False, task="preferences", data=preferences)
    with pytest.raises(LabError, match=saying("line 3 of your file", "no answer")):
        preference.update(session("tpo"), pairs.Pairs([replace(PAIRS[0], line=3)]))
    path = tmp_path / "triples.jsonl"
    path.write_text("".join(json.dumps({"prompt": p.prompt, "chosen": p.chosen, "rejected": p.rejected, name: "abd"})
                            + "\n" for p, name in zip(PAIRS, ("reference", "answer") * 2, strict=True)))
    started = session("tpo", letters=False, task="preferences", data=str(path), steps=8, learning_rate=0.02)
    assert {pair.answer for pair in pairs.next_pairs(started, 4).pairs} == {"abd"} and "d" in started.task.characters
    got = records(started)
    assert got[-1].metrics["logps/answer"] > got[0].metrics["logps/answer"] + 1
    assert {pair.answer for pair in pairs.next_pairs(session(
        "dpo", letters=False, task="preferences", data=str(path)), 4).pairs} == {""}


def test_kto_compares_with_completions_of_other_prompts():
    """z: each prompt with the completions of the pair before it, the mean log-ratio, at least 0."""
    started = session("kto", beta=0.5, desirable_weight=1.3)
    shake(started.reference, by=0.06)  # the policy, which has not moved, finds any text likelier
    prompts, completions = preference.encode(started, PAIRS)
    ids, mask = completions.ids.roll(2, 0), completions.mask.roll(2, 0)
    sums = [(selective_log_softmax(completion_outputs(model, prompts, ids).detach(), ids) * mask).sum(1)
            for model in (started.policy, started.reference)]
    expected = float((sums[0] - sums[1]).mean())
    own = [(selective_log_softmax(completion_outputs(model, prompts, completions.ids).detach(), completions.ids)
            * completions.mask).sum(1) for model in (started.policy, started.reference)]
    chosen, rejected = (own[0] - own[1]).view(-1, 2).unbind(1)
    metrics, _ = preference.update(started, pairs.Pairs(PAIRS))
    assert metrics["kl/mismatched"] == pytest.approx(expected, rel=1e-3) and expected > 0.01
    losses = torch.cat([1.3 * (1 - (0.5 * (chosen - expected)).sigmoid()), 1 - (0.5 * (expected - rejected)).sigmoid()])
    assert metrics["loss"] == pytest.approx(losses.mean().item(), rel=1e-4)


SINGLES = [Single("abc=", "abc", True), Single("b=", "bbbb", False), Single("ba=", "ab", True),
           Single("cb=", "cb", False), Single("a=", "a", True)]


@pytest.fixture
def labelled(tmp_path):
    path = tmp_path / "labelled.jsonl"
    path.write_text("".join(json.dumps({"prompt": s.prompt, "completion": s.completion, "label": s.label}) + "\n"
                            for s in SINGLES))
    return str(path)


def test_single_completions_are_learnt(labelled):
    started = session("kto", letters=False, task="preferences", data=labelled, steps=15, learning_rate=0.01,
                      pairs_per_step=5)
    got = records(started, pictures=True)
    last = got[-1].metrics
    assert last["loss"] < 0.2 and last["rewards/chosen"] > 0 > last["rewards/rejected"]
    assert last["rewards/margins"] == pytest.approx(last["rewards/chosen"] - last["rewards/rejected"])
    assert last["logps/chosen"] > got[0].metrics["logps/chosen"] and "rewards/accuracies" not in last
    assert got[0].samples["pairs"] == [] and got[0].samples["watched"]
    json.dumps(got[0].samples, allow_nan=False)


def test_a_batch_with_one_label_logs_what_it_has(labelled):
    started = session("kto", letters=False, task="preferences", data=labelled)
    metrics, _ = preference.update(started, pairs.Pairs([], singles=[SINGLES[0], SINGLES[2]]))
    assert {"rewards/chosen", "logps/chosen"} <= metrics.keys()
    assert not {"rewards/rejected", "rewards/margins"} & metrics.keys()


def test_apo_learns_from_single_completions_without_the_kl_of_others(labelled):
    made = session("kto", letters=False, task="preferences", data=labelled, steps=2,
                   preference_loss="apo_zero_unpaired")
    got = records(made)
    assert "kl/mismatched" not in got[-1].metrics and got[0].metrics["loss"] == pytest.approx(0.5, abs=1e-6)
    assert got[1].metrics["loss"] < got[0].metrics["loss"]


def test_single_completions_are_of_no_use_to_losses_of_pairs(labelled):
    for given in ({"algorithm": "dpo"}, {"algorithm": "kto", "second_loss": "sft"}):
        with pytest.raises(LabError, match=r"single completions with labels.* learns from pairs: use kto or apo_"):
            session(given.pop("algorithm"), letters=False, task="preferences", data=labelled, **given)
    assert records(session("sft", letters=False, task="preferences", data=labelled, steps=1))


def test_pairs_without_a_number_of_their_own_cannot_be_weighted():
    with pytest.raises(LabError, match="`aot` has no number for each pair"):
        session("aot", pair_weighting=True)


@pytest.mark.parametrize("knobs", [{"pair_weighting": True}, {"ld_alpha": 0.2}, {"divergence": "forward_kl"},
                                   {"second_loss": "sft"}, {"divergence": "alpha", "divergence_alpha": 0.2}])
def test_what_can_be_switched_on_changes_the_loss(knobs):
    losses = []
    for given in ({}, knobs):
        started = session("dpo", **given)
        shake(started.policy)
        losses.append(preference.update(started, pairs.Pairs(PAIRS))[0]["loss"])
    assert abs(losses[0] - losses[1]) > 1e-4 and all(map(isfinite, losses))
