"""What a teacher says of completions: beside its plain logits, with a vocabulary cut into chunks, and in records."""

import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from labcore.errors import LabError
from labcore.llm.experience import collect
from labcore.llm.loops import sft
from labcore.llm.nets import head
from labcore.llm.nets.forward import at_tokens, plain
from labcore.llm.networks import TEACHER
from labcore.llm.rendering import encode_examples
from labcore.llm.teacher import Distributions, asked, compared, measures, said
from labcore.maths.supervised import reverse_kl
from tests.every import now
from tests.llm.tools import completion_ids, model, prompts, records, session, shake, spec


def test_its_log_probs_are_those_of_its_own_pass_at_the_temperature():
    started = session("opd", temperature=0.7, max_new_tokens=20)
    rollout = collect(started).rollout
    with torch.no_grad():
        logits = plain(started.models[TEACHER], rollout.prompts, rollout.ids) / 0.7
    mask = rollout.completion_mask
    expected = logits.log_softmax(-1).gather(-1, rollout.ids[..., None])[..., 0]
    torch.testing.assert_close(rollout.teacher_logprobs[mask], expected[mask], rtol=1e-4, atol=1e-5)
    assert torch.equal(rollout.teacher_likeliest[mask], logits.argmax(-1)[mask])
    assert (~mask).any() and not rollout.teacher_logprobs[~mask].any()


def test_online_metrics_are_of_the_sampled_tokens():
    started = session("opd", steps=1)
    batch = collect(started)
    rollout, mask = batch.rollout, batch.rollout.completion_mask
    assert batch.metrics["teacher/reverse_kl"] == pytest.approx(
        float((rollout.old_logprobs - rollout.teacher_logprobs)[mask].mean()), rel=1e-5)
    with torch.no_grad():
        same = plain(started.policy, rollout.prompts, rollout.ids).argmax(-1) == rollout.teacher_likeliest
    again = session("opd", steps=1)
    assert records(again)[0].metrics["teacher/agreement"] == pytest.approx(float(same[mask].float().mean()), abs=1e-6)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mamba"])
def test_the_divergence_of_two_networks_is_that_of_their_logits_in_chunks_too(kind, monkeypatch):
    """Also with a teacher of another size, whose vocabulary is padded: the rows beyond do not count."""
    policy, teacher, asked_for = model(kind), model(kind, vocabulary=13, seed=1), prompts()
    shake(policy, 2, 0.2)
    ids = completion_ids(6, 4)

    class Holder:
        models, knobs = {TEACHER: teacher}, {"dtype": "fp32"}

    def measured():
        theirs = Distributions.of(Holder, asked_for, ids)
        measure = partial(compared, head=theirs.head, loss=reverse_kl)
        found = at_tokens(policy, asked_for, ids, measure, beside=(theirs.states,))
        policy.zero_grad()
        found[3].sum().backward()
        return [each.detach().float() for each in found], [p.grad.clone() for p in policy.parameters()]
    values, gradient = measured()
    ours, theirs = (plain(each, asked_for, ids)[..., :11].log_softmax(-1) for each in (policy, teacher))
    torch.testing.assert_close(values[3], (ours.exp() * (ours - theirs)).sum(-1).detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(values[4], F.kl_div(ours, theirs, log_target=True, reduction="none").sum(-1).detach(),
                               rtol=1e-4, atol=1e-5)
    assert torch.equal(values[6].bool(), ours.argmax(-1) == theirs.argmax(-1))
    monkeypatch.setattr(head, "MAX_ELEMENTS", 40)
    again, cut = measured()
    torch.testing.assert_close(again, values, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(cut, gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("knobs, key", now(
    [({"sft_loss": "forward_kl"}, "teacher/forward_kl"), ({"sft_loss": "reverse_kl"}, "teacher/reverse_kl"),
     ({"jsd_beta": 0.5}, "")], ({"sft_loss": "forward_kl"}, "teacher/forward_kl")))
def test_the_loss_of_gkd_is_the_divergence_and_falls(knobs, key):
    started = session("gkd", letters=False, steps=6, learning_rate=0.01, on_policy_share=0.0, **knobs)
    got = [record.metrics for record in records(started)]
    assert got[-1]["loss"] < 0.9 * got[0]["loss"]
    assert all(0 <= each["teacher/agreement"] <= 1 and each["teacher/forward_kl"] > 0 for each in got)
    if key:
        assert all(each["loss"] == pytest.approx(each[key], rel=1e-4) for each in got)


def test_the_gradient_of_gkd_does_not_depend_on_how_a_batch_is_cut(monkeypatch):
    found = []
    for halvings in (0, 2):
        started = session("gkd", letters=False, on_policy_share=0.0)
        started.halvings = halvings
        _, examples = sft.next_examples(started)
        measured = sft.gradients(started, examples.prompts, examples.answers)
        found.append((measured, [p.grad.clone() for p in started.policy.parameters()]))
    (one, first), (other, second) = found
    assert one == pytest.approx(other, rel=1e-4)
    torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-6)


def test_no_checkpoint_holds_it_and_a_resumed_run_loads_it_again(tmp_path):
    whole = records(session("opd", steps=3))
    run = (started := session("opd", steps=3)).run()
    while started.step < 2:
        next(run)
    started.save(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if "teacher" in path.name]
    resumed = session("opd", steps=3, resume=tmp_path)
    assert [record.metrics for record in records(resumed)] == [record.metrics for record in whole[2:]]


def test_a_fork_may_have_another_teacher(tmp_path):
    started = session("opd")
    first = started.models[TEACHER]
    started.export(tmp_path / "other")
    started.fork(spec("opd", teacher=str(tmp_path / "other")))
    assert started.models[TEACHER] is not first
    started.fork(spec("grpo"))
    assert TEACHER not in started.models


def test_a_completion_has_room_in_the_teacher_too():
    started = session("opd")
    assert started.context == 64  # of the policy
    started.models[TEACHER].config.max_position_embeddings = 32
    assert started.context == 32


def test_a_task_without_a_built_in_teacher_says_so():
    with pytest.raises(LabError, match="no teacher to learn from"):
        spec("opd", task="add", sft_steps=0)


def test_asked_of_no_token_it_says_nothing_of_it():
    started = session("opd")
    batch = collect(started).batch
    logprobs, _ = asked(started, batch.prompts, batch.completions)
    assert (logprobs <= 0).all()


def test_what_is_measured_of_answers_has_no_padding_in_it():
    """Two micro-batches of a row each: 2 and 1 tokens count."""
    parts = [[torch.tensor([[a, b]])] * 3 for a, b in ((1.0, 2.0), (6.0, 50.0))]
    assert set(measures(parts, torch.tensor([[True, True], [True, False]])).values()) == {3.0}


@pytest.mark.parametrize("algorithm", now(["opd", "gkd", "seqkd"], "opd", "seqkd"))
def test_samples_say_what_the_teacher_would_have_written(algorithm):
    given = {"temperature": 0.7} if algorithm == "opd" else {}
    started = session(algorithm, letters=False, steps=1, max_new_tokens=8, **given)
    (record,) = records(started, pictures=True)
    shown = ([each for group in record.samples["groups"] for each in group["completions"]] if algorithm == "opd"
             else record.samples["examples"])
    found = 0  # tokens that are among the teacher's likeliest
    for each in shown:
        assert len(each["tokens"]) == len(each["teacher_logprobs"]) == len(each["teacher_top"])
        for (text, p), *others in each["teacher_top"]:
            assert isinstance(text, str) and 0 < p <= 1 and all(p >= other for _, other in others)
        same = [(logprob, dict(top)[text]) for text, logprob, top in zip(
            each["tokens"], each["teacher_logprobs"], each["teacher_top"], strict=True) if text in dict(top)]
        assert all(math.exp(logprob) == pytest.approx(p, abs=1e-4) for logprob, p in same)
        found += len(same)
        if algorithm == "opd":
            apart = [theirs - old for theirs, old in zip(each["teacher_logprobs"], each["old_logprobs"], strict=True)]
            assert each["advantages"] == pytest.approx(apart, abs=2e-3)
    assert found


def test_the_teacher_of_sort_would_write_the_letters_in_order():
    started = session("opd", letters=False)
    (problem,) = started.task.problems(1, started.rng)
    examples = encode_examples(started.rendering, [problem], started.context, started.device)
    [told] = said(started, examples.prompts, examples.answers, 1.0)
    assert [top[0][0] for top in told["teacher_top"]][:len(problem.answer)] == list(problem.answer)


def test_watched_prompts_say_how_likely_the_teacher_finds_each_answer():
    (record,) = records(session("opd", letters=False, steps=1, max_new_tokens=8), pictures=True)
    (none,) = records(session("grpo", letters=False, steps=1, max_new_tokens=8), pictures=True)
    for group in record.samples["watched"]:
        best = max(group["answers"], key=lambda answer: answer["logprob_teacher"])
        assert best["text"] == group["answer"] and best["logprob_teacher"] > -1
    assert not any("logprob_teacher" in answer for group in none.samples["watched"] for answer in group["answers"])
